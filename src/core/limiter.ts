/**
 * Limits concurrent work. Admits waiting calls round-robin by key. Calls with the same key are admitted in order of
 * arrival.
 */

interface WaitingCall {
  cost: number;
  admit(): void;
}

export class Limiter {
  private readonly most: number;
  private taken = 0;
  private holders = 0;
  /** Waiting calls, grouped by key. The first call of the first group is admitted next. */
  private readonly lines = new Map<string, Set<WaitingCall>>();

  /**
   * @param most the maximum total cost of running calls, for example in bytes. A call whose cost exceeds `most` runs
   * alone
   */
  constructor(most: number) {
    this.most = most;
  }

  /**
   * Waits until there is capacity for a call.
   * @param late after `late.ms` milliseconds, the call is rejected with `late.error`; by default, the wait is unlimited
   * @returns a function that releases the call's capacity; a second call of this function has no effect
   */
  async take({ cost = 1, key = '', late }: { cost?: number; key?: string; late?: Late } = {}): Promise<() => void> {
    if (this.lines.size === 0 && this.hasRoom(cost)) this.add(cost);
    else await this.wait(key, cost, late);
    let isTaken = true;
    return () => {
      if (!isTaken) return;
      isTaken = false;
      this.remove(cost);
      this.admitNext();
    };
  }

  private add(cost: number): void {
    this.taken += cost;
    this.holders++;
  }

  /**
   * Subtracts a finished call's cost from the total. Sets the total to 0 when no call is running, so that rounding
   * errors cannot add up.
   */
  private remove(cost: number): void {
    this.holders--;
    this.taken = this.holders === 0 ? 0 : this.taken - cost;
  }

  private hasRoom(cost: number): boolean {
    return this.holders === 0 || this.taken + cost <= this.most;
  }

  private wait(key: string, cost: number, late: Late | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const line = this.lines.get(key) ?? new Set();
      this.lines.set(key, line);
      const admit = () => {
        clearTimeout(timer);
        this.add(cost);
        resolve();
      };
      const waiting = { cost, admit };
      line.add(waiting);
      const giveUp = ({ error }: Late) => {
        line.delete(waiting);
        if (line.size === 0 && this.lines.get(key) === line) this.lines.delete(key);
        reject(error());
        this.admitNext(); // the next waiting call might have a lower cost, so that there is capacity for it
      };
      const timer = late && setTimeout(giveUp, late.ms, late);
    });
  }

  private admitNext(): void {
    for (let [next] = this.lines; next; [next] = this.lines) {
      const [key, line] = next;
      const [first] = line;
      if (first && !this.hasRoom(first.cost)) return;
      this.lines.delete(key);
      if (first) line.delete(first);
      if (line.size > 0) this.lines.set(key, line);
      first?.admit();
    }
  }
}

interface Late {
  ms: number;
  error(): Error;
}
