/** The recalls that this process runs, so that single ones can be stopped. */
export class RunningRecalls {
  private readonly aborts = new Map<bigint, AbortController>();

  /** A signal that aborts with `outer`, and when the recall is stopped by itself. */
  begin(fileId: bigint, outer: AbortSignal): AbortSignal {
    const abort = new AbortController();
    this.aborts.set(fileId, abort);
    return AbortSignal.any([abort.signal, outer]);
  }

  end(fileId: bigint): void {
    this.aborts.delete(fileId);
  }

  get isEmpty(): boolean {
    return this.aborts.size === 0;
  }

  stop(fileIds: readonly bigint[]): void {
    for (const fileId of fileIds) this.aborts.get(fileId)?.abort(new Error('nobody waits for this file any more'));
  }
}
