/** Compares files and partial files on the restore disks with the database, and looks for untrusted directories. */
import type { BigIntStats, Dirent } from 'node:fs';
import { lstat, opendir, realpath } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, messageOf } from '../../core/errors.js';
import type { Context } from '../../domain/context.js';
import type { DiskRow } from '../../domain/disks/disks.js';
import { findKept } from '../../domain/disks/removals.js';
import { readStaleFilesOn, type StaleFile } from '../../domain/disks/stale-files.js';
import { type PlaceNote, type RunningPart, readNote, readNotes, readRunning } from '../../domain/doctor/copies.js';
import type { Finding } from '../../domain/doctor/findings.js';
import { findStats, recogniseCopy, removeSeen } from '../../restore-area/copy.js';
import { isSame } from '../../restore-area/entry.js';
import { describeUntrusted, findProblem, readTrusted } from '../../restore-area/exposure.js';
import { removeEmptyFolders } from '../../restore-area/made-folders.js';
import { type MarkedDisk, markerName, rootOf } from '../../restore-area/marker.js';
import { lookBeside, parsePartialName } from '../../restore-area/partial-file.js';
import type { CopyPlace } from '../../restore-area/restore-area.js';
import { adoptFile } from './adoption.js';
import type { Examination } from './examination.js';

/**
 * Reports files that are not recorded copies: partial files, copies of files recorded elsewhere, unknown files. Then
 * reports unreadable or untrusted directories.
 * @throws TapeError TRANSIENT if the disk is absent
 */
export async function* examineFiles(ctx: Context, exam: Examination, disk: DiskRow): AsyncGenerator<Finding> {
  const marked = { diskId: disk.id, mountpoint: disk.mountpoint };
  const folders: Finding[] = [];
  const onFolder = ({ folder, error, untrusted }: MetFolder) => {
    exam.counts.folders++;
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
}

/** Reports partial files without a running recall, which killed processes left. */
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
    // after the lookup: a recall that started meanwhile may use the same name
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
  const paths = entries.map((entry) => entry.path);
  const kept = await findKept(ctx, disk.diskId, paths);
  for (const entry of entries) {
    const note = notes.get(entry.path);
    if ((note && isExpected(note, disk)) || kept.has(entry.path)) continue;
    const thing = disk.mountpoint + entry.path;
    if (note) yield* examineOrphan(ctx, exam, { ...disk, path: entry.path }, note);
    else {
      const found = entry.kind === 'file' ? 'a file' : `a ${entry.kind}`;
      yield { kind: 'unknown-file', thing, expected: 'a path of the catalogue', found, isRepaired: false };
    }
  }
}

/** Whether a file may be in place on this disk: a recorded or changed copy, or one that is being restored. */
function isExpected(note: PlaceNote, disk: MarkedDisk): boolean {
  return note.diskId === disk.diskId || note.stage === 'RESTORING' || note.stage === 'UNVERIFIED';
}

/** Reports an unrecorded file in a copy's place. It may be a user's: only files that a recall left are removed. */
async function* examineOrphan(
  ctx: Context,
  exam: Examination,
  place: CopyPlace,
  { fileId }: PlaceNote,
): AsyncGenerator<Finding> {
  const left = exam.repair ? await readStaleFilesOn(ctx, { ...place, fileId }) : [];
  const stats = await findStats(place);
  const note = stats && (await readNote(ctx, fileId)); // after the lookup, so that the file seen is not a newer copy
  if (!stats || !note || isExpected(note, place) || !(await isStillThere(place, stats))) return;
  const isRepaired =
    ((await isStaleFile(left, stats)) && (await tryRemove(ctx, place, stats))) ||
    (exam.adopt === true && (await adoptFile(ctx, { ...note, ...place })));
  const elsewhere = note.stage === 'RESTORED' ? ' on another disk' : '';
  const expected = `nothing, the file of ${note.size} bytes being ${note.stage}${elsewhere}`;
  const found = stats.isFile() ? `${stats.size} bytes` : 'no plain file';
  yield { kind: 'orphan-copy', thing: place.mountpoint + place.path, expected, found, isRepaired };
}

/** Whether the file seen was left by a recall, with its bytes. */
async function isStaleFile(left: readonly StaleFile[], seen: BigIntStats): Promise<boolean> {
  for (const copy of left.filter(({ ino }) => ino !== null)) {
    const found = await recogniseCopy(copy);
    if (typeof found === 'object' && isSame(found, seen)) return true;
  }
  return false;
}

/** @returns false if the removal failed, or the file has changed; continues in any case */
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

/** A file that was being removed is gone by now: removal precedes the change in the catalogue. */
async function isStillThere(place: CopyPlace, seen: BigIntStats): Promise<boolean> {
  const now = await findStats(place);
  return now !== undefined && isSame(now, seen);
}

/** An entry on a disk; `path` is below the mount point, like a logical path. */
interface Entry {
  path: string;
  kind: 'file' | 'link' | 'other';
}

interface MetFolder {
  /** Path on disk. */
  folder: string;
  error?: unknown;
  /** Why it is untrusted; undefined for a trusted one, and for the mount point. */
  untrusted?: string | undefined;
}

const BATCH = 500;

/** Directory of the file system itself, in its root. */
const FOREIGN = 'lost+found';

/**
 * @param of.others other mount points, which are skipped below this one; `group`: TAPEGATE_RESTORE_GROUP
 * @param onFolder called for each directory, except those that have just disappeared
 * @throws TapeError TRANSIENT if the disk is absent
 */
async function* walkDisk(
  disk: MarkedDisk,
  { others, group }: { others: readonly string[]; group: number | undefined },
  onFolder: (folder: MetFolder) => void,
): AsyncGenerator<Entry[]> {
  const root = await rootOf(disk);
  const apart = new Set(await Promise.all(others.map((other) => realpath(other).catch(() => other))));
  apart.delete(root);
  const trusted = await readTrusted(root, group);
  let batch: Entry[] = [];
  const pending = ['/'];
  for (let folder = pending.pop(); folder !== undefined; folder = pending.pop()) {
    const at = path.join(root, folder);
    try {
      for await (const entry of await opendir(at)) {
        const below = path.join(folder, entry.name);
        if (folder === '/' && (entry.name.startsWith(markerName) || entry.name === FOREIGN)) continue;
        if (entry.isDirectory()) {
          if (!apart.has(path.join(root, below))) pending.push(below);
          continue;
        }
        batch.push({ path: below, kind: kindOf(entry) });
        if (batch.length < BATCH) continue;
        yield batch;
        batch = [];
      }
      const problem = folder === '/' ? undefined : findProblem({ directory: at, root }, await lstat(at), trusted);
      onFolder({ folder: at, untrusted: problem && describeUntrusted(problem) });
    } catch (error) {
      // a name that is not UTF-8 was decoded with replacement characters, and cannot be opened
      if (codeOf(error) !== 'ENOENT' || folder.includes('\uFFFD')) onFolder({ folder: at, error });
    }
  }
  if (batch.length > 0) yield batch;
}

function kindOf(entry: Dirent): Entry['kind'] {
  if (entry.isFile()) return 'file';
  return entry.isSymbolicLink() ? 'link' : 'other';
}
