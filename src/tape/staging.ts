/** The contract of staging libraries: systems that order their tapes themselves. They stage files on request, provide the bytes, and release files. */
import { TapeError } from '../errors.js';
import { LibraryError } from './backend.js';

/** The library cannot answer now, and has said when to retry. */
export class RetryLaterError extends LibraryError {
  readonly retryAfterSeconds: number;

  constructor(message: string, retryAfterSeconds: number, options?: ErrorOptions) {
    super('TRANSIENT', message, options);
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** The file was replaced: what was read of it before is worthless, and it must be read from its beginning. */
export class ChangedError extends TapeError {
  constructor(message: string, options?: ErrorOptions) {
    super('TRANSIENT', message, options);
  }
}

/** The file was ready, and is on disk no longer: it must be staged again, which does not count as a failure. */
export class NotReadyError extends LibraryError {
  constructor(message: string, options?: ErrorOptions) {
    super('TRANSIENT', message, options);
  }
}

/** A file of the catalogue. */
export interface StagedFile {
  /** Logical path; the settings of the library say what the system calls it. */
  path: string;
  /** For systems that need it. The volume may stand for the whole library, and the position may be unknown. */
  volume: string;
  position: bigint | null;
  /** Bytes. */
  size: bigint;
  /** `adler32:…`, if the reader compares it with what it reads: the library need not do so as well. */
  checksum?: string | null | undefined;
}

/**
 * What a library says of a file:
 * - `waiting`: it is on its way;
 * - `ready`: it can be read, until `until` if the library says so, else until it is released or has left;
 * - `failed`: it does not come; the class of the TapeError says whether a retry can help;
 * - `forgotten`: the library does not know the demand, which must be repeated.
 */
export type FileState =
  | { path: string; state: 'waiting' }
  | { path: string; state: 'ready'; until: Date | null }
  | { path: string; state: 'failed'; error: TapeError }
  | { path: string; state: 'forgotten' };

/** A demand that the library has accepted. */
export interface Demand {
  /** The library's name of it; null if it has none and knows files by their paths. */
  id: string | null;
  files: readonly StagedFile[];
}

/** A file that is on disk at a library, or still arrives, although it was released. */
export interface Kept {
  path: string;
  /** When it leaves; null if the library does not say, or not yet: then the release is repeated after a while. */
  until: Date | null;
}

/** The version of a file that reads continue. A reader starts with an empty one; the library fills it in, and refuses other versions. */
export interface ReadVersion {
  /** A strong entity tag of the system. */
  tag?: string;
}

/** What it costs to stage files: the sum of the parts. */
export interface Price {
  /** Three letters: `EUR`. */
  currency: string;
  parts: readonly Charge[];
}

export interface Charge {
  /** Millionths of the currency, rounded up. */
  micros: bigint;
  /** Follows the amount in a text: `for 200 restore requests`. */
  what: string;
}

/** What the settings say of the terms of a library. No call to the system is needed, nor a host that has the library. */
export interface StagingTerms {
  /** For files that are not on disk there; absent if staging is free. */
  price?(files: { count: number; bytes: bigint }): Price;
  /** Seconds until a requested file can be read; absent if unknown. Measured times take precedence. */
  waitSeconds?: { least: number; most: number };
  /** The path of each file of the library begins with one of these; absent if it may be any path. */
  prefixes?: readonly string[];
}

/** The basis of a bill. */
export interface Usage {
  /** Sent, also those whose answers were lost. */
  requests: number;
  /** Of files, as received. */
  bytes: bigint;
}

/**
 * The contract of a staging library, with a suite in test/support/staging-library.ts.
 *
 * A library knows paths, demands and bytes, and no requests, users or database. It keeps nothing between calls: any process may make the next
 * call, also after a crash. Methods may be called many times and at once. Answers contain the paths that were given, whatever form the
 * system uses; a file of which the system says nothing is missing from an answer. What concerns one file is its state; what concerns the whole
 * call is thrown as LibraryError, or RetryLaterError if the system says when to retry. The class is PERMANENT or POLICY if a retry does
 * not help until an operator changes something, such as rights or a certificate. An aborted call rejects with the reason of its signal. Any
 * other error is a bug of the library.
 */
export interface StagingLibrary {
  /** Files that one call accepts. */
  readonly limits: { stage: number; poll: number; release: number };

  /** Seconds between two polls of a demand, unless the system says when. */
  readonly pollSeconds: { least: number; most: number };

  /** Seconds after which the library's own limits end a call, or the wait for the next bytes of a read. */
  readonly ownSeconds?: { call?: number; read?: number };

  /**
   * Requests files. May be repeated: this also finds demands again whose answers were lost.
   * @returns the demand's name, and the files that are ready or refused at once
   */
  stage(files: readonly StagedFile[], signal: AbortSignal): Promise<{ id: string | null; known: FileState[] }>;

  /** @param demand of one earlier `stage`, with all or some of its files */
  poll(demand: Demand, signal: AbortSignal): Promise<FileState[]>;

  /**
   * Reads the bytes of a ready file, in order, from a byte on. A chunk belongs to the reader, who may stop early.
   * @param version of earlier reads that this one continues
   * @throws TapeError PERMANENT if there is no such file; NotReadyError if it is on disk no longer; ChangedError if it has another version.
   *   If the system shows no versions, only the checksum reveals a file that was replaced between two reads
   */
  read(file: StagedFile, from: bigint, signal: AbortSignal, version?: ReadVersion): AsyncIterable<Uint8Array>;

  /**
   * Releases files, also before they have arrived. May be repeated. Unknown files count as released.
   * @returns files that stay or arrive all the same
   */
  release(demand: Demand, signal: AbortSignal): Promise<Kept[]>;

  /** Requests sent since this was made, by their names in the system's documentation; it grows. Absent if they are not counted. */
  readonly usage?: Readonly<Record<string, Usage>>;
}
