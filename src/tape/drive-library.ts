/** Drive libraries, for which Tapegate decides which volumes to mount, and in which order to read files. */
import { TapeError } from '../core/errors.js';

/**
 * Reports that the volume or its file system is unavailable. The engine does not count a VolumeError as a failure of
 * the file to be read. The engine treats any error from `mount` as a VolumeError.
 */
export class VolumeError extends TapeError {}

/** Reports that the drive is busy, broken or misconfigured. The engine can use another drive for the volume. */
export class DriveError extends VolumeError {}

/**
 * Reports that this process cannot reach the library. The engine does not suspend a volume because of a LibraryError.
 */
export class LibraryError extends VolumeError {}

/**
 * Returns whether an operator must fix the cause of an error. After such an error, the engine suspends the library, and
 * waits longer before each retry.
 */
export function isRefusal(error: unknown): error is LibraryError {
  return error instanceof LibraryError && (error.errorClass === 'PERMANENT' || error.errorClass === 'POLICY');
}

/** A file in the catalogue. */
export interface FileOnVolume {
  path: string;
  /**
   * The position of the file on the volume; null if unknown. Only libraries that find files by path can read a file
   * without a position.
   */
  position: bigint | null;
  /** Size in the catalogue, in bytes. The caller compares this size with the number of bytes read. */
  size: bigint;
  /** Expected checksum of the bytes, such as `adler32:…`. Present only if the caller verifies the checksum. */
  checksum?: string | null | undefined;
  /**
   * Whether Tapegate computed the checksum during the first restore of the file. Such a checksum cannot reveal a read
   * error in that restore.
   */
  isChecksumTaken?: boolean | undefined;
}

/**
 * The contract of a drive library. Test suites: test/support/tape-library.ts and test/support/tape-library-writes.ts.
 *
 * A library knows volumes and files, but not requests, users or the database. The engine can call a method for several
 * drives concurrently, but always for different volumes. Every failure is a TapeError, whose class says whether a retry
 * can help. If the signal aborts, a call rejects with the signal's reason. Any other error is a bug in the library.
 */
export interface DriveLibrary {
  /**
   * The library's own time limits for calls, in seconds. The engine treats a call as stalled only after the call's time
   * limit.
   */
  readonly ownSeconds?: { mount?: number; read?: number; unmount?: number };

  /**
   * Mounts a volume, and waits until the volume is readable.
   * @throws TapeError MEDIA if the library does not have the volume
   * @throws DriveError
   * @throws LibraryError
   */
  mount(volume: string, drive: string, signal: AbortSignal): Promise<MountedVolume>;
}

/** A drive library to which the command `archive` can write. */
export interface WritableLibrary extends DriveLibrary {
  /**
   * Opens the library before the first write. Later writes fail if another directory has replaced the opened library's
   * directory. Libraries that are always available do not have the method `openLibrary`.
   * @param make whether to create a missing library
   * @throws LibraryError
   */
  openLibrary?(make: boolean): Promise<void>;

  /**
   * Finds the last volume whose name matches `names`, and the highest position on this volume (0 if the volume is
   * empty). A longer name counts as later than a shorter name.
   */
  findLast?(names: RegExp): Promise<{ volume: string; position: bigint } | undefined>;

  /**
   * Writes a file to a volume, and creates the volume if it does not exist.
   *
   * When the promise resolves, the file is durable, unless the library has a method `sync`. If the promise rejects, the
   * file is not created. The caller can reuse the memory of a chunk as soon as the library requests the next chunk. The
   * library rethrows errors from `bytes` unchanged.
   * @param position the position of the file on the volume; an occupied position causes an error of the class PERMANENT
   * @returns the number of bytes written
   * @throws LibraryError if the library is missing, because `write` never creates a library
   */
  write(volume: string, position: bigint, bytes: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<bigint>;

  /**
   * Makes all files written to a volume durable. If the promise rejects, files written since the last successful `sync`
   * might not be durable.
   */
  sync?(volume: string, signal: AbortSignal): Promise<void>;
}

export interface MountedVolume {
  /**
   * Reads the bytes of a file in order. The reader owns each chunk, and can reuse its memory. The engine reads files
   * sequentially in the planned order, and can stop before the end of a file. Rejects if the signal aborts.
   * @throws TapeError PERMANENT if the volume does not contain the file
   * @throws VolumeError if the volume fails
   */
  read(file: FileOnVolume, signal: AbortSignal): AsyncIterable<Uint8Array>;

  /**
   * Unmounts the volume. The engine calls this method exactly once, after the last read.
   * @throws DriveError if the drive does not release the volume
   */
  unmount(): Promise<void>;
}
