/** What waits for one reader: bounded, however slow the reader is. */
export class Queue<Item> {
  /** Something came when the queue was full: it and what follows are not in here. */
  hasOverflowed = false;
  private readonly waiting: Item[] = [];
  private readonly limit: number;
  private isStopped = false;
  private wake = () => {};

  constructor(limit: number) {
    this.limit = limit;
  }

  push(item: Item): void {
    if (this.hasOverflowed || this.isStopped) return;
    if (this.waiting.length === this.limit) this.hasOverflowed = true;
    else this.waiting.push(item);
    this.wake();
  }

  /** As if too much had come. */
  overflow(): void {
    this.hasOverflowed = true;
    this.wake();
  }

  /** What waits is still given; then the items end. */
  stop(): void {
    this.isStopped = true;
    this.wake();
  }

  /** In order, until the queue is stopped or, having overflowed, is empty. For one reader. */
  async *items(): AsyncGenerator<Item> {
    for (;;) {
      const next = this.waiting.shift();
      if (next !== undefined) yield next;
      else if (this.isStopped || this.hasOverflowed) return;
      else {
        await new Promise<void>((resolve) => {
          this.wake = resolve;
        });
      }
    }
  }
}
