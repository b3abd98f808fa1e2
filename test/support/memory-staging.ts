/**
 * A staging library in memory, on a simulated tape system. Tests can cause delays, errors, lost answers and wrong
 * bytes.
 * The tape system logs all calls.
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
  /** Whether demands have ids, and each demand holds its own files. Without ids, all callers share one demand. */
  ids?: boolean;
  /**
   * Whether a file leaves the disk when no demand holds the file. Otherwise a file leaves the disk only after
   * `lifetimeMs`.
   */
  releases?: boolean;
  /** Time that a file stays on disk. If the time is null, a file stays until it is released. */
  lifetimeMs?: number | null;
}

/** Key of the only demand in a system without ids. */
const EVERYBODY = 'everybody';
const CHUNK_BYTES = 64 * 1024;

/** Simulated tape system. All processes that use the system see the same state. */
export class MemoryTapeSystem {
  /** Bytes on tape, by path. */
  readonly tape = new Map<string, Uint8Array>();
  /** Time when a file leaves the disk, by path. */
  readonly disk = new Map<string, Date | null>();
  /** Paths of files that a demand holds, by demand id. */
  readonly demands = new Map<string, Set<string>>();
  readonly spoiled = new Map<string, 'lost' | 'unavailable'>();
  /** Calls in the order of their start. */
  readonly log: { what: Call | 'read'; paths: string[]; id?: string | null; from?: bigint }[] = [];
  /** Hook that runs before each call. The hook may wait or throw an error. */
  onCall: (what: Call, paths: readonly string[]) => Promise<void> = async () => {};
  /** Hook that runs before each read. The hook may wait, throw an error, or return other bytes of the whole file. */
  // biome-ignore lint/suspicious/noConfusingVoidType: most hooks only wait or throw
  onRead: (path: string, bytes: Uint8Array) => Promise<Uint8Array | void> = async () => {};
  /**
   * Hook that runs after a stage call has recorded its demand. Calling `arrive` in the hook simulates tapes without
   * delay.
   */
  onStaged: (paths: readonly string[]) => void = () => {};
  /** Number of active reads. */
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

  /** Writes a file to tape, and clears an earlier `spoil`. */
  put(path: string, bytes: Uint8Array): void {
    this.tape.set(path, Uint8Array.from(bytes));
    this.spoiled.delete(path);
  }

  /** Copies wanted files from tape to disk, except spoiled files. A file is wanted if a demand holds the file. */
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

  /** Removes a file from disk and from all demands. */
  evict(path: string): void {
    this.disk.delete(path);
    for (const wanted of this.demands.values()) wanted.delete(path);
  }

  /** Deletes all demands. Files on disk stay on disk. */
  forget(): void {
    this.demands.clear();
  }

  /** Makes the next call of this kind take effect without an answer. */
  lose(call: Call): void {
    this.lost.add(call);
  }

  /** Makes the next call fail with `RetryLaterError`, without any effect. */
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

  /** Logs a call, runs the hooks, and simulates a busy system or a lost answer. */
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
          yield Uint8Array.prototype.slice.call(bytes, start, start + CHUNK_BYTES); // Buffer.slice would share memory
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
