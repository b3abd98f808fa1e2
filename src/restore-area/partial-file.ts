/**
 * A copy that is being written in its directory, under a name that identifies its recall. Chunks are accepted at once
 * and written in the background, so that tape and disk work in parallel. A budget for all copies of a drive bounds
 * memory.
 */
import { type BigIntStats, constants } from 'node:fs';
import { lstat } from 'node:fs/promises';
import path from 'node:path';
import { giveBack } from '../core/blocks.js';
import { codeOf } from '../core/errors.js';
import { Limiter } from '../core/limiter.js';
import { setAttributes, type WantedAttributes, withoutGroup } from './attributes.js';
import { storedStats } from './copy.js';
import { closeFile, openFile, statFile, syncFile, writeFile } from './descriptors.js';
import { isSame, removeEntry } from './entry.js';
import { type CopyLocation, type Directory, withCopyIfPresent } from './restore-area.js';

/** All files with such names are Tapegate's; entries of other types are not. */
const isPartial = (stats: BigIntStats) => stats.isFile();

/**
 * Removes the partial file of a copy, if there is one. If something blocks its directory, there is none.
 * @throws TapeError TRANSIENT if the disk is absent; other errors of the removal
 */
export async function removePartial(location: CopyLocation, name: string): Promise<void> {
  await withCopyIfPresent(location, (_file, folder) => removeEntry(folder, name, isPartial));
}

/** Returns the partial file of a copy; undefined if there is none. @throws as `removePartial` */
export async function findPartial(location: CopyLocation, name: string): Promise<BigIntStats | undefined> {
  const stats = await withCopyIfPresent(location, (_file, folder) =>
    lstat(path.join(folder.fdPath, name), { bigint: true }),
  );
  return stats && isPartial(stats) ? stats : undefined;
}

/** Removes a partial file that was examined, but no newer one with its name. @returns whether it no longer exists */
export async function removePartialSeen(location: CopyLocation, name: string, seen: BigIntStats): Promise<boolean> {
  return (
    (await withCopyIfPresent(location, (_file, folder) => removeEntry(folder, name, (now) => isSame(now, seen)))) !==
    'other'
  );
}

const BUDGET_BYTES = 16 * 1024 * 1024;

/** Limits bytes that are read but not yet written. */
export type Budget = Limiter;

export const createBudget = (): Budget => new Limiter(BUDGET_BYTES);

/** Bytes between two syncs while writing continues, so that the final sync ends in time. */
const SYNC_BYTES = 64 * 1024 * 1024;

/** Creates the file at once; the caller must end it with `finish` or `discard`. */
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
  /** The current sync; its error is reported once, and later syncs do not repeat it. */
  private syncing: Promise<unknown> = Promise.resolve();
  /** All writes so far, in order; rejects with the first error. */
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
    this.opening = createNew(directory, name, gid === null ? mode : withoutGroup(mode)); // it has another group until `finish`
    this.written = this.opening;
    this.watchFailure();
  }

  /** Resolves when there is room for more; the chunk must not be reused. @throws the error of an earlier write */
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

  /** Waits for all writes, sets attributes, syncs and closes. @returns inode and mtime to record */
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

  /** Removes the file, but no other one with its name. @returns false if this is not possible now */
  async discard(): Promise<boolean> {
    await this.written.catch(() => {}); // `write` or `finish` throws it
    const fd = await this.opening.catch(() => undefined); // there is no file; `write` or `finish` throws the error
    if (fd === undefined) return true;
    try {
      this.ino ??= (await statFile(fd, { bigint: true })).ino;
      await this.close().catch(() => {}); // `finish` throws it
      await removeEntry(this.directory, this.name, ({ ino }) => ino === this.ino);
      return true;
    } catch {
      return false;
    }
  }

  /** Starts the next sync after the previous one. @throws the error of the previous one */
  private async syncAhead(bytes: number): Promise<void> {
    this.unsynced += bytes;
    if (this.unsynced < this.syncBytes) return;
    this.unsynced = 0;
    await this.syncing;
    this.syncing = syncFile(await this.opening);
    this.syncing.catch(() => {}); // the next sync, or `finish`, throws it
  }

  /** Closes once: a closed descriptor's number may soon be reused. */
  private async close(): Promise<void> {
    const fd = await this.opening;
    if (this.isClosed) return;
    this.isClosed = true;
    await this.syncing.catch(() => {}); // it uses the descriptor
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
  // left by a failed attempt on the same drive
  if ((await removeEntry(directory, name, isPartial)) === 'other') throw inTheWay(directory, name);
  return await openFile(file, flags, mode);
}

function inTheWay(directory: Directory, name: string): Error {
  const message = `${path.join(directory.path, name)} is at the path of a partial file; remove it`;
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
  /** Epoch of the drive when the recall began. */
  epoch: bigint;
}

/** Name for a recall's partial file; short enough for any file system, however long the file's own name is. */
export function partialName(owner: PartialOwner): string {
  return `.tapegate-${owner.fileId}-${owner.driveId}-${owner.epoch}.part`;
}

/** The recall that wrote a partial file; undefined for any other name. */
export function parsePartialName(name: string): PartialOwner | undefined {
  const [, fileId, driveId, epoch] = /^\.tapegate-(\d{1,18})-(\d{1,9})-(\d{1,18})\.part$/.exec(name) ?? [];
  return fileId && driveId && epoch
    ? { fileId: BigInt(fileId), driveId: Number(driveId), epoch: BigInt(epoch) }
    : undefined;
}
