/**
 * A copy that is being written beside its path, under a name that tells its recall. Chunks are accepted at once and written behind, so that the tape
 * is read while the disk writes. A budget shared by all copies of a drive bounds the bytes that wait.
 */
import { type BigIntStats, constants } from 'node:fs';
import { lstat } from 'node:fs/promises';
import path from 'node:path';
import { giveBack } from '../../blocks.js';
import { Limiter } from '../../core/limiter.js';
import { codeOf, TapeError } from '../../errors.js';
import { setAttributes, type WantedAttributes } from './attributes.js';
import { inodeOf } from './copy.js';
import { closeFile, openFile, statFile, syncFile, writeFile } from './descriptors.js';
import { isSame, removeEntry } from './entry.js';
import { type CopyPlace, type Folder, withCopy } from './restore-area.js';

/** All names of this kind are Tapegate's; something else than a file is not. */
const isPartial = (stats: BigIntStats) => stats.isFile();

/**
 * Removes a partial file beside the place of its copy, where there is one. Where something else is in the way of its
 * folder there is none.
 * @throws TapeError TRANSIENT when the disk is not there, and what else keeps it from being removed
 */
export async function removePartial(place: CopyPlace, name: string): Promise<void> {
  await beside(place, (folder) => removeEntry(folder, name, isPartial));
}

/** The partial file beside the place of a copy; undefined where there is none. @throws as `removePartial` */
export async function lookBeside(place: CopyPlace, name: string): Promise<BigIntStats | undefined> {
  const stats = await beside(place, (folder) => lstat(path.join(folder.at, name), { bigint: true }));
  return stats && isPartial(stats) ? stats : undefined;
}

/**
 * Removes a partial file that was looked at; another one that has its name by now is somebody's who writes it.
 * @returns whether nothing has the name, or had it before another one was begun
 * @throws as `removePartial`
 */
export async function removePartialSeen(place: CopyPlace, name: string, seen: BigIntStats): Promise<boolean> {
  return (await beside(place, (folder) => removeEntry(folder, name, (now) => isSame(now, seen)))) !== 'other';
}

async function beside<T>(place: CopyPlace, use: (folder: Folder) => Promise<T>): Promise<T | undefined> {
  try {
    return await withCopy(place, (_file, folder) => use(folder));
  } catch (error) {
    const isInTheWay = error instanceof TapeError && error.errorClass === 'POLICY';
    if (codeOf(error) !== 'ENOENT' && !isInTheWay) throw error;
    return undefined;
  }
}

const BUDGET_BYTES = 16 * 1024 * 1024;

/** Room for bytes that are read and not yet written. */
export type Budget = Limiter;

export const createBudget = (): Budget => new Limiter(BUDGET_BYTES);

/**
 * Bytes that are written before they are synced, while writing goes on: what is left to be synced at the end is one call, which has
 * to end in time, and a host with much memory would keep most of a large file until then.
 */
const SYNC_BYTES = 64 * 1024 * 1024;

/** The file is made at once; whoever makes it ends it with `finish` or `discard`. */
export class PartialFile {
  private readonly folder: Folder;
  private readonly name: string;
  private readonly budget: Budget;
  private readonly attributes: WantedAttributes;
  private readonly opening: Promise<number>;
  private readonly syncBytes: number;
  private isClosed = false;
  private ino: bigint | undefined;
  private unsynced = 0;
  /** What was written up to then; its failure is told once, and no later sync says so. */
  private syncing: Promise<unknown> = Promise.resolve();
  /** The writes so far, in order; the first failure is the last word. */
  private written: Promise<unknown>;
  private failure: unknown;

  constructor(folder: Folder, name: string, how: { budget: Budget; attributes: WantedAttributes; syncBytes?: number }) {
    this.syncBytes = how.syncBytes ?? SYNC_BYTES;
    this.folder = folder;
    this.name = name;
    this.budget = how.budget;
    this.attributes = how.attributes;
    this.opening = createNew(folder, name, how.attributes.mode);
    this.written = this.opening;
    this.noteFailure();
  }

