/** Values that were found a moment ago, by keys from outside: bounded in time and number. */

const MAX_ENTRIES = 10_000;

export class Recent<Value> {
  private readonly keptMs: number;
  private readonly entries = new Map<string, { until: number; value: Promise<Value> }>();

  private clearings = 0;

  constructor(keptMs: number) {
    this.keptMs = keptMs;
  }

  /** A value that cannot be had is asked for again by whoever comes next; one that is cleared while it is looked for, at once. */
  async get(key: string, load: () => Promise<Value>): Promise<Value> {
    for (;;) {
      const begun = this.clearings;
      const value = await this.find(key, load);
      if (begun === this.clearings) return value;
    }
  }

  private async find(key: string, load: () => Promise<Value>): Promise<Value> {
    const known = this.entries.get(key);
    if (known && performance.now() < known.until) return await known.value;
    this.forgetOld();
    if (this.entries.size >= MAX_ENTRIES) this.entries.clear();
    this.entries.delete(key); // its place is that of its age
    const entry = { until: performance.now() + this.keptMs, value: load() };
    this.entries.set(key, entry);
    try {
      return await entry.value;
    } catch (error) {
      if (this.entries.get(key) === entry) this.entries.delete(key);
      throw error;
    }
  }

  /** They are in order of their age. */
  private forgetOld(): void {
    for (const [key, { until }] of this.entries) {
      if (performance.now() < until) return;
      this.entries.delete(key);
    }
  }

  clear(): void {
    this.clearings += 1;
    this.entries.clear();
  }
}
