/** The contract of staging libraries, which schedule their own drives and stage files to disk on request. */
import { TapeError } from '../core/errors.js';
import { LibraryError } from './drive-library.js';

/** Limits in seconds for the retry time that a library requests. */
const RETRY_SECONDS = { least: 1, most: 3600 };

/** Reports that the library is busy and has said when to retry. */
export class RetryLaterError extends LibraryError {
  readonly retryAfterSeconds: number;

  constructor(message: string, retryAfterSeconds: number, options?: ErrorOptions) {
    super('TRANSIENT', message, options);
    this.retryAfterSeconds = Math.min(Math.max(retryAfterSeconds, RETRY_SECONDS.least), RETRY_SECONDS.most);
  }
}

/** Reports that the file was replaced. Bytes read before are invalid, and the read must restart. */
export class ChangedError extends TapeError {
  constructor(message: string, options?: ErrorOptions) {
    super('TRANSIENT', message, options);
  }
}

/**
 * Reports that the file is no longer on the library's disk. The file must be staged again, which does not count as a
 * failure.
 */
export class NotReadyError extends LibraryError {
  constructor(message: string, options?: ErrorOptions) {
    super('TRANSIENT', message, options);
  }
}

export interface StagedFile {
  /** Logical path, which the library's settings map to a path in the library. */
  path: string;
  /**
   * Volume name, for libraries that need a volume. A volume may stand for the whole library, with unknown positions.
   */
  volume: string;
  position: bigint | null;
  size: bigint;
  /** `adler32:…`, if the reader compares the checksum, so that the library need not compare it. */
  checksum?: string | null | undefined;
}

/**
 * State of a file at the library:
 * - `waiting`: the file will arrive;
 * - `ready`: the file is readable until `until`, or until it is released or evicted if the library reports no time;
 * - `failed`: the file will not arrive; the class of the TapeError says whether a retry can help;
 * - `forgotten`: the library does not know the stage request, which must be repeated.
 */
export type FileState =
  | { path: string; state: 'waiting' }
  | { path: string; state: 'ready'; until: Date | null }
  | { path: string; state: 'failed'; error: TapeError }
  | { path: string; state: 'forgotten' };

export interface Demand {
  /** Id of the stage request at the library; null if the library has no such ids and knows files by path. */
  id: string | null;
  files: readonly StagedFile[];
}

/** A released file that is still on the library's disk, or will arrive there. */
export interface RetainedFile {
  path: string;
  /** When the library evicts the file. Null if the time is unknown, so that the release is repeated later. */
  until: Date | null;
}

/**
 * Version of a file across several reads. The caller passes an empty object first. The first read fills in the version,
 * and later reads reject any other version. The members stay absent if the library cannot recognise a version later.
 */
export interface ReadVersion {
  /** Strong entity tag. */
  tag?: string | undefined;
  /** Last-Modified header, if it is a strong validator. */
  modified?: string | undefined;
  /** Digest of the whole file, with the name of the algorithm. */
  digest?: string | undefined;
  /** Condition for the next read: Last-Modified, if the file has no entity tag. */
  ifRange?: string | undefined;
  /** Size of the file at the library. A different size proves another version; an equal size proves nothing. */
  size?: bigint | undefined;
}

/** Returns whether a later read would reveal another version. */
export function hasValidator({ tag, modified, digest }: ReadVersion): boolean {
  return (tag ?? modified ?? digest) !== undefined;
}

/** Price of a stage request: the sum of `parts`. */
export interface Price {
  /** Currency code of three letters, such as `EUR`. */
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
 * Terms of a library. Terms depend only on the settings, so any host can compute them without a call to the library.
 */
export interface StagingTerms {
  /** Price for staging files that are not on the library's disk; absent if staging is free. */
  price?(files: { count: number; bytes: bigint }): Price;
  /** Seconds until a requested file is readable; absent if unknown. Measured times take precedence. */
  waitSeconds?: { least: number; most: number };
  /** Prefixes of the library's paths; absent if the library may contain any path. */
  prefixes?: readonly string[];
}

/** Numbers that a provider bills. */
export interface Usage {
  /** Number of requests sent, including requests without a response. */
  requests: number;
  /** Number of bytes of file contents received. */
  bytes: bigint;
}

export function countUsage(usage: Map<string, Usage>, request: string, more: Partial<Usage>): void {
  const { requests, bytes } = usage.get(request) ?? { requests: 0, bytes: 0n };
  usage.set(request, { requests: requests + (more.requests ?? 0), bytes: bytes + (more.bytes ?? 0n) });
}

/**
 * The contract of a staging library. Test suite: test/support/staging-library.ts.
 *
 * A library knows paths, stage requests and bytes, but no Tapegate requests, users or database. A library keeps no
 * state between calls: any process may make the next call, even after a crash. Methods may run concurrently.
 *
 * Results contain the paths that the caller passed. A file without a known state is missing from the result. A failure
 * of one file is reported as its state. A failure of the whole call is a LibraryError, or a RetryLaterError if the
 * library says when to retry. The error's class is PERMANENT or POLICY if an operator must act first, for example on
 * permissions or a certificate. An aborted call rejects with the signal's reason. Any other error is a bug of the
 * library.
 */
export interface StagingLibrary {
  readonly limits: { stage: number; poll: number; release: number };

  /** Seconds between two polls of a stage request, unless the library says when to retry. */
  readonly pollSeconds: { least: number; most: number };

  /** The library's own time limits in seconds, for a call and for the next bytes of a read. */
  readonly ownSeconds?: { call?: number; read?: number };

  /**
   * Requests files. Repeating a call is safe: if the response to an earlier call was lost, this call finds its stage
   * request again.
   * @returns the id of the stage request, and files that are ready or refused at once
   */
  stage(files: readonly StagedFile[], signal: AbortSignal): Promise<{ id: string | null; known: FileState[] }>;

  /** @param demand the stage request of one earlier `stage` call, with all or some of its files */
  poll(demand: Demand, signal: AbortSignal): Promise<FileState[]>;

  /**
   * Reads the bytes of a ready file in order, starting at `from`. Each chunk belongs to the reader, which may stop
   * early.
   * @param version the version that earlier reads of this file recorded
   * @throws TapeError PERMANENT if there is no such file; NotReadyError if the file is no longer on disk
   * @throws ChangedError if the file has another version. The engine reads a file without checksum and version only
   * from 0.
   */
  read(file: StagedFile, from: bigint, signal: AbortSignal, version?: ReadVersion): AsyncIterable<Uint8Array>;

  /**
   * Releases files, even before they arrive. Repeating a call is safe. Unknown files count as released.
   * @returns files that stay on disk or will still arrive
   */
  release(demand: Demand, signal: AbortSignal): Promise<RetainedFile[]>;

  /**
   * Usage since the caller last cleared this map, by the request's name in the provider's documentation. Absent if the
   * library does not count requests.
   */
  readonly usage?: Map<string, Usage>;
}
