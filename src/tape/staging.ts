/** Staging libraries, which schedule their own drives, and stage files to their disks on request. */
import { TapeError } from '../core/errors.js';
import { LibraryError } from './drive-library.js';

/** Shortest and longest retry delay, in seconds, that Tapegate accepts from a library. */
const RETRY_SECONDS = { least: 1, most: 3600 };

/** Reports that a busy library has asked for a retry after some time. */
export class RetryLaterError extends LibraryError {
  readonly retryAfterSeconds: number;

  constructor(message: string, retryAfterSeconds: number, options?: ErrorOptions) {
    super('TRANSIENT', message, options);
    this.retryAfterSeconds = Math.min(Math.max(retryAfterSeconds, RETRY_SECONDS.least), RETRY_SECONDS.most);
  }
}

/**
 * Reports that a file was replaced in the library while it was read. The reader must discard the bytes and start again.
 */
export class ChangedError extends TapeError {
  constructor(message: string, options?: ErrorOptions) {
    super('TRANSIENT', message, options);
  }
}

/**
 * Reports that a file is no longer on the library's disk. The engine stages the file again, and does not count a
 * NotReadyError as a failure of the file.
 */
export class NotReadyError extends LibraryError {
  constructor(message: string, options?: ErrorOptions) {
    super('TRANSIENT', message, options);
  }
}

export interface StagedFile {
  path: string;
  /** Name of the file's volume, for libraries that need the name. */
  volume: string;
  position: bigint | null;
  size: bigint;
  /**
   * Expected checksum of the bytes, such as `adler32:…`. Present only if the caller verifies the checksum, so that the
   * library need not do so.
   */
  checksum?: string | null | undefined;
}

/**
 * The state of a file in the library. `waiting` means that the file will arrive. `ready` means that the file is
 * readable until `until`. If `until` is null, the file is readable until it is released or evicted. `failed` means that
 * the file will not arrive. The class of the TapeError shows whether a retry can help. `forgotten` means that the
 * library no longer knows the stage request, so the engine must send the request again.
 */
export type FileState =
  | { path: string; state: 'waiting' }
  | { path: string; state: 'ready'; until: Date | null }
  | { path: string; state: 'failed'; error: TapeError }
  | { path: string; state: 'forgotten' };

export interface Demand {
  /** The library's id for the stage request; null if the library identifies files by their paths alone. */
  id: string | null;
  files: readonly StagedFile[];
}

/** A released file that is still on the library's disk, or will arrive there later. */
export interface RetainedFile {
  path: string;
  /**
   * Time at which the library evicts the file from its disk. If the time is unknown, `until` is null, and the engine
   * repeats the release later.
   */
  until: Date | null;
}

/**
 * A file's version. The caller passes an empty object to the first read, which records the file's version in the
 * object. Later reads fail if the version has changed. The object stays empty if the library cannot identify a file's
 * version.
 */
export interface ReadVersion {
  tag?: string | undefined;
  /** Value of the header Last-Modified, if it is a strong validator. */
  modified?: string | undefined;
  /** Digest of the whole file, prefixed with the name of the algorithm. */
  digest?: string | undefined;
  /**
   * Value of the header If-Range for the next read: the file's Last-Modified date. Absent if the file has an entity
   * tag.
   */
  ifRange?: string | undefined;
  /** Size of the file in the library, in bytes. */
  size?: bigint | undefined;
}

/** Returns whether a later read can detect that the version has changed. */
export function hasValidator({ tag, modified, digest }: ReadVersion): boolean {
  return (tag ?? modified ?? digest) !== undefined;
}

/** Price of a stage request, which is the sum of the amounts in `parts`. */
export interface Price {
  currency: string;
  parts: readonly Charge[];
}

export interface Charge {
  /** Amount in millionths of the currency, rounded up. */
  micros: bigint;
  /** Text that follows the amount, such as `for 200 restore requests`. */
  what: string;
}

