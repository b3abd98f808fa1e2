/** What stands on the restore disks is compared with what the database knows of it. */
import type { BigIntStats } from 'node:fs';
import path from 'node:path';
import type { Context } from '../../context.js';
import { codeOf, messageOf, TapeError } from '../../errors.js';
import type { DiskRow } from '../../operations/disks/disks.js';
import { type LeftBehind, readLeftOn } from '../../operations/disks/left-behind.js';
import { type PlaceNote, type RunningPart, readNote, readNotes, readRunning } from '../../operations/doctor/copies.js';
import type { Finding } from '../../operations/doctor/findings.js';
import { lookAt, recogniseCopy, removeSeen } from '../disk/copy.js';
import { isSame } from '../disk/entry.js';
import { asLeft } from '../disk/left-behind.js';
import { removeEmptyFolders } from '../disk/made-folders.js';
import type { MarkedDisk } from '../disk/marker.js';
import { lookBeside } from '../disk/partial-file.js';
import { parsePartialName } from '../disk/partial-name.js';
import type { CopyPlace } from '../disk/restore-area.js';
import { type Entry, type MetFolder, walkDisk } from '../disk/walk.js';
import { adoptFile } from './adoption.js';
import type { Examination } from './examination.js';
import { examineFolders } from './folders.js';

/**
 * What stands on a disk and is not a copy that is noted: partial files, copies of files that are elsewhere, unknown files.
 * Folders that cannot be read, those that are not trusted, and what is wrong with those that were made here come last.
 * @throws TapeError TRANSIENT when the disk is not there
 */
export async function* examineFiles(ctx: Context, exam: Examination, disk: DiskRow): AsyncGenerator<Finding> {
  const marked = { diskId: disk.id, mountpoint: disk.mountpoint };
  const folders: Finding[] = [];
  const empty: string[] = [];
  const onFolder = ({ folder, path: below, error, untrusted, isEmpty }: MetFolder) => {
    exam.counts.folders++;
    if (isEmpty) empty.push(below);
    const tell = (kind: string, expected: string, found: string) =>
      folders.push({ kind, thing: folder, expected, found, isRepaired: false });
    if (error !== undefined) tell('folder-unreadable', 'a list', codeOf(error) ?? 'an error');
    if (untrusted !== undefined) tell('folder-open', 'a folder that only trusted users may write in', untrusted);
  };
  for await (const entries of walkDisk(
    marked,
    { others: exam.mountpoints, group: ctx.config.restoreGroup },
    onFolder,
  )) {
    exam.counts.files += entries.length;
    const parts: { entry: Entry; part: RunningPart }[] = [];
    const others: Entry[] = [];
    for (const entry of entries) {
      const part = entry.kind === 'file' ? parsePartialName(path.basename(entry.path)) : undefined;
      if (part) parts.push({ entry, part });
      else others.push(entry);
    }
    yield* examineParts(ctx, exam, marked, parts);
    yield* examineEntries(ctx, exam, marked, others);
  }
  yield* folders;
  yield* examineFolders(ctx, exam, disk, empty);
}

/** A partial file belongs to a recall that runs; any other one was left by a process that was killed. */
async function* examineParts(
  ctx: Context,
  exam: Examination,
  disk: MarkedDisk,
  parts: readonly { entry: Entry; part: RunningPart }[],
): AsyncGenerator<Finding> {
  if (parts.length === 0) return;
  const running = await readRunning(
    ctx,
    parts.map(({ part }) => part.fileId),
  );
  for (const { entry, part } of parts.filter(({ part }) => !hasPart(running, part))) {
    const place = { ...disk, path: entry.path };
    const seen = await lookBeside(place, path.basename(entry.path));
    // after the look: a recall that runs by now has begun a partial file of its own, under a name that may be the same
    if (!seen || hasPart(await readRunning(ctx, [part.fileId]), part) || !(await isStillThere(place, seen))) continue;
    const left = { size: seen.size, isRepaired: exam.repair && (await tryRemove(ctx, place, seen)) };
    const expected = `a recall of file ${part.fileId} that runs on drive ${part.driveId} in epoch ${part.epoch}`;
    const found = `none, and ${left.size} bytes`;
    yield { kind: 'partial-file', thing: disk.mountpoint + entry.path, expected, found, isRepaired: left.isRepaired };
  }
}

