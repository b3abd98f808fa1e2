/** The recalls that this process runs, so that single ones can be stopped. */
export class RunningRecalls {
  private readonly aborts = new Map<bigint, AbortController>();

  /** A signal that aborts with `outer`, and when the recall is stopped by itself, be it before this call. */
  begin(fileId: bigint, outer: AbortSignal): AbortSignal {
    return AbortSignal.any([this.abortOf(fileId).signal, outer]);
  }

  /** A signal that aborts with `outer`, and when all of the recalls have been stopped: nothing is left to mount for. */
  beginMount(fileIds: readonly bigint[], outer: AbortSignal): AbortSignal {
    const needless = new AbortController();
    let left = fileIds.length;
    for (const fileId of fileIds) {
      const { signal } = this.abortOf(fileId);
      signal.addEventListener('abort', () => --left === 0 && needless.abort(signal.reason), { once: true });
    }
    return AbortSignal.any([needless.signal, outer]);
  }

  private abortOf(fileId: bigint): AbortController {
    const abort = this.aborts.get(fileId) ?? new AbortController();
    this.aborts.set(fileId, abort);
    return abort;
  }

  end(fileId: bigint): void {
    this.aborts.delete(fileId);
  }

  get isEmpty(): boolean {
    return this.aborts.size === 0;
  }

  stop(fileIds: readonly bigint[]): void {
    for (const fileId of fileIds)
      this.aborts.get(fileId)?.abort(new Error('nobody waits for this file any more, or it is held'));
  }
}
