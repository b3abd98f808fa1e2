/**
 * Many who watch the same: one look a second for all of them, none while nobody does. Each is told what has changed since it was told last,
 * all at once: who is slow is told less often, and keeps little.
 */
import { setTimeout as sleep } from 'node:timers/promises';

const EVERY_MS = 1000;
/** A look that takes long is done less often. */
const REST_TIMES = 10;
/** Kept for one slow reader; beyond, it is told that it is to read all anew. */
const MOST_KEPT = 1000;

/** What is looked at. */
export interface Source<Item> {
  /** Once somebody watches. @returns what ends it when nobody does */
  begin(): () => void;
  /** @returns what has changed since the look before, by what it is known by; undefined where that cannot be told, as at first */
  look(): Promise<ReadonlyMap<string | number, Item> | undefined>;
  onError(error: unknown): void;
}

/** What somebody is told. */
export interface Told<Item> {
  items: Item[];
  /** Others may have changed as well, as before the first look. */
  hasMore: boolean;
}

interface Watcher<Item> {
  kept: Map<string | number, Item>;
  hasMore: boolean;
  wake(): void;
}

export class Watchers<Item> {
  private readonly source: Source<Item>;
  private readonly watchers = new Set<Watcher<Item>>();
  private isRunning = false;
  private hasLooked = false;

  constructor(source: Source<Item>) {
    this.source = source;
  }

  /** At first what is told is that there may be more: whoever reads all then misses nothing of what comes. */
  async *watch(isFor: (item: Item) => boolean, signal: AbortSignal): AsyncGenerator<Told<Item>> {
    const watcher: Watcher<Item> = { kept: new Map(), hasMore: this.hasLooked, wake: () => {} };
    this.watchers.add(watcher);
    if (!this.isRunning) void this.run();
    const wake = () => watcher.wake();
    signal.addEventListener('abort', wake);
    try {
      while (!signal.aborted) {
        const told = { items: [...watcher.kept.values()].filter(isFor), hasMore: watcher.hasMore };
        watcher.kept.clear();
        watcher.hasMore = false;
        if (told.hasMore || told.items.length > 0) {
          yield told;
          continue;
        }
        await new Promise<void>((resolve) => {
          watcher.wake = resolve;
        });
      }
    } finally {
      signal.removeEventListener('abort', wake);
      this.watchers.delete(watcher);
    }
  }

  private async run(): Promise<void> {
    this.isRunning = true;
    const end = this.source.begin();
    while (this.watchers.size > 0) {
      const startedAt = performance.now();
      try {
        this.tell(await this.source.look());
        this.hasLooked = true;
      } catch (error) {
        this.source.onError(error);
      }
      const tookMs = performance.now() - startedAt;
      await sleep(Math.max(EVERY_MS, tookMs * REST_TIMES), undefined, { ref: false });
    }
    this.hasLooked = false;
    this.isRunning = false;
    end();
  }

  private tell(changed: ReadonlyMap<string | number, Item> | undefined): void {
    for (const watcher of this.watchers) {
      for (const [key, item] of changed ?? []) watcher.kept.set(key, item);
      if (!changed || watcher.kept.size > MOST_KEPT) {
        watcher.kept.clear();
        watcher.hasMore = true;
      }
      if (watcher.hasMore || watcher.kept.size > 0) watcher.wake();
    }
  }
}