  /** Resolves when there is room for more, not when the chunk is written; it is not to be used any more. @throws what a write before it threw */
  async write(chunk: Uint8Array): Promise<void> {
    const giveRoom = await this.budget.take({ cost: chunk.length });
    this.written = this.written
      .then(async () => {
        await writeAll(await this.opening, chunk);
        await this.syncAhead(chunk.length);
      })
      .finally(() => {
        giveRoom();
        giveBack(chunk);
      });
    this.noteFailure();
    if (this.failure !== undefined) throw this.failure;
  }

  /** Waits for the writes, gives the file its attributes, syncs and closes. @returns what the file is known by from now on */
  async finish(): Promise<{ ino: bigint; mtimeNs: bigint }> {
    await this.written;
    await this.syncing;
    const fd = await this.opening;
    await setAttributes(fd, this.attributes);
    await syncFile(fd);
    const stats = await statFile(fd, { bigint: true });
    this.ino = stats.ino;
    await this.close();
    return { ino: inodeOf(stats), mtimeNs: stats.mtimeNs };
  }

  /** Removes the file, and no other that has its name by now. @returns false when that is not possible now */
  async discard(): Promise<boolean> {
    await this.written.catch(() => {}); // told by `write` or `finish`
    const fd = await this.opening.catch(() => undefined); // there is none, which is told as well
    if (fd === undefined) return true;
    try {
      this.ino ??= (await statFile(fd, { bigint: true })).ino;
      await this.close().catch(() => {}); // told by `finish`
      await removeEntry(this.folder, this.name, ({ ino }) => ino === this.ino);
      return true;
    } catch {
      return false;
    }
  }

  /** Begins the next sync once that before has ended. @throws what that one threw */
  private async syncAhead(bytes: number): Promise<void> {
    this.unsynced += bytes;
    if (this.unsynced < this.syncBytes) return;
    this.unsynced = 0;
    await this.syncing;
    this.syncing = syncFile(await this.opening);
    this.syncing.catch(() => {}); // told by the next one, or by `finish`
  }

  /** Once only: the number of a closed descriptor may soon be that of another file. */
  private async close(): Promise<void> {
    const fd = await this.opening;
    if (this.isClosed) return;
    this.isClosed = true;
    await this.syncing.catch(() => {}); // it uses the descriptor
    await closeFile(fd);
  }

  private noteFailure(): void {
    this.written.catch((error: unknown) => {
      this.failure ??= error;
    });
  }
}

async function createNew(folder: Folder, name: string, mode: number): Promise<number> {
  const file = path.join(folder.at, name);
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
  try {
    return await openFile(file, flags, mode);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
  }
  // of an attempt on the same drive that failed half-way
  if ((await removeEntry(folder, name, isPartial)) === 'other') throw inTheWay(folder, name);
  return await openFile(file, flags, mode);
}

function inTheWay(folder: Folder, name: string): Error {
  const message = `${path.join(folder.place, name)} is in the way of a partial file; remove it`;
  return Object.assign(new Error(message), { code: 'EEXIST' });
}

async function writeAll(fd: number, chunk: Uint8Array): Promise<void> {
  for (let offset = 0; offset < chunk.length; ) {
    const { bytesWritten } = await writeFile(fd, chunk, offset, chunk.length - offset, null);
    offset += bytesWritten;
  }
}

/** Whose a partial file is. */
interface PartialOwner {
  fileId: bigint;
  driveId: number;
  /** Of the drive, when the recall began. */
  epoch: bigint;
}

/** The name under which a recall writes; it fits any file system, however long the file's own name is. */
export function partialName(owner: PartialOwner): string {
  return `.tapegate-${owner.fileId}-${owner.driveId}-${owner.epoch}.part`;
}

/** The recall that a partial file was written by; undefined for any other name. */
export function parsePartialName(name: string): PartialOwner | undefined {
  const [, fileId, driveId, epoch] = /^\.tapegate-(\d{1,18})-(\d{1,9})-(\d{1,18})\.part$/.exec(name) ?? [];
  return fileId && driveId && epoch
    ? { fileId: BigInt(fileId), driveId: Number(driveId), epoch: BigInt(epoch) }
    : undefined;
}
