/**
 * What every staging library keeps to: a system that orders its tapes by itself. It is asked for many files, says which of them are
 * ready, gives their bytes, and is told which are not needed any more.
 */
import { TapeError } from '../errors.js';
import { LibraryError } from './backend.js';

/** The library cannot answer now, and has said when to ask again. */
export class RetryLaterError extends LibraryError {
  readonly retryAfterSeconds: number;

  constructor(message: string, retryAfterSeconds: number, options?: ErrorOptions) {
    super('TRANSIENT', message, options);
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** A file as the catalogue knows it. */
export interface StagedFile {
  /** Logical path; what the library calls it follows from its settings. */
  path: string;
  /** For systems that are to be told; the volume may stand for the whole library, and a position may be unknown. */
  volume: string;
  position: bigint | null;
  /** Bytes. */
  size: bigint;
  /** Where whoever reads it compares what it reads with one, which need not be done twice: `adler32:…`. */
  checksum?: string | null | undefined;
}

/**
 * What a library says of a file:
 * - `waiting`: it is on its way;
 * - `ready`: it can be read, until `until` (UTC, as a JavaScript Date) where the library says so, else until it is released, or was found gone;
 * - `failed`: it does not come; the class of the TapeError tells whether asking again can help;
 * - `forgotten`: the library knows nothing of the demand: it is to be asked again.
 */
export type FileState =
  | { path: string; state: 'waiting' }
  | { path: string; state: 'ready'; until: Date | null }
  | { path: string; state: 'failed'; error: TapeError }
  | { path: string; state: 'forgotten' };

/** A demand that the library has taken, by the name that the library gave it. */
export interface Demand {
  /** Null where the library gives none: it knows files by their paths alone. */
  id: string | null;
  files: readonly StagedFile[];
}

/**
 * What is on disk at a library, or still comes, after it was told that the file is not needed any more: it leaves by itself.
 */
export interface Kept {
  path: string;
  /** When; null where the library does not say, or cannot before the file has come. It is told of the file again after a while then. */
  until: Date | null;
}

/**
 * Which state of its bytes reads of a file are of that go on from each other. Whoever reads has an empty one for them; the library notes in
 * it what the system says with the first bytes, where it says anything, and gives no others into it.
 */
export interface ReadVersion {
  /** As the system has it: a strong entity tag. */
  tag?: string;
}

/** What it costs to have files staged, where that is charged for: the sum of its parts. */
export interface Price {
  /** Three letters, as the settings have it: `EUR`. */
  currency: string;
  parts: readonly Charge[];
}

export interface Charge {
  /** Millionths of the currency, rounded up: whole numbers, so that sums of them are exact. */
  micros: bigint;
  /** For people, as it stands after the amount: `for 200 restore requests`. */
  what: string;
}

/**
 * On what terms a library stages files, as far as its settings tell: read before anybody asks for a file, also on hosts that do not have
 * the library, and without turning to the system.
 */
export interface StagingTerms {
  /** What it costs to have files staged that are not on disk there; absent where nobody charges for it. */
  price?(files: { count: number; bytes: bigint }): Price;
  /**
   * Seconds from asking for a file until it can be read, least and most; absent where the settings do not tell. What files have really
   * taken counts for more, once it is known.
   */
  waitSeconds?: { least: number; most: number };
  /** One of these begins the path of each file that it has a name for; absent where it may be any. */
  prefixes?: readonly string[];
}

/** What a bill is made of. */
export interface Usage {
  /** That were sent, also those whose answers were lost. */
  requests: number;
  /** Of files, as they came with the answers. */
  bytes: bigint;
}

/**
 * The contract of a staging library. Every one passes the suite in test/support/staging-library.ts.
 *
 * It knows paths, demands and bytes and nothing of requests, users or the database, and remembers nothing between calls: any process may
 * make the next one, also after a crash. Each method may be called many times and at once. Paths in an answer are those that were
 * given, whatever form the system uses; a file of which the system said nothing is missing from an answer, never guessed. What concerns
 * one file is that file's state; what concerns the whole call is thrown as LibraryError (RetryLaterError where the system said when): as
 * PERMANENT or POLICY where trying again does not help before somebody changes something, such as rights, a name or a certificate.
 * What is aborted rejects with the signal's reason; any other error is a bug of the library.
 */
export interface StagingLibrary {
  /** How many files one call of each kind takes at most. */
  readonly limits: { stage: number; poll: number; release: number };

  /** Seconds between two looks at a demand, least and most, where the system does not say. */
  readonly pollSeconds: { least: number; most: number };

  /** Within which a call, or a read until its next bytes, ends by limits of the library's own, where it has any. */
  readonly ownSeconds?: { call?: number; read?: number };

  /**
   * Asks for files. Asking again for what was asked for already is safe. What was taken although the answer was lost is found again by
   * asking again.
   * @returns the demand's name, and what is known of files at once: those that are ready already, and those that are refused
   */
  stage(files: readonly StagedFile[], signal: AbortSignal): Promise<{ id: string | null; known: FileState[] }>;

  /** @param demand of one earlier `stage`; its files may be fewer than were asked for */
  poll(demand: Demand, signal: AbortSignal): Promise<FileState[]>;

  /**
   * The bytes of a file that is ready, in order, from a byte on. A chunk belongs to the reader, who may stop early.
   * @param version of the reads before that this one goes on from
   * @throws TapeError PERMANENT when there is no such file; NotReadyError when it is not on disk there (any more); ChangedError when it is
   *   there in another version. Where the system tells none, only its checksum shows that a file was exchanged between two reads
   */
  read(file: StagedFile, from: bigint, signal: AbortSignal, version?: ReadVersion): AsyncIterable<Uint8Array>;

  /**
   * The files are not needed any more, or not wanted any more before they came: safe to repeat, as is done for what stays without a word of how
   * long. What the system does not know is released.
   * @returns what stays, or comes, all the same, and until when
   */
  release(demand: Demand, signal: AbortSignal): Promise<Kept[]>;

  /**
   * What the system was asked for since this was made, by the names of requests in its documentation; it grows while calls are made. Absent
   * where that is not counted.
   */
  readonly usage?: Readonly<Record<string, Usage>>;
}

/** The file there is another one by now: what was read of it before is worth nothing, and it is to be read from its beginning. */
export class ChangedError extends TapeError {
  constructor(message: string, options?: ErrorOptions) {
    super('TRANSIENT', message, options);
  }
}

/** The file was ready, and is not on disk any more: it is to be staged again, which is no failure of its own. */
export class NotReadyError extends LibraryError {
  constructor(message: string, options?: ErrorOptions) {
    super('TRANSIENT', message, options);
  }
}
