/** Reads of the database that many readers of events want at the same time. */
import { setImmediate as nextTurn } from 'node:timers/promises';

/** Each read serves all readers that ask for it before it begins. A read that has begun may have seen less than a reader that asks later. */
export class SharedReads {
  private readonly waiting = new Map<string, Promise<unknown>>();
  private readonly running = new Map<string, Promise<unknown>>();

  /** @param key names all that the result depends on; undefined for a reader that shares nothing */
  read<Result>(key: string | undefined, ask: () => Promise<Result>): Promise<Result> {
    if (key === undefined) return ask();
    const known = this.waiting.get(key) ?? this.begin(key, ask);
    return known as Promise<Result>;
  }

  private begin(key: string, ask: () => Promise<unknown>): Promise<unknown> {
    const before = this.running.get(key)?.catch(() => {}) ?? nextTurn(); // its own readers get its error
    const read = before.then(() => {
      this.waiting.delete(key);
      this.running.set(key, read);
      return ask();
    });
    this.waiting.set(key, read);
    const end = () => {
      if (this.running.get(key) === read) this.running.delete(key);
    };
    read.then(end, end);
    return read;
  }
}
