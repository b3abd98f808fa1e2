/**
 * A staging library in memory, for tests: the system behind it is at hand, with delays, faults, lost answers and wrong bytes on
 * demand, and a record of what was asked.
 */
import { TapeError } from '../../src/core/errors.js';
import { LibraryError } from '../../src/tape/drive-library.js';
import {
  type Demand,
  type FileState,
  NotReadyError,
  type RetainedFile,
  RetryLaterError,
  type StagedFile,
  type StagingLibrary,
} from '../../src/tape/staging.js';
import { untilAborted } from '../../src/tape/until-aborted.js';

type Call = 'stage' | 'poll' | 'release';

export interface MemorySystemOptions {
  /** Demands have names, and each is held for itself; without, a file is asked for or not, whoever did. */
  ids?: boolean;
  /** What nobody holds leaves the disk; without, it leaves by its lifetime alone. */
  releases?: boolean;
  /** How long a file stays on disk there; null: until it is released. */
  lifetimeMs?: number | null;
}

/** Named where the system knows no names. */
const EVERYBODY = 'everybody';
const CHUNK_BYTES = 64 * 1024;

/** The system behind: what any number of processes see of it is the same. */
export class MemoryTapeSystem {
  /** Path to bytes. */
  readonly tape = new Map<string, Uint8Array>();
  /** Path to when it leaves the disk by itself. */
  readonly disk = new Map<string, Date | null>();
  /** Who wants which paths, by the names of demands. */
  readonly demands = new Map<string, Set<string>>();
  readonly spoiled = new Map<string, 'lost' | 'unavailable'>();
  /** Calls in the order in which they began. */
  readonly log: { what: Call | 'read'; paths: string[]; id?: string | null; from?: bigint }[] = [];
  /** Before each call; may wait or throw. */
  onCall: (what: Call, paths: readonly string[]) => Promise<void> = async () => {};
  /** Before each read; may wait, throw, or give other bytes of the whole file. */
  // biome-ignore lint/suspicious/noConfusingVoidType: most hooks only wait or throw
  onRead: (path: string, bytes: Uint8Array) => Promise<Uint8Array | void> = async () => {};
  /** When a call has asked for files, before it is answered; `arrive` here makes tapes that take no time. */
  onStaged: (paths: readonly string[]) => void = () => {};
  /** How many reads have begun and not ended. */
  reads = 0;
  readonly ids: boolean;
  readonly releases: boolean;
  private readonly lifetimeMs: number | null;
  private readonly lost = new Set<Call>();
  private busySeconds: number | undefined;
  private lastDemand = 0;

  constructor({ ids = true, releases = true, lifetimeMs = null }: MemorySystemOptions = {}) {
    this.ids = ids;
    this.releases = releases;
    this.lifetimeMs = lifetimeMs;
  }

  /** On tape from now on, and right again if it was spoiled. */
  put(path: string, bytes: Uint8Array): void {
    this.tape.set(path, Uint8Array.from(bytes));
    this.spoiled.delete(path);
  }

  /** What is wanted of these, and can be had, comes to disk. */
  arrive(paths: readonly string[]): void {
    const until = this.lifetimeMs === null ? null : new Date(Date.now() + this.lifetimeMs);
    for (const path of paths) {
      if (this.isWanted(path) && this.tape.has(path) && !this.spoiled.has(path)) this.disk.set(path, until);
    }
  }

  spoil(path: string, how: 'lost' | 'unavailable'): void {
    this.spoiled.set(path, how);
    this.disk.delete(path);
  }

  /** Not on disk any more, and wanted by nobody. */
  evict(path: string): void {
    this.disk.delete(path);
    for (const wanted of this.demands.values()) wanted.delete(path);
  }

  /** Demands are known no more; what is on disk stays there. */
  forget(): void {
    this.demands.clear();
  }

  /** The next call of this kind does what it is asked, and its answer does not arrive. */
  lose(call: Call): void {
    this.lost.add(call);
  }

  /** The next call does nothing, and is told to come again. */
  busy(seconds: number): void {
    this.busySeconds = seconds;
  }

  isStaged(path: string): boolean {
    const until = this.disk.get(path);
    if (until && until.getTime() <= Date.now()) this.evict(path);
    return this.disk.has(path);
  }

  isWanted(path: string): boolean {
    return [...this.demands.values()].some((wanted) => wanted.has(path));
  }