/**
 * Price, wait and prefixes of a staging library. These values depend only on the settings, so any host can compute them
 * without calling the library.
 */
export interface StagingTerms {
  /** Price for staging files that are not on the library's disk; absent if staging is free. */
  price?(files: { count: number; bytes: bigint }): Price;
  /**
   * Expected seconds until a requested file is readable; absent if unknown. Estimates use measured times instead as
   * soon as Tapegate has measured any.
   */
  waitSeconds?: { least: number; most: number };
  /** Catalogue prefixes of the files that the library can contain; absent if it can contain any file. */
  prefixes?: readonly string[];
}

/** Numbers of requests and bytes for which a provider might charge. */
export interface Usage {
  /** Number of requests, including requests that got no response. */
  requests: number;
  /** Bytes of file content. */
  bytes: bigint;
}

export function countUsage(usage: Map<string, Usage>, request: string, more: Partial<Usage>): void {
  const { requests, bytes } = usage.get(request) ?? { requests: 0, bytes: 0n };
  usage.set(request, { requests: requests + (more.requests ?? 0), bytes: bytes + (more.bytes ?? 0n) });
}

/**
 * The contract of a staging library. Test suite: test/support/staging-library.ts.
 *
 * A library knows paths, stage requests and bytes, but not Tapegate's requests, users or database. A library does not
 * store state between calls: any process can make the next call, even after a crash. Methods can run concurrently.
 * Results identify files by the paths that the caller passed. If a file's state is unknown, the result omits the file.
 *
 * If only one file is affected by an error, the library reports the error as the file's state. If the whole call fails,
 * the library throws a LibraryError, or a RetryLaterError if a busy server has asked for a retry. The error's class is
 * PERMANENT or POLICY if an operator must fix the cause, for example by renewing a certificate. If the signal aborts, a
 * call rejects with the signal's reason. Any other error is a bug in the library.
 */
export interface StagingLibrary {
  readonly limits: { stage: number; poll: number; release: number };

  /**
   * Shortest and longest interval between two polls of a stage request, in seconds. If the library asks for a different
   * delay before the next poll, the engine uses the library's delay.
   */
  readonly pollSeconds: { least: number; most: number };

  /** The library's own time limits, in seconds: one for each call, and one for each wait for bytes during a read. */
  readonly ownSeconds?: { call?: number; read?: number };

  /**
   * Asks the library to stage files to its disk. Repeating a call is safe: if the first response was lost, the repeated
   * call finds the same stage request.
   * @returns the id of the stage request; and `known`, the states of the files that are already ready or have already
   * failed
   */
  stage(files: readonly StagedFile[], signal: AbortSignal): Promise<{ id: string | null; known: FileState[] }>;

  /**
   * Returns the states of requested files.
   * @param demand a stage request from an earlier `stage` call, with all or some of its files
   */
  poll(demand: Demand, signal: AbortSignal): Promise<FileState[]>;

  /**
   * Reads the bytes of a ready file in order, starting at `from`. The reader owns each chunk, can reuse its memory, and
   * can stop early. If a file has neither a checksum nor a recorded version, the engine always reads it from the first
   * byte.
   * @param version the file's version, as recorded by the first read
   * @throws TapeError PERMANENT if the file does not exist
   * @throws NotReadyError if the file is no longer on the library's disk
   * @throws ChangedError if the file's version has changed
   */
  read(file: StagedFile, from: bigint, signal: AbortSignal, version?: ReadVersion): AsyncIterable<Uint8Array>;

  /**
   * Releases files. The caller can release files even before the library has staged them. Repeating a call is safe.
   * Unknown files count as released.
   * @returns the released files that are still on the library's disk, or will arrive there later
   */
  release(demand: Demand, signal: AbortSignal): Promise<RetainedFile[]>;

  /**
   * Numbers of requests and bytes, keyed by the provider's name for the request. The caller clears the map after
   * reading it. The map is absent if the library does not count requests.
   */
  readonly usage?: Map<string, Usage>;
}
