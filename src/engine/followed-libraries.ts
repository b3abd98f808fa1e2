/**
 * Runs work for each library except the one in the data directory. Starts and stops work when libraries are added,
 * changed or removed.
 */
import { setMaxListeners } from 'node:events';
import { logFailure, SettingsError } from '../core/errors.js';
import type { Context } from '../domain/context.js';
import { FIRST_LIBRARY, type Library, readLibraries } from '../domain/libraries/libraries.js';
import { checkLibrary } from '../tape/kinds.js';

const FOLLOW_MS = 5000;
const UNUSED_MS = 30_000;

interface FollowOptions {
  /** The type of libraries for which work runs: libraries with drives, or staging libraries. Default: all libraries. */
  contract?: Library['contract'];
  /** Returns a key computed from the library's settings. When the key changes, the library's work is restarted. */
  keyOf: (library: Library) => string;
  stop: AbortSignal;
  /**
   * Starts a library's work.
   * @param stop a signal that aborts when the library is changed or removed, or when `FollowOptions.stop` aborts
   * @returns a promise that settles when all of the library's work has ended
   */
  work: (library: Library, stop: AbortSignal) => Promise<unknown>;
}

export class FollowedLibraries {
  private readonly ctx: Context;
  private readonly options: FollowOptions;
  private readonly present = new Map<number, { key: string; stop: AbortController }>();
  /** All running work, including unfinished work for libraries that were changed or removed. */
  private readonly works = new Set<Promise<unknown>>();
  /**
   * Settings of unsupported libraries, by library id. The settings are stored so that each unsupported library is
   * logged only once.
   */
  private readonly refused = new Map<number, string>();
  private count = 0;

  constructor(ctx: Context, options: FollowOptions) {
    this.ctx = ctx;
    this.options = options;
  }

  /** Starts work for new libraries, and stops work for changed and removed libraries. Called periodically. */
  async follow(): Promise<void> {
    const { contract, keyOf, stop } = this.options;
    const all = (await readLibraries(this.ctx)).filter(({ id }) => id !== FIRST_LIBRARY);
    this.count = all.length;
    const libraries = all.filter((each) => (contract ?? each.contract) === each.contract && this.isUsable(each));
    const keys = new Map(libraries.map((library) => [library.id, keyOf(library)]));
    for (const [id, { key, stop: stopOne }] of this.present) {
      if (keys.get(id) === key) continue;
      this.present.delete(id);
      stopOne.abort();
    }
    for (const library of libraries) if (!this.present.has(library.id) && !stop.aborted) this.begin(library);
  }

  /**
   * Maximum milliseconds until the next call of `follow`. Without libraries, there is no work that could fail and must be
   * started again, and new libraries send a notification.
   */
  get followMs(): number {
    return this.count === 0 ? UNUSED_MS : FOLLOW_MS;
  }

  get ended(): Promise<unknown> {
    return Promise.all(this.works);
  }

  private begin(library: Library): void {
    const { id, name } = library;
    const own = { key: this.options.keyOf(library), stop: new AbortController() };
    const stop = AbortSignal.any([this.options.stop, own.stop.signal]);
    setMaxListeners(0, stop);
    this.present.set(id, own);
    const work = this.options
      .work(library, stop)
      .catch((error: unknown) => {
        logFailure(this.ctx.log, error, `library ${name}`);
        // the next periodic call starts the library's work again
        if (this.present.get(id) === own) this.present.delete(id);
      })
      .finally(() => this.works.delete(work));
    this.works.add(work);
  }

  private isUsable({ id, name, kind, settings }: Library): boolean {
    const version = JSON.stringify([kind, settings]);
    if (this.refused.get(id) === version) return false;
    try {
      checkLibrary(kind, settings);
      return true;
    } catch (error) {
      if (!(error instanceof SettingsError)) throw error;
      this.refused.set(id, version);
      this.ctx.log.error({ library: name }, `cannot use library ${name}: ${error.message}`);
      return false;
    }
  }
}

/** Returns a key that changes when the library's settings or its number of drives change. */
export function readingKey({ kind, settings, drives }: Library): string {
  return JSON.stringify([kind, settings, drives]);
}

/** Returns a key that changes when the library's settings, or the limits on its staged files, change. */
export function stagingKey({ kind, settings, depthFiles, depthBytes }: Library): string {
  return JSON.stringify([kind, settings, depthFiles, String(depthBytes)]);
}
