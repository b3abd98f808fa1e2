/**
 * The contract of drive libraries, for which Tapegate decides which volume to mount and in which order to read files.
 */
import { TapeError } from '../core/errors.js';

/**
 * Reports that the volume or its file system is unavailable, which is not a failure of a file. Any error of `mount`
 * counts as a VolumeError.
 */
export class VolumeError extends TapeError {}

/** Reports that the drive is busy, broken or misconfigured. Another drive may read the volume at once. */
export class DriveError extends VolumeError {}

/** Reports that this process cannot reach the library. This error does not suspend the volume. */
export class LibraryError extends VolumeError {}

/**
 * Returns whether an operator must act. In this case the engine suspends the library, and retries after longer pauses.
 */
export function isRefusal(error: unknown): error is LibraryError {
  return error instanceof LibraryError && (error.errorClass === 'PERMANENT' || error.errorClass === 'POLICY');
}

/** A file in the catalogue. A library finds the file by position or by path. */
export interface FileOnVolume {
  path: string;
  /**
   * Null if the catalogue has no position. Only libraries that find files by path are asked to read a file without a
   * position.
   */
  position: bigint | null;
  /** Size in the catalogue, in bytes. The reader compares this size with the number of bytes read. */
  size: bigint;
  /** `adler32:…`, if the reader compares the checksum. */
  checksum?: string | null | undefined;
  /**
   * Whether the checksum was computed during the first restore. A checksum from the first restore cannot reveal a read
   * error of that restore.
   */
  isChecksumTaken?: boolean | undefined;
}

/**
 * The contract of a drive library. Test suites: test/support/tape-library.ts, and tape-library-writes.ts for writes.
 *
 * A library knows volumes and files, but no requests, users or database. Several drives may call a method at once, but
 * never for the same volume. Every failure is a TapeError, whose class says whether a retry can help. An aborted call
 * rejects with the signal's reason. Any other error is a bug of the library.
 */
export interface DriveLibrary {
  /** The library's own time limits, in seconds. A call does not count as stalled before its limit has passed. */
  readonly ownSeconds?: { mount?: number; read?: number; unmount?: number };

  /**
   * Mounts a volume, and waits until the volume is readable.
   * @throws TapeError MEDIA if the library has no such volume; DriveError; LibraryError
   */
  mount(volume: string, drive: string, signal: AbortSignal): Promise<MountedVolume>;
}

/** A drive library that the command `archive` can write to. */
export interface WritableLibrary extends DriveLibrary {
  /**
   * Opens the library before the first write. Later writes go to the same library, or fail. Absent if the library is
   * always available.
   * @param make whether to create a missing library
   * @throws LibraryError
   */
  openLibrary?(make: boolean): Promise<void>;

  /**
   * Finds the last volume whose name matches, and its highest position. The position is 0 if the volume is empty. A
   * longer name counts as later.
   */
  findLast?(names: RegExp): Promise<{ volume: string; position: bigint } | undefined>;

  /**
   * Writes a file, and creates its volume if needed. The file is durable when the promise resolves. If the library has
   * `sync`, the file is durable only when `sync` resolves. If the promise rejects, the file does not exist. A chunk is
   * in use until the next chunk is requested. Errors of `bytes` are rethrown unchanged.
   * @param position the position to write; an occupied position is rejected as PERMANENT, never overwritten
   * @returns the number of bytes written
   * @throws LibraryError if the library does not exist: a write never creates a library
   */
  write(volume: string, position: bigint, bytes: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<bigint>;

  /**
   * Makes all files written to a volume durable. Syncing files together is faster than syncing each file. If the
   * promise rejects, no file of this `sync` is durable.
   */
  sync?(volume: string, signal: AbortSignal): Promise<void>;
}

export interface MountedVolume {
  /**
   * Reads a file's bytes in order. Each chunk belongs to the reader. The engine reads one file at a time, in plan
   * order, and may stop early. Rejects if the signal aborts.
   * @throws TapeError PERMANENT if the volume has no such file; VolumeError if the volume fails
   */
  read(file: FileOnVolume, signal: AbortSignal): AsyncIterable<Uint8Array>;

  /**
   * Unmounts the volume. The engine calls this method once, after the last read.
   * @throws DriveError if the drive does not release the volume
   */
  unmount(): Promise<void>;
}
