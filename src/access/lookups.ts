/**
 * Questions to the database of callers who are not known yet: few at once, whoever asks how much, so that its connections are there for
 * those who are known. Addresses have their turns one after another: who shows many false tokens waits behind its own.
 */

const AT_ONCE = 8;

export class Lookups {
  private readonly lines = new Map<string, (() => void)[]>();
  private count = 0;

  /** @param key as whom the question counts: an address, say */
  async ask<Value>(key: string, question: () => Promise<Value>): Promise<Value> {
    if (this.count >= AT_ONCE) await this.wait(key);
    else this.count++;
    try {
      return await question();
    } finally {
      if (!this.wakeNext()) this.count--;
    }
  }

  private async wait(key: string): Promise<void> {
    await new Promise<void>((resolve) => {
      const line = this.lines.get(key);
      if (line) line.push(resolve);
      else this.lines.set(key, [resolve]);
    });
  }

  /** Its place goes to the first of the line whose turn it is, which comes last then. @returns false where nobody waits */
  private wakeNext(): boolean {
    const [next] = this.lines;
    if (!next) return false;
    const [key, line] = next;
    this.lines.delete(key);
    const wake = line.shift();
    if (line.length > 0) this.lines.set(key, line);
    wake?.();
    return true;
  }
}
