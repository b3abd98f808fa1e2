/**
 * The pace of one event stream. graphql-sse takes results as fast as they come and keeps those that the client has not
 * read yet; the flow makes it wait, so that a slow reader costs a bounded number of messages, and loses none.
 */
export class Flow {
  /** Operations that have begun and not yet told that they are complete. */
  private readonly operations = new Set<unknown>();
  /** No message is sent any more. */
  isClosed = false;
  private unsent = 0;
  private waiters: (() => void)[] = [];

  begin(operation: unknown): void {
    this.operations.add(operation);
  }

  end(operation: unknown): void {
    this.operations.delete(operation);
    this.wake();
  }

  /** Returns when one more message may wait to be sent. */
  async take(): Promise<void> {
    await this.until(() => this.unsent < MAX_UNSENT);
    this.unsent++;
  }

  /** A message of an operation has gone out. */
  sent(): void {
    this.unsent--;
    this.wake();
  }

  /** Returns when no operation goes on, and all that they said is sent. */
  async idle(): Promise<void> {
    await this.until(() => this.operations.size === 0 && this.unsent === 0);
  }

  /** Lets go whoever waits. */
  close(): void {
    this.isClosed = true;
    this.wake();
  }

  private async until(condition: () => boolean): Promise<void> {
    while (!this.isClosed && !condition()) {
      await new Promise<void>((resolve) => this.waiters.push(resolve));
    }
  }

  private wake(): void {
    for (const resolve of this.waiters.splice(0)) resolve();
  }
}

/** Results have some hundred bytes. */
const MAX_UNSENT = 100;
