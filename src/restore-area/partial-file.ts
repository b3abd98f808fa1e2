/**
 * Writes a copy to a partial file in the copy's final directory. Chunks are queued and written in the background, so
 * that the drive can read the next chunks meanwhile. A budget limits the memory for the queued chunks of all copies
 * from one drive.
 */
import { type BigIntStats, constants } from 'node:fs';
import { lstat } from 'node:fs/promises';
import path from 'node:path';
import { giveBack } from '../core/blocks.js';
import { codeOf } from '../core/errors.js';
import { Limiter } from '../core/limiter.js';
import { setAttributes, type WantedAttributes, withoutGroup } from './attributes.js';
import { storedStats } from './copies/copy.js';
import { closeFile, openFile, statFile, syncFile, writeFile } from './descriptors.js';
import { isSame, removeEntry } from './entry.js';
import { type CopyLocation, type Directory, withCopyIfPresent } from './restore-area.js';

/** Returns whether an entry can be a partial file, which is always a regular file. */
const isPartial = (stats: BigIntStats) => stats.isFile();

/**
 * Removes the partial file of a copy, if it exists.
 * @throws TapeError TRANSIENT if the disk is unavailable
 * @throws Error if the removal fails
 */
export async function removePartial(location: CopyLocation, name: string): Promise<void> {
  await withCopyIfPresent(location, (_file, directory) => removeEntry(directory, name, isPartial));
}

/**
 * Returns the stats of a copy's partial file; undefined if it does not exist.
 * @throws the same errors as `removePartial`
 */
export async function findPartial(location: CopyLocation, name: string): Promise<BigIntStats | undefined> {
  const stats = await withCopyIfPresent(location, (_file, directory) =>
    lstat(path.join(directory.fdPath, name), { bigint: true }),
  );
  return stats && isPartial(stats) ? stats : undefined;
}

/**
 * Removes a partial file that has not changed since `seen` was read.
 * @returns whether the partial file no longer exists
 */
export async function removePartialSeen(location: CopyLocation, name: string, seen: BigIntStats): Promise<boolean> {
  return (
    (await withCopyIfPresent(location, (_file, directory) =>
      removeEntry(directory, name, (now) => isSame(now, seen)),
    )) !== 'other'
  );
}

const BUDGET_BYTES = 16 * 1024 * 1024;

/** Memory limit for the bytes that have been read from tape but not yet written to disk. */
export type Budget = Limiter;

export const createBudget = (): Budget => new Limiter(BUDGET_BYTES);

/** Number of written bytes after which a background sync starts, so that the final sync is short. */
const SYNC_BYTES = 64 * 1024 * 1024;

/** Writes a partial file, which the constructor creates. The caller's last call must be `finish` or `discard`. */
export class PartialFile {
  private readonly directory: Directory;
  private readonly name: string;
  private readonly budget: Budget;
  private readonly attributes: WantedAttributes;
  private readonly opening: Promise<number>;
  private readonly syncBytes: number;
  private isClosed = false;
  private ino: bigint | undefined;
  private unsynced = 0;
  /** The last background sync. Its error must not be ignored, because the kernel reports each sync error only once. */
  private syncing: Promise<unknown> = Promise.resolve();
  /** Resolves when all writes so far have ended. Rejects with the first write error. */
  private written: Promise<unknown>;
  private failure: unknown;

  constructor(
    directory: Directory,
    name: string,
    options: { budget: Budget; attributes: WantedAttributes; syncBytes?: number },
  ) {
    this.syncBytes = options.syncBytes ?? SYNC_BYTES;
    this.directory = directory;
    this.name = name;
    this.budget = options.budget;
    this.attributes = options.attributes;
    const { mode, gid } = options.attributes;
    // until the file has its final group, give the group only the permissions that all other users get
    this.opening = createNew(directory, name, gid === null ? mode : withoutGroup(mode));
    this.written = this.opening;
    this.watchFailure();
  }

