/** What every drive library keeps to: Tapegate decides what is mounted and in which order it is read. */
import { TapeError } from '../errors.js';

/**
 * The volume itself cannot be had (gone from the library, closed, its file system away): no file is to blame, and none is
 * given up for it. What `mount` throws is taken as this.
 */
export class VolumeError extends TapeError {}

/**
 * The drive cannot be used: busy, broken, or not what the settings say. Neither the volume nor the library is to blame, and another drive may
 * have the volume at once. TRANSIENT where it may pass by itself.
 */
export class DriveError extends VolumeError {}

/** The library itself is not there, as seen from this process: no volume is to blame either, and none is held for it. */
export class LibraryError extends VolumeError {}

/** A file as the catalogue knows it: some libraries find it on its volume by its position, others by its path. */
export interface FileOnVolume {
  /** Logical path. */
  path: string;
  /** Null where the catalogue knows none, which only libraries are given that find files by their paths. */
  position: bigint | null;
  /** Bytes; what is read may have more or fewer, which is for the reader to find out. */
  size: bigint;
  /** Where whoever reads it compares what it reads with one: `adler32:…`. */
  checksum?: string | null | undefined;
}

/**
 * The contract of a tape back end. Every back end passes the suite in test/support/tape-backend.ts, and one that can be written that of tape-backend-writes.ts.
 *
 * A back end knows volumes and files on them and nothing of requests, users or the database. Each method may be called
 * many times and from several drives at once, never for one volume on two drives. Whatever fails is a TapeError whose
 * class tells whether trying again can help; what is aborted rejects with the signal's reason; any other error is a bug
 * of the back end.
 */
export interface TapeBackend {
  /** Within which a call ends by limits of the library's own, where it has any: until then none counts as one that hangs. */
  readonly ownSeconds?: { mount?: number; read?: number; unmount?: number };

  /**
   * Makes a volume ready for reading on a drive; blocks until it is, or until the signal aborts.
   * @throws TapeError MEDIA when the library has no such volume; DriveError when it is the drive that fails, and LibraryError when there is no
   *   library, where that can be told
   */
  mount(volume: string, drive: string, signal: AbortSignal): Promise<MountedVolume>;
}

/** A drive library that `archive` writes to. */
export interface WritableBackend extends TapeBackend {
  /**
   * Finds the library; whoever writes calls it first. From then on what is written goes to that library, or is refused. A back end
   * whose library cannot be away has none of this.
   * @param make the library may be missing, and is made then: as the very first one is
   * @throws LibraryError
   */
  openLibrary?(make: boolean): Promise<void>;

  /**
   * Writes a file to a volume, which is made when it does not exist. The file is durable when the promise resolves,
   * or where the back end has a `sync` when that one does, and is not there at all when it rejects. A chunk is used until the next one is asked for; what `bytes` throws is
   * thrown on as it is.
   * @param position where; one that is taken is refused as PERMANENT, never overwritten
   * @returns the number of bytes written
   * @throws LibraryError when there is no library, where that can be told: a write never makes one
   */
  write(volume: string, position: bigint, bytes: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<bigint>;

  /**
   * Makes durable what was written to a volume: of many small files together that takes far less time than of one after the
   * other. Whoever writes calls it before the files are relied on. Where it rejects, none of them is to be relied on.
   */
  sync?(volume: string, signal: AbortSignal): Promise<void>;
}

export interface MountedVolume {
  /**
   * The bytes of a file, in order. A chunk belongs to the reader. The engine reads one file at a time
   * and in the order of its plan; it may stop early, and the back end then lets go of the file. Rejects when the
   * signal aborts.
   * @throws TapeError PERMANENT when there is no such file on the volume; VolumeError when the volume is what fails, where
   *   that can be told
   */
  read(file: FileOnVolume, signal: AbortSignal): AsyncIterable<Uint8Array>;

  /** Called once, after the last read has ended. @throws DriveError where the drive does not let go of the volume */
  unmount(): Promise<void>;
}
