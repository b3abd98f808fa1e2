/** Values that were found a moment ago, by keys from outside: bounded in time and number. */

const MAX_ENTRIES = 10_000;

export class Recent<Value> {
  private readonly keptMs: number;
  private readonly entries = new Map<string, { until: number; value: Promise<Value> }>();

  constructor(keptMs: number) {
    this.keptMs = keptMs;
  }

  /** A value that cannot be had is asked for again by whoever comes next. */
  async get(key: string, load: () => Promise<Value>): Promise<Value> {
    const known = this.entries.get(key);
    if (known && performance.now() < known.until) return await known.value;
    if (this.entries.size >= MAX_ENTRIES) this.entries.clear();
    const entry = { until: performance.now() + this.keptMs, value: load() };
    this.entries.set(key, entry);
    try {
      return await entry.value;
    } catch (error) {
      if (this.entries.get(key) === entry) this.entries.delete(key);
      throw error;
    }
  }

  clear(): void {
    this.entries.clear();
  }
}