  /**
   * Queues a chunk for writing. The caller must not reuse the chunk's buffer. Resolves when the budget has room for the
   * next chunk.
   * @throws the error of an earlier write
   */
  async write(chunk: Uint8Array): Promise<void> {
    const releaseRoom = await this.budget.take({ cost: chunk.length });
    this.written = this.written
      .then(async () => {
        await writeAll(await this.opening, chunk);
        await this.syncAhead(chunk.length);
      })
      .finally(() => {
        releaseRoom();
        giveBack(chunk);
      });
    this.watchFailure();
    if (this.failure !== undefined) throw this.failure;
  }

  /**
   * Waits for all writes, sets the partial file's attributes, and then syncs and closes the file.
   * @returns the inode and mtime to record
   */
  async finish(): Promise<{ ino: bigint; mtimeNs: bigint }> {
    await this.written;
    await this.syncing;
    const fd = await this.opening;
    await setAttributes(fd, this.attributes);
    await syncFile(fd);
    const stats = await statFile(fd, { bigint: true });
    this.ino = stats.ino;
    await this.close();
    return storedStats(stats);
  }

  /** Removes the partial file, but not a different file with the same name. @returns false if the removal fails */
  async discard(): Promise<boolean> {
    await this.written.catch(() => {}); // ignore the error, because `write` or `finish` throws it
    const fd = await this.opening.catch(() => undefined);
    if (fd === undefined) return true;
    try {
      this.ino ??= (await statFile(fd, { bigint: true })).ino;
      await this.close().catch(() => {}); // ignore the error, because only `finish` needs to report it
      await removeEntry(this.directory, this.name, ({ ino }) => ino === this.ino);
      return true;
    } catch {
      return false;
    }
  }

  /** Starts a background sync after every `syncBytes` bytes. @throws the previous sync's error */
  private async syncAhead(bytes: number): Promise<void> {
    this.unsynced += bytes;
    if (this.unsynced < this.syncBytes) return;
    this.unsynced = 0;
    await this.syncing;
    this.syncing = syncFile(await this.opening);
    this.syncing.catch(() => {}); // prevents an unhandled rejection; the next sync, or `finish`, throws the error
  }

  /**
   * Closes the file descriptor. Never closes the descriptor twice, because another file might have the same descriptor
   * by then.
   */
  private async close(): Promise<void> {
    const fd = await this.opening;
    if (this.isClosed) return;
    this.isClosed = true;
    await this.syncing.catch(() => {}); // wait for a running sync, which still uses the descriptor
    await closeFile(fd);
  }

  private watchFailure(): void {
    this.written.catch((error: unknown) => {
      this.failure ??= error;
    });
  }
}

async function createNew(directory: Directory, name: string, mode: number): Promise<number> {
  const file = path.join(directory.fdPath, name);
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
  try {
    return await openFile(file, flags, mode);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
  }
  // remove an existing partial file, because it can only come from a failed attempt on the same drive
  if ((await removeEntry(directory, name, isPartial)) === 'other') throw inTheWay(directory, name);
  return await openFile(file, flags, mode);
}

function inTheWay(directory: Directory, name: string): Error {
  const message = `${path.join(directory.path, name)} is not a partial file, but has the name of one: remove it`;
  return Object.assign(new Error(message), { code: 'EEXIST' });
}

async function writeAll(fd: number, chunk: Uint8Array): Promise<void> {
  for (let offset = 0; offset < chunk.length; ) {
    const { bytesWritten } = await writeFile(fd, chunk, offset, chunk.length - offset, null);
    offset += bytesWritten;
  }
}

interface PartialOwner {
  fileId: bigint;
  driveId: number;
  epoch: bigint;
}

/** Returns the name of a recall's partial file, which is short enough for any file system. */
export function partialName(owner: PartialOwner): string {
  return `.tapegate-${owner.fileId}-${owner.driveId}-${owner.epoch}.part`;
}

/** Returns the recall that wrote a partial file; undefined if `name` is not a partial file's name. */
export function parsePartialName(name: string): PartialOwner | undefined {
  const [, fileId, driveId, epoch] = /^\.tapegate-(\d{1,18})-(\d{1,9})-(\d{1,18})\.part$/.exec(name) ?? [];
  return fileId && driveId && epoch
    ? { fileId: BigInt(fileId), driveId: Number(driveId), epoch: BigInt(epoch) }
    : undefined;
}
