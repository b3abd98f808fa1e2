/** The recalls that this process runs, by batches, so that single ones can be stopped. */
export class RunningRecalls {
  private readonly recalls = new Map<bigint, { abort: AbortController; batch: BatchAbort }>();

  /**
   * Signals for the recalls of a batch: each aborts with `outer`, and when the recall is stopped by itself.
   * @returns `signals` in the order of `fileIds`; `signal`, which aborts when nothing of the batch is left to do; and
   *   what ends the batch
   */
  begin(fileIds: readonly bigint[], outer: AbortSignal) {
    const aborts = fileIds.map(() => new AbortController());
    const batch: BatchAbort = { abort: new AbortController(), left: fileIds.length };
    // one listener for all: a signal made of two others for each file costs more than reading it, when it is small
    const abortAll = () => {
      batch.abort.abort(outer.reason);
      for (const abort of aborts) abort.abort(outer.reason);
    };
    if (outer.aborted) abortAll();
    outer.addEventListener('abort', abortAll);
    for (const [index, abort] of aborts.entries()) this.recalls.set(fileIds[index] as bigint, { abort, batch });
    return {
      signals: aborts.map((abort) => abort.signal),
      signal: batch.abort.signal,
      end: () => {
        outer.removeEventListener('abort', abortAll);
        for (const fileId of fileIds) this.recalls.delete(fileId);
      },
    };
  }

  get isEmpty(): boolean {
    return this.recalls.size === 0;
  }

  stop(fileIds: readonly bigint[]): void {
    for (const fileId of fileIds) {
      const recall = this.recalls.get(fileId);
      if (!recall || recall.abort.signal.aborted) continue;
      const reason = new Error(
        'the recall is not to go on: nobody waits for it, what it uses is held, or its file was changed by an import',
      );
      recall.abort.abort(reason);
      if (--recall.batch.left === 0) recall.batch.abort.abort(reason);
    }
  }
}

interface BatchAbort {
  abort: AbortController;
  /** Recalls that have not been stopped. */
  left: number;
}
