/** Folders of the restore area that copies are put into: opened once each, synced together, closed at the end. */
import path from 'node:path';
import type { Context } from '../../context.js';
import { codeOf, messageOf } from '../../errors.js';
import type { MadeFolder } from '../../operations/disks/folders.js';
import type { CallWatch } from '../calls.js';
import { ofDisk } from './failures.js';
import { openFolder, removeEmptyFolders } from './made-folders.js';
import type { MarkedDisk } from './marker.js';
import {
  type CopyPlace,
  checkInPlace,
  type Folder,
  isMoved,
  isRemoved,
  movedAway,
  syncFolder,
} from './restore-area.js';

interface OpenFolder {
  folder: Folder;
  mountpoint: string;
}

/** Says why what was put into the folder of a place does not last; undefined where it does. */
export type SyncFailures = (place: CopyPlace) => Error | undefined;

/** Not to be asked for the folders of two places at once. What fails is a DiskError where it may be the disk. */
export class OpenFolders {
  private readonly ctx: Context;
  private readonly calls: CallWatch;
  /** Folders that were opened, or made as far as that went, by their paths on disk. */
  private readonly tried = new Set<string>();
  private readonly folders = new Map<string, OpenFolder>();
  /** Folders above those that were opened since the last sync, by their paths on disk. */
  private readonly above = new Map<string, { disk: MarkedDisk; dir: string }>();
  /** Folders that could not be synced, by their paths on disk. A later sync that goes well says nothing of what was lost. */
  private readonly failed = new Map<string, Error>();
  /** By the mount point of their disk. */
  private readonly made = new Map<string, MadeFolder[]>();

  constructor(ctx: Context, calls: CallWatch) {
    this.ctx = ctx;
    this.calls = calls;
  }

  /**
   * The folder of a place, made when missing. It stays open until `close`.
   * @param confirm is awaited before a folder may be made, and throws where none may be
   * @throws as `openFolder`, and what kept the folder, or one above it, from being synced before
   */
  async open(place: CopyPlace, confirm: () => Promise<void>): Promise<Folder> {
    const failure = this.failureOf(place);
    if (failure) throw failure;
    const { mountpoint } = place;
    const key = path.join(mountpoint, path.dirname(place.path));
    const known = this.folders.get(key);
    if (known && isRemoved(known.folder)) {
      this.folders.delete(key);
      await this.closeOne(known);
    } else if (known && !isMoved(known.folder)) return known.folder;
    else if (known) {
      const moved = movedAway(known.folder); // and with it what was put into it
      this.failed.set(key, moved);
      throw moved;
    }
    await confirm();
    this.tried.add(key);
    const made = this.made.get(mountpoint) ?? [];
    this.made.set(mountpoint, made);
    const folder = await openFolder(this.ctx, place, (call) => ofDisk(this.calls, place, call), made);
    this.folders.set(key, { folder, mountpoint });
    const disk = { diskId: place.diskId, mountpoint: place.mountpoint };
    for (let dir = path.dirname(place.path); dir !== '/'; ) {
      dir = path.dirname(dir);
      this.above.set(path.join(place.mountpoint, dir), { disk, dir });
    }
    return folder;
  }

  /**
   * Makes what was put into them last, and the folders themselves: those above are synced, too, whoever has made what is in
   * them, since another process may not have come to that. Never rejects: one that fails says nothing of the others.
   */
  async sync(): Promise<SyncFailures> {
    await Promise.all([...this.folders].map(([key, open]) => this.syncOne(key, open, () => syncInPlace(open.folder))));
    const due = [...this.above].filter(([key]) => !this.folders.has(key));
    this.above.clear();
    await Promise.all(due.map(([key, { disk, dir }]) => this.syncOne(key, disk, () => syncFolder(disk, dir))));
    return (place) => this.failureOf(place);
  }

  /** May folders have been made for a place? */
  hasTried(place: CopyPlace): boolean {
    return this.tried.has(path.join(place.mountpoint, path.dirname(place.path)));
  }

  /**
   * Removes the folders that were made for a place to which nothing came, as far as they are empty. Never rejects.
   * @param calls follows what that calls
   * @returns false where that is to be tried again
   */
  async tidy(place: CopyPlace, calls: CallWatch): Promise<boolean> {
    const made = this.made.get(place.mountpoint);
    const removed = removeEmptyFolders(this.ctx, place, (call) => ofDisk(calls, place, call), made);
    return await removed.then(...isDone);
  }

  /** Never rejects: what was put into them was synced, or is known not to be. */
  async close(): Promise<void> {
    await Promise.all([...this.folders.values()].map((open) => this.closeOne(open)));
  }

  private async closeOne(open: OpenFolder): Promise<void> {
    await ofDisk(this.calls, open, () => open.folder.handle.close()).catch(() => {});
  }

  private async syncOne(key: string, disk: { mountpoint: string }, call: () => Promise<void>): Promise<void> {
    if (this.failed.has(key)) return;
    try {
      await ofDisk(this.calls, disk, call);
    } catch (error) {
      // nothing was put below one that has been tidied away, since it was empty
      if (codeOf(error) !== 'ENOENT') this.failed.set(key, toError(error));
    }
  }

  /** Of its folder, or of one above that. */
  private failureOf({ mountpoint, path: file }: CopyPlace): Error | undefined {
    for (let dir = path.dirname(file); ; dir = path.dirname(dir)) {
      const failure = this.failed.get(path.join(mountpoint, dir));
      if (failure || dir === '/') return failure;
    }
  }
}

/** @throws Error when it is not where it was, so that what was put into it is not where it should be */
async function syncInPlace(folder: Folder): Promise<void> {
  await folder.handle.sync();
  checkInPlace(folder);
}

function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(messageOf(thrown), { cause: thrown });
}

/** Did it work out? */
const isDone = [() => true, () => false] as const;