  want(paths: readonly string[]): string | null {
    const id = this.ids ? `demand-${++this.lastDemand}` : EVERYBODY;
    this.demands.set(id, new Set([...(this.demands.get(id) ?? []), ...paths]));
    this.onStaged(paths);
    return this.ids ? id : null;
  }

  wantedBy(id: string | null): Set<string> | undefined {
    return this.demands.get(id ?? EVERYBODY);
  }

  /** What each call goes through. */
  async answer<T>(what: Call, files: readonly StagedFile[], id: string | null, work: () => T): Promise<T> {
    const paths = files.map(({ path }) => path);
    this.log.push(what === 'stage' ? { what, paths } : { what, paths, id });
    await this.onCall(what, paths);
    if (this.busySeconds !== undefined) {
      const seconds = this.busySeconds;
      this.busySeconds = undefined;
      throw new RetryLaterError(`the library is busy for ${seconds} s`, seconds);
    }
    const result = work();
    if (this.lost.delete(what)) throw new LibraryError('TRANSIENT', `the answer to ${what} was lost`);
    return result;
  }
}

export function createMemoryStaging(
  system: MemoryTapeSystem,
  { limits = { stage: 1000, poll: 1000, release: 1000 } } = {},
): StagingLibrary {
  return {
    limits,
    pollSeconds: { least: 0.05, most: 1 },

    async stage(files, signal) {
      signal.throwIfAborted();
      return await untilAborted(
        system.answer('stage', files, null, () => take(system, files)),
        signal,
      );
    },

    async poll({ id, files }, signal) {
      signal.throwIfAborted();
      return await untilAborted(
        system.answer('poll', files, id, () => files.map(({ path }) => look(system, id, path))),
        signal,
      );
    },

    async *read({ path }, from, signal) {
      signal.throwIfAborted();
      system.log.push({ what: 'read', paths: [path], from });
      const stored = system.tape.get(path);
      if (!stored) throw new TapeError('PERMANENT', `the library has no file ${JSON.stringify(path)}`);
      if (!system.isStaged(path)) throw new NotReadyError(`${JSON.stringify(path)} is not on disk`);
      system.reads++;
      try {
        const changed = await untilAborted(system.onRead(path, stored), signal);
        const bytes = changed instanceof Uint8Array ? changed : stored;
        for (let start = Number(from); start < bytes.length; start += CHUNK_BYTES) {
          signal.throwIfAborted();
          yield Uint8Array.prototype.slice.call(bytes, start, start + CHUNK_BYTES); // a Buffer's own would share them
        }
      } finally {
        system.reads--;
      }
    },

    async release(demand, signal) {
      signal.throwIfAborted();
      return await untilAborted(
        system.answer('release', demand.files, demand.id, () => letGo(system, demand)),
        signal,
      );
    },
  };
}

function take(system: MemoryTapeSystem, files: readonly StagedFile[]): { id: string | null; known: FileState[] } {
  const has = files.filter(({ path }) => system.tape.has(path));
  const id = system.want(has.map(({ path }) => path));
  const states = files.map(({ path }) => look(system, id, path));
  return { id, known: states.filter(({ state }) => state !== 'waiting') };
}

function look(system: MemoryTapeSystem, id: string | null, path: string): FileState {
  const how = system.spoiled.get(path);
  if (!system.tape.has(path) || how === 'lost') {
    return { path, state: 'failed', error: new TapeError('PERMANENT', `there is no ${JSON.stringify(path)} on tape`) };
  }
  if (how === 'unavailable') {
    const error = new TapeError('TRANSIENT', `${JSON.stringify(path)} cannot be had for now`);
    return { path, state: 'failed', error };
  }
  if (!system.wantedBy(id)?.has(path)) return { path, state: 'forgotten' };
  if (system.isStaged(path)) return { path, state: 'ready', until: system.disk.get(path) ?? null };
  return { path, state: system.isWanted(path) ? 'waiting' : 'forgotten' };
}

function letGo(system: MemoryTapeSystem, { id, files }: Demand): RetainedFile[] {
  const kept: RetainedFile[] = [];
  for (const { path } of files) {
    system.wantedBy(id)?.delete(path);
    if (!system.isStaged(path)) continue;
    if (!system.releases) kept.push({ path, until: system.disk.get(path) ?? null });
    else if (!system.isWanted(path)) system.disk.delete(path);
  }
  return kept;
}
