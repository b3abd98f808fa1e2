/** A bell. What rings between looking for work and waiting is not lost: `count` is read before the look. */
export class Waker {
  /** Rings so far. */
  count = 0;
  private readonly waiters = new Set<() => void>();

  ring(): void {
    this.count++;
    for (const wake of this.waiters) wake();
  }

  /** Returns when the bell has rung since `seen`, after the time-out, or when the signal aborts. */
  async wait(seen: number, timeoutMs: number, signal: AbortSignal): Promise<void> {
    if (this.count !== seen || signal.aborted) return;
    await new Promise<void>((resolve) => {
      const done = () => {
        clearTimeout(timer);
        signal.removeEventListener('abort', done);
        this.waiters.delete(done);
        resolve();
      };
      const timer = setTimeout(done, timeoutMs);
      signal.addEventListener('abort', done);
      this.waiters.add(done);
    });
  }
}