function hasPart(parts: readonly RunningPart[], { fileId, driveId, epoch }: RunningPart): boolean {
  return parts.some((part) => part.fileId === fileId && part.driveId === driveId && part.epoch === epoch);
}

async function* examineEntries(
  ctx: Context,
  exam: Examination,
  disk: MarkedDisk,
  entries: readonly Entry[],
): AsyncGenerator<Finding> {
  const notes = await readNotes(
    ctx,
    entries.map((entry) => entry.path),
  );
  for (const entry of entries) {
    const note = notes.get(entry.path);
    if (note && isExpected(note, disk)) continue;
    const thing = disk.mountpoint + entry.path;
    if (note) yield* examineOrphan(ctx, exam, { ...disk, path: entry.path }, note);
    else {
      const found = entry.kind === 'file' ? 'a file' : `a ${entry.kind}`;
      yield { kind: 'unknown-file', thing, expected: 'a path of the catalogue', found, isRepaired: false };
    }
  }
}

/**
 * May something stand in the file's place on this disk? A copy that is noted, or said to be somewhere; one that is on its
 * way in or out; and what was changed by hand and left alone.
 */
function isExpected(note: PlaceNote, disk: MarkedDisk): boolean {
  if (note.diskId === disk.diskId || note.isRunning) return true;
  return (
    note.stage === 'RESTORING' || note.stage === 'UNVERIFIED' || (note.stage === 'RESTORED' && note.diskId === null)
  );
}

/**
 * Stands where a copy of the file would, and is none that is noted. It may be somebody's own, whatever its bytes: only what
 * is known to have been left by a recall is removed.
 */
async function* examineOrphan(
  ctx: Context,
  exam: Examination,
  place: CopyPlace,
  { fileId }: PlaceNote,
): AsyncGenerator<Finding> {
  const left = exam.repair ? await readLeftOn(ctx, { ...place, fileId }) : [];
  const stats = await findStats(place);
  const note = stats && (await readNote(ctx, fileId)); // after the look: whatever was seen there is none of its copies
  if (!stats || !note || isExpected(note, place) || !(await isStillThere(place, stats))) return;
  const isRepaired =
    ((await isLeftCopy(left, stats)) && (await tryRemove(ctx, place, stats))) ||
    (exam.adopt === true && (await adoptFile(ctx, { ...note, ...place })));
  const elsewhere = note.stage === 'RESTORED' ? ' on another disk' : '';
  const expected = `nothing, the file of ${note.size} bytes being ${note.stage}${elsewhere}`;
  const found = stats.isFile() ? `${stats.size} bytes` : 'no plain file';
  yield { kind: 'orphan-copy', thing: place.mountpoint + place.path, expected, found, isRepaired };
}

/** Is what was seen what a recall has left, with its bytes? */
async function isLeftCopy(left: readonly LeftBehind[], seen: BigIntStats): Promise<boolean> {
  for (const copy of left.filter(({ ino }) => ino !== null)) {
    const found = await recogniseCopy(asLeft(copy));
    if (typeof found === 'object' && isSame(found, seen)) return true;
  }
  return false;
}

/** @returns false when it could not be removed, or is not what was seen any more, which holds up nothing else */
async function tryRemove(ctx: Context, place: CopyPlace, seen: BigIntStats): Promise<boolean> {
  try {
    const isRemoved = await removeSeen(place, seen);
    if (isRemoved) await removeEmptyFolders(ctx, place);
    return isRemoved;
  } catch (error) {
    ctx.log.error({ err: error, path: place.path }, `it cannot be removed: ${messageOf(error)}`);
    return false;
  }
}

/** Whatever was on its way out when it was seen has gone by now, since that comes before the catalogue says so. */
async function isStillThere(place: CopyPlace, seen: BigIntStats): Promise<boolean> {
  const now = await findStats(place);
  return now !== undefined && isSame(now, seen);
}

/** What stands in the place; undefined for nothing, and where something has taken the place of its folder meanwhile. */
async function findStats(place: CopyPlace): Promise<BigIntStats | undefined> {
  try {
    return await lookAt(place);
  } catch (error) {
    if (error instanceof TapeError && error.errorClass === 'POLICY') return undefined;
    throw error;
  }
}
