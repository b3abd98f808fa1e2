/**
 * Folders that Tapegate has made, as they are noted, are compared with those that are there. Which folder is Tapegate's only its note
 * tells: an empty one that looks the same and is not noted may be anybody's, or was made by an older version.
 */
import { lstat } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../context.js';
import { codeOf, messageOf, TapeError, UnavailableError } from '../../errors.js';
import type { DiskRow } from '../../operations/disks/disks.js';
import {
  type FolderNote,
  forgetFolders,
  listFolderNotes,
  noteMade,
  readFolderNotes,
} from '../../operations/disks/folders.js';
import { findUsedFolders } from '../../operations/doctor/copies.js';
import { type Finding, PASSING_MS } from '../../operations/doctor/findings.js';
import { isNoted, lookAtFolder, removeEmptyFolders, traitsOf } from '../disk/made-folders.js';
import { type MarkedDisk, rootOf } from '../disk/marker.js';
import { openExisting } from '../disk/restore-area.js';
import type { Examination } from './examination.js';

const PAGE = 500;

/**
 * Notes of folders that are not there any more, then empty folders that nobody has noted, or that were left.
 * @param empty folders without anything in them, as they were met, below the mount point
 * @throws TapeError TRANSIENT when the disk is not there
 */
export async function* examineFolders(
  ctx: Context,
  exam: Examination,
  disk: DiskRow,
  empty: readonly string[],
): AsyncGenerator<Finding> {
  const marked = { diskId: disk.id, mountpoint: disk.mountpoint };
  const gone = await findGoneNotes(ctx, marked);
  const found = await findEmpty(ctx, marked, empty);
  if (gone.length === 0 && found.length === 0) return;
  await sleep(PASSING_MS); // what is just being made, or removed, is noted and not there for a moment
  yield* tellGone(ctx, exam, marked, gone);
  yield* tellEmpty(ctx, exam, marked, found);
}

type GoneNote = FolderNote & { found: string };

async function findGoneNotes(ctx: Context, disk: MarkedDisk): Promise<GoneNote[]> {
  const gone: GoneNote[] = [];
  for (let after = ''; ; ) {
    const notes = await listFolderNotes(ctx, { diskId: disk.diskId, after, limit: PAGE });
    gone.push(...(await keepGone(disk, notes)));
    if (notes.length < PAGE) return gone;
    after = notes.at(-1)?.path ?? after;
  }
}

async function keepGone(disk: MarkedDisk, notes: readonly FolderNote[]): Promise<GoneNote[]> {
  const gone: GoneNote[] = [];
  for (const note of notes) {
    const found = await findInstead(disk, note);
    if (found !== undefined) gone.push({ ...note, found });
  }
  return gone;
}

/** What is in the place of a noted folder, for people; undefined where it is there. */
async function findInstead(disk: MarkedDisk, note: FolderNote): Promise<string | undefined> {
  const root = await rootOf(disk);
  try {
    const parent = await openExisting(root, path.dirname(note.path));
    try {
      const stats = await lstat(path.join(parent.at, path.basename(note.path)), { bigint: true });
      if (!stats.isDirectory()) return 'no folder';
      return isNoted(note, stats) ? undefined : 'another folder';
    } finally {
      await parent.handle.close();
    }
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return 'nothing';
    if (error instanceof TapeError && error.errorClass === 'POLICY') return error.message;
    throw error;
  }
}

/** Told as it is now: of what is made again meanwhile, or forgotten, there is another note, or none. */
async function* tellGone(
  ctx: Context,
  exam: Examination,
  disk: MarkedDisk,
  before: readonly GoneNote[],
): AsyncGenerator<Finding> {
  for (let at = 0; at < before.length; at += PAGE) {
    const page = before.slice(at, at + PAGE);
    const paths = page.map((note) => note.path);
    const notes = await readFolderNotes(ctx, disk.diskId, paths);
    const used = await findUsedFolders(ctx, disk.diskId, paths);
    const isStill = (note: GoneNote) => !used.has(note.path) && notes.get(note.path)?.version === note.version;
    const gone = await keepGone(disk, page.filter(isStill));
    const forgotten = exam.repair ? await forgetFolders(ctx, disk.diskId, gone) : new Set<string>();
    for (const { path: dir, found } of gone) {
      const [thing, expected] = [disk.mountpoint + dir, 'the folder that Tapegate has made'];
      yield { kind: 'note-without-folder', thing, expected, found, isRepaired: forgotten.has(dir) };
    }
  }
}

/** What cannot be looked at now is not judged. @throws TapeError TRANSIENT when the disk is not there */
async function look(ctx: Context, disk: MarkedDisk, dir: string): ReturnType<typeof lookAtFolder> {
  return (await lookAtFolder(disk, dir).catch(passOver(ctx, disk.mountpoint + dir))) ?? 'kept';
}

/** What a file system refuses of one folder keeps nothing else from being looked at. */
function passOver(ctx: Context, folder: string): (error: unknown) => undefined {
  return (error) => {
    if (error instanceof TapeError || error instanceof UnavailableError) throw error;
    if (!/^E[A-Z]/.test(codeOf(error) ?? '')) throw error;
    ctx.log.warn({ folder }, `a folder is passed over: ${messageOf(error)}`);
  };
}

/** Those that are as Tapegate makes them. */
async function findEmpty(ctx: Context, disk: MarkedDisk, empty: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  for (const dir of empty) if (typeof (await look(ctx, disk, dir)) === 'object') found.push(dir);
  if (found.length === 0) return found;
  const used = await findUsedFolders(ctx, disk.diskId, found);
  return found.filter((dir) => !used.has(dir));
}

async function* tellEmpty(
  ctx: Context,
  exam: Examination,
  disk: MarkedDisk,
  before: readonly string[],
): AsyncGenerator<Finding> {
  for (let at = 0; at < before.length; at += PAGE) {
    const page = before.slice(at, at + PAGE);
    // before the looks: what is noted later is another folder than the one that was seen
    const notes = await readFolderNotes(ctx, disk.diskId, page);
    const used = await findUsedFolders(ctx, disk.diskId, page);
    for (const dir of page.filter((folder) => !used.has(folder))) {
      const seen = await look(ctx, disk, dir);
      if (typeof seen !== 'object') continue;
      const isOurs = isNoted(notes.get(dir), seen);
      const thing = disk.mountpoint + dir;
      const mends = isOurs ? exam.repair : exam.adopt === true;
      if (mends && !isOurs) await noteMade(ctx, disk.diskId, [{ path: dir, ...traitsOf(seen) }]);
      if (mends) await removeEmptyFolders(ctx, { ...disk, path: path.join(dir, 'file') }).catch(passOver(ctx, thing));
      const isRepaired = mends && (await look(ctx, disk, dir)) === 'missing';
      const expected = isOurs ? 'a copy in a folder that Tapegate has made' : 'a folder that Tapegate has noted';
      yield { kind: isOurs ? 'folder-left' : 'folder-unnoted', thing, expected, found: 'an empty folder', isRepaired };
    }
  }
}
