/** The contract of drive libraries: Tapegate decides which volume is mounted, and in which order its files are read. */
import { TapeError } from '../errors.js';

/** Types of the first library: TAPEGATE_TAPE_BACKEND takes these names. */
export const backendNames = ['directory', 'memory'] as const;

/** The volume is not available: it left the library, or its file system did. No file fails for it. An error of `mount` counts as this. */
export class VolumeError extends TapeError {}

/** The drive does not work: it is busy, broken, or not what the settings say. Another drive may read the volume at once. */
export class DriveError extends VolumeError {}

/** This process cannot reach the library. No volume is suspended for it. */
export class LibraryError extends VolumeError {}

/** A file of the catalogue. Some libraries find it by its position, others by its path. */
export interface FileOnVolume {
  /** Logical path. */
  path: string;
  /** Null if the catalogue has none; only libraries that find files by path are asked for such a file. */
  position: bigint | null;
  /** Bytes in the catalogue. The reader compares them with what it reads. */
  size: bigint;
  /** `adler32:…`, if the reader compares it with what it reads. */
  checksum?: string | null | undefined;
}

/**
 * The contract of a drive library, with a suite in test/support/tape-backend.ts, and one for writing in tape-backend-writes.ts.
 *
 * A library knows volumes and files, and no requests, users or database. Each method may be called many times and from several drives at
 * once, but never for one volume on two drives. Every failure is a TapeError, whose class says whether a retry can help. An aborted call
 * rejects with the reason of its signal. Any other error is a bug of the library.
 */
export interface TapeBackend {
  /** Seconds after which the library's own limits end a call. Until then a call does not count as stalled. */
  readonly ownSeconds?: { mount?: number; read?: number; unmount?: number };

  /**
   * Mounts a volume; waits until it can be read.
   * @throws TapeError MEDIA if the library has no such volume; DriveError, LibraryError
   */
  mount(volume: string, drive: string, signal: AbortSignal): Promise<MountedVolume>;
}

/** A drive library that `archive` writes to. */
export interface WritableBackend extends TapeBackend {
  /**
   * Finds the library; called before the first write. Later writes go to this library, or fail. Absent if the library cannot be away.
   * @param make whether to create it if it is missing
   * @throws LibraryError
   */
  openLibrary?(make: boolean): Promise<void>;

  /**
   * Writes a file, and creates its volume if needed. The file is durable when the promise resolves (or that of `sync`, if there is one), and
   * does not exist if it rejects. A chunk is used until the next one is requested. Errors of `bytes` are thrown as they are.
   * @param position an occupied one is refused as PERMANENT, never overwritten
   * @returns bytes written
   * @throws LibraryError if there is no library: a write never creates one
   */
  write(volume: string, position: bigint, bytes: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<bigint>;

  /** Makes all files written to a volume durable, faster than one by one. If it rejects, none of them is. */
  sync?(volume: string, signal: AbortSignal): Promise<void>;
}

export interface MountedVolume {
  /**
   * Reads the bytes of a file, in order. A chunk belongs to the reader. The engine reads one file at a time, in the order of its plan, and may
   * stop early. Rejects when the signal aborts.
   * @throws TapeError PERMANENT if the volume has no such file; VolumeError if the volume fails
   */
  read(file: FileOnVolume, signal: AbortSignal): AsyncIterable<Uint8Array>;

  /** Called once, after the last read. @throws DriveError if the drive keeps the volume */
  unmount(): Promise<void>;
}
