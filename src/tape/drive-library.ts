/** The contract of drive libraries: Tapegate decides which volume to mount, and the order in which it reads files. */
import { TapeError } from '../core/errors.js';

/** The volume, or its file system, is unavailable: not a failure of a file. Errors of `mount` count as this. */
export class VolumeError extends TapeError {}

/** The drive does not work: busy, broken, or misconfigured. Another drive may read the volume at once. */
export class DriveError extends VolumeError {}

/** This process cannot reach the library. It does not suspend the volume. */
export class LibraryError extends VolumeError {}

/** Whether an operator must act: the library is then suspended, and retried after longer pauses. */
export function isRefusal(error: unknown): error is LibraryError {
  return error instanceof LibraryError && (error.errorClass === 'PERMANENT' || error.errorClass === 'POLICY');
}

/** A file in the catalogue. Libraries find it by position or by path. */
export interface FileOnVolume {
  path: string;
  /** Null if the catalogue has none; then only libraries that find files by path are asked to read it. */
  position: bigint | null;
  /** Size in the catalogue, in bytes. The reader compares it with the bytes read. */
  size: bigint;
  /** `adler32:…`, if the reader compares it. */
  checksum?: string | null | undefined;
  /** Whether the checksum comes from the first restore: it shows no error of that read. */
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
  /** Limits of the library itself, in seconds. Before that, a call does not count as stalled. */
  readonly ownSeconds?: { mount?: number; read?: number; unmount?: number };

  /**
   * Mounts a volume, and waits until it is readable.
   * @throws TapeError MEDIA if the library has no such volume; DriveError, LibraryError
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

  /** Finds the last volume with such a name (longer names are later), and its highest position, 0 if it is empty. */
  findLast?(names: RegExp): Promise<{ volume: string; position: bigint } | undefined>;

  /**
   * Writes a file; creates its volume if needed. The file is durable once the promise resolves, or once `sync` resolves if
   * the library has it. If it rejects, the file does not exist. A chunk is in use until the next one is requested. Errors of
   * `bytes` are rethrown unchanged.
   * @param position an occupied one is rejected as PERMANENT, never overwritten
   * @returns bytes written
   * @throws LibraryError if there is no library: a write never creates one
   */
  write(volume: string, position: bigint, bytes: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<bigint>;

  /** Makes all files written to a volume durable, faster than one by one. If it rejects, no file is durable. */
  sync?(volume: string, signal: AbortSignal): Promise<void>;
}

export interface MountedVolume {
  /**
   * Reads a file's bytes in order. Each chunk belongs to the reader. The engine reads one file at a time, in plan
   * order, and may stop early. Rejects if the signal aborts.
   * @throws TapeError PERMANENT if the volume has no such file; VolumeError if the volume fails
   */
  read(file: FileOnVolume, signal: AbortSignal): AsyncIterable<Uint8Array>;

  /** Called once, after the last read. @throws DriveError if the drive does not release the volume */
  unmount(): Promise<void>;
}
