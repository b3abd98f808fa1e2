/** The contract of staging libraries, which schedule their own drives and stage files to their disk on request. */
import { TapeError } from '../core/errors.js';
import { LibraryError } from './drive-library.js';

/** Limits for a library's own retry time, in seconds. */
const RETRY_SECONDS = { least: 1, most: 3600 };

/** The library is busy, and said when to retry. */
export class RetryLaterError extends LibraryError {
  readonly retryAfterSeconds: number;

  constructor(message: string, retryAfterSeconds: number, options?: ErrorOptions) {
    super('TRANSIENT', message, options);
    this.retryAfterSeconds = Math.min(Math.max(retryAfterSeconds, RETRY_SECONDS.least), RETRY_SECONDS.most);
  }
}

/** The file was replaced: bytes read before are invalid, and the read must restart. */
export class ChangedError extends TapeError {
  constructor(message: string, options?: ErrorOptions) {
    super('TRANSIENT', message, options);
  }
}

/** The file is no longer on the library's disk: it must be staged again, which does not count as a failure. */
export class NotReadyError extends LibraryError {
  constructor(message: string, options?: ErrorOptions) {
    super('TRANSIENT', message, options);
  }
}

export interface StagedFile {
  /** Logical path; the library's settings map it to the system's path. */
  path: string;
  /** For systems that need it. May stand for the whole library, with unknown positions. */
  volume: string;
  position: bigint | null;
  size: bigint;
  /** `adler32:…`, if the reader compares it; then the library need not. */
  checksum?: string | null | undefined;
}

/**
 * State of a file at the library:
 * - `waiting`: it will arrive;
 * - `ready`: readable, until `until` if the library reports it, else until it is released or evicted;
 * - `failed`: it will not arrive; the class of the TapeError says whether a retry can help;
 * - `forgotten`: the library does not know the stage request, which must be repeated.
 */
export type FileState =
  | { path: string; state: 'waiting' }
  | { path: string; state: 'ready'; until: Date | null }
  | { path: string; state: 'failed'; error: TapeError }
  | { path: string; state: 'forgotten' };

export interface Demand {
  /** The library's id; null if it has none and knows files by path. */
  id: string | null;
  files: readonly StagedFile[];
}

/** A released file that is still on the library's disk, or will arrive there. */
export interface RetainedFile {
  path: string;
  /** When the library evicts it; null if unknown: then the release is repeated later. */
  until: Date | null;
}

/**
 * Version of a file across several reads. Starts empty; the library fills it in at the first, and rejects other
 * versions. All members are absent if the library cannot recognise the version in a later read.
 */
export interface ReadVersion {
  /** Strong entity tag. */
  tag?: string | undefined;
  /** Last-Modified, if it is a strong validator. */
  modified?: string | undefined;
  /** Digest of the whole file, with its algorithm. */
  digest?: string | undefined;
  /** Condition for the next read: a Last-Modified without an entity tag. */
  ifRange?: string | undefined;
  /** Size of the file at the library. Another size proves another version; an equal size proves nothing. */
  size?: bigint | undefined;
}

/** Returns whether a later read would reveal another version. */
export function hasValidator({ tag, modified, digest }: ReadVersion): boolean {
  return (tag ?? modified ?? digest) !== undefined;
}

/** Price of a stage request: the sum of its parts. */
export interface Price {
  /** Three letters: `EUR`. */
  currency: string;
  parts: readonly Charge[];
}

export interface Charge {
  /** Millionths of the currency, rounded up. */
  micros: bigint;
  /** Text after the amount: `for 200 restore requests`. */
  what: string;
}

/** Terms of a library, from its settings alone: no call to the system, from any host. */
export interface StagingTerms {
  /** Price for files that are not on the library's disk; absent if staging is free. */
  price?(files: { count: number; bytes: bigint }): Price;
  /** Seconds until a requested file is readable; absent if unknown. Measured times take precedence. */
  waitSeconds?: { least: number; most: number };
  /** Each path of the library begins with one of these; absent if any path is possible. */
  prefixes?: readonly string[];
}

/** Numbers that a provider bills. */
export interface Usage {
  /** Requests sent, including those without a response. */
  requests: number;
  /** Bytes of file contents received. */
  bytes: bigint;
}

export function countUsage(usage: Map<string, Usage>, request: string, more: Partial<Usage>): void {
  const { requests, bytes } = usage.get(request) ?? { requests: 0, bytes: 0n };
  usage.set(request, { requests: requests + (more.requests ?? 0), bytes: bytes + (more.bytes ?? 0n) });
}

/**
 * The contract of a staging library. Test suite: test/support/staging-library.ts.
 *
 * A library knows paths, stage requests and bytes, but no Tapegate requests, users or database. It keeps no state
 * between calls: any process may make the next call, also after a crash. Methods may run concurrently.
 *
 * Results contain the paths that the caller passed. A file without a known state is missing from the result. A failure
 * of one file is its state. A failure of the whole call is a LibraryError, or a RetryLaterError if the system says when
 * to retry. Its class is PERMANENT or POLICY if an operator must act first, for example on rights or a certificate. An
 * aborted call rejects with the signal's reason. Any other error is a bug of the library.
 */
export interface StagingLibrary {
  readonly limits: { stage: number; poll: number; release: number };

  /** Seconds between two polls of a stage request, unless the system says when. */
  readonly pollSeconds: { least: number; most: number };

  /** Limits of the library itself, in seconds, for a call or for the next bytes of a read. */
  readonly ownSeconds?: { call?: number; read?: number };

  /**
   * Requests files. Safe to repeat: if the response to an earlier call was lost, this finds its stage request again.
   * @returns the id of the stage request, and files that are ready or refused at once
   */
  stage(files: readonly StagedFile[], signal: AbortSignal): Promise<{ id: string | null; known: FileState[] }>;

  /** @param demand from one earlier `stage`, with all or some of its files */
  poll(demand: Demand, signal: AbortSignal): Promise<FileState[]>;

  /**
   * Reads the bytes of a ready file in order, starting at `from`. A chunk belongs to the reader, which may stop early.
   * @param version from the earlier reads that this one continues
   * @throws TapeError PERMANENT if there is no such file; NotReadyError if it is no longer on disk; ChangedError if it
   *   has another version. A file with neither a checksum nor a version is never read on: it is read from 0 again
   */
  read(file: StagedFile, from: bigint, signal: AbortSignal, version?: ReadVersion): AsyncIterable<Uint8Array>;

  /**
   * Releases files, also before they arrive. Safe to repeat. Unknown files count as released.
   * @returns files that stay on disk or still arrive
   */
  release(demand: Demand, signal: AbortSignal): Promise<RetainedFile[]>;

  /** New requests, by their name in the system's documentation; the caller takes them out. Absent if not counted. */
  readonly usage?: Map<string, Usage>;
}
