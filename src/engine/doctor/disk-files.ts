/**
 * Compares files on the restore disks with the database, and looks for directories that untrusted users can write to.
 */
import type { BigIntStats, Dirent } from 'node:fs';
import { lstat, opendir, realpath } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, messageOf } from '../../core/errors.js';
import type { Context } from '../../domain/context.js';
import type { DiskRow } from '../../domain/disks/disks.js';
import { findKept } from '../../domain/disks/removals.js';
import { readStaleFilesOn, type StaleFile } from '../../domain/disks/stale-files.js';
import type { Finding } from '../../domain/doctor/findings.js';
import {
  type PathRecord,
  type RunningPart,
  readPathRecord,
  readPathRecords,
  readRunning,
} from '../../domain/doctor/recorded-copies.js';
import { findStats, recogniseCopy, removeSeen } from '../../restore-area/copies/copy.js';
import { isSame } from '../../restore-area/entry.js';
import { describeUntrusted, findProblem, readTrusted } from '../../restore-area/exposure.js';
import { findWrongModes, removeEmptyDirectories } from '../../restore-area/made-directories.js';
import { type MarkedDisk, markerName, rootOf } from '../../restore-area/marker.js';
import { findPartial, parsePartialName } from '../../restore-area/partial-file.js';
import type { CopyLocation } from '../../restore-area/restore-area.js';
import { adoptFile } from './adoption.js';
import type { Examination } from './examination.js';

/**
 * Reports directories with a wrong mode, and files that are not recorded copies, including partial files. At the end,
 * reports directories that are unreadable, or that untrusted users can write to.
 * @throws TapeError TRANSIENT if the disk is unavailable
 */
export async function* examineFiles(ctx: Context, exam: Examination, disk: DiskRow): AsyncGenerator<Finding> {
  const marked = { diskId: disk.id, mountpoint: disk.mountpoint };
  const findings: Finding[] = [];
  const trusted: string[] = [];
  const onDirectory = ({ directory, logicalPath, error, untrusted }: VisitedDirectory) => {
    exam.counts.directories++;
    if (error === undefined && untrusted === undefined && logicalPath !== '/') trusted.push(logicalPath);
    const report = (kind: string, expected: string, found: string) =>
      findings.push({ kind, object: directory, expected, found, isRepaired: false });
    if (error !== undefined) report('directory-unreadable', 'a list', codeOf(error) ?? 'an error');
    if (untrusted !== undefined)
      report('directory-open', 'a directory that only trusted users can write to', untrusted);
  };
  for await (const entries of walkDisk(
    marked,
    { others: exam.mountpoints, group: ctx.config.restoreGroup },
    onDirectory,
  )) {
    exam.counts.files += entries.length;
    const partials: { entry: Entry; part: RunningPart }[] = [];
    const others: Entry[] = [];
    for (const entry of entries) {
      const part = entry.kind === 'file' ? parsePartialName(path.basename(entry.path)) : undefined;
      if (part) partials.push({ entry, part });
      else others.push(entry);
    }
    yield* examinePartials(ctx, exam, marked, partials);
    yield* examineEntries(ctx, exam, marked, others);
    if (trusted.length >= BATCH) yield* examineModes(ctx, exam, marked, trusted.splice(0));
  }
  yield* examineModes(ctx, exam, marked, trusted);
  yield* findings;
}

async function* examineModes(
  ctx: Context,
  { repair }: Examination,
  disk: MarkedDisk,
  dirs: readonly string[],
): AsyncGenerator<Finding> {
  for (const { dir, ...result } of await findWrongModes(ctx, disk, { dirs, repair }))
    yield { kind: 'directory-mode', object: disk.mountpoint + dir, ...result };
}

async function* examinePartials(
  ctx: Context,
  exam: Examination,
  disk: MarkedDisk,
  partials: readonly { entry: Entry; part: RunningPart }[],
): AsyncGenerator<Finding> {
  if (partials.length === 0) return;
  const running = await readRunning(
    ctx,
    partials.map(({ part }) => part.fileId),
  );
  for (const { entry, part } of partials.filter(({ part }) => !isOfRunningRecall(running, part))) {
    const location = { ...disk, path: entry.path };
    const seen = await findPartial(location, path.basename(entry.path));
    // read the running recalls after finding the partial file, because a recall that has just started might have
    // created this file
    if (
      !seen ||
      isOfRunningRecall(await readRunning(ctx, [part.fileId]), part) ||
      !(await isStillThere(location, seen))
    )
      continue;
    const result = { size: seen.size, isRepaired: exam.repair && (await tryRemove(ctx, location, seen)) };
    const expected = `a recall of file ${part.fileId} running on drive ${part.driveId} in epoch ${part.epoch}`;
    const found = `a partial file of ${result.size} bytes, but no such recall`;
    yield {
      kind: 'partial-file',
      object: disk.mountpoint + entry.path,
      expected,
      found,
      isRepaired: result.isRepaired,
    };
  }
}

function isOfRunningRecall(parts: readonly RunningPart[], { fileId, driveId, epoch }: RunningPart): boolean {
  return parts.some((part) => part.fileId === fileId && part.driveId === driveId && part.epoch === epoch);
}

async function* examineEntries(
  ctx: Context,
  exam: Examination,
  disk: MarkedDisk,
  entries: readonly Entry[],
): AsyncGenerator<Finding> {
  const records = await readPathRecords(
    ctx,
    entries.map((entry) => entry.path),
  );
  const paths = entries.map((entry) => entry.path);
  const kept = await findKept(ctx, disk.diskId, paths);
  for (const entry of entries) {
    const record = records.get(entry.path);
    if ((record && isExpected(record, disk)) || kept.has(entry.path)) continue;
    const object = disk.mountpoint + entry.path;
    if (record) yield* examineOrphan(ctx, exam, { ...disk, path: entry.path }, record);
    else {
      const found = entry.kind === 'file' ? 'a file' : `a ${entry.kind}`;
      yield { kind: 'unknown-file', object, expected: 'a path in the catalogue', found, isRepaired: false };
    }
  }
}

function isExpected(record: PathRecord, disk: MarkedDisk): boolean {
  return record.diskId === disk.diskId || record.stage === 'RESTORING' || record.stage === 'UNVERIFIED';
}

/**
 * Reports an unrecorded file at a copy's path. Removes the file only if a recall wrote it, because any other file might
 * belong to a user.
 */
async function* examineOrphan(
  ctx: Context,
  exam: Examination,
  location: CopyLocation,
  { fileId }: PathRecord,
): AsyncGenerator<Finding> {
  const stale = exam.repair ? await readStaleFilesOn(ctx, { ...location, fileId }) : [];
  const stats = await findStats(location);
  // read the catalogue after examining the file, so that the catalogue entry cannot be older than the file
  const current = stats && (await readPathRecord(ctx, fileId));
  if (!stats || !current || isExpected(current, location) || !(await isStillThere(location, stats))) return;
  const isRepaired =
    ((await isStaleFile(stale, stats)) && (await tryRemove(ctx, location, stats))) ||
    (exam.adopt === true && (await adoptFile(ctx, { ...current, ...location })));
  const elsewhere = current.stage === 'RESTORED' ? ' on another disk' : '';
  const expected = `no copy at this path; the file (${current.size} bytes) is ${current.stage}${elsewhere}`;
  const found = stats.isFile() ? `${stats.size} bytes` : 'not a regular file';
  yield { kind: 'orphan-copy', object: location.mountpoint + location.path, expected, found, isRepaired };
}

async function isStaleFile(stale: readonly StaleFile[], seen: BigIntStats): Promise<boolean> {
  for (const copy of stale.filter(({ ino }) => ino !== null)) {
    const found = await recogniseCopy(copy);
    if (typeof found === 'object' && isSame(found, seen)) return true;
  }
  return false;
}

/**
 * Removes a file, and logs any error.
 * @returns false if the file has changed or cannot be removed
 */
async function tryRemove(ctx: Context, location: CopyLocation, seen: BigIntStats): Promise<boolean> {
  try {
    const isRemoved = await removeSeen(location, seen);
    if (isRemoved) await removeEmptyDirectories(ctx, location);
    return isRemoved;
  } catch (error) {
    ctx.log.error({ err: error, path: location.path }, `cannot remove an orphaned copy: ${messageOf(error)}`);
    return false;
  }
}

/**
 * Returns whether the file is still on disk and unchanged. An engine might have removed the file, but not yet updated
 * the catalogue.
 */
async function isStillThere(location: CopyLocation, seen: BigIntStats): Promise<boolean> {
  const now = await findStats(location);
  return now !== undefined && isSame(now, seen);
}

/** An entry on a restore disk. `path` is relative to the mount point and begins with a slash. */
interface Entry {
  path: string;
  kind: 'file' | 'link' | 'other';
}

interface VisitedDirectory {
  directory: string;
  /** Path relative to the mount point, with a leading slash. */
  logicalPath: string;
  error?: unknown;
  untrusted?: string | undefined;
}

const BATCH = 500;

/** Name of a directory that the file system itself creates in its root directory. */
const FOREIGN = 'lost+found';

/**
 * Walks all entries on a restore disk, in batches.
 * @param of.others mount points of all restore disks. The walk skips mount points below this disk
 * @param of.group numeric id of the group that TAPEGATE_RESTORE_GROUP names
 * @throws TapeError TRANSIENT if the disk is unavailable
 */
async function* walkDisk(
  disk: MarkedDisk,
  { others, group }: { others: readonly string[]; group: number | undefined },
  onDirectory: (directory: VisitedDirectory) => void,
): AsyncGenerator<Entry[]> {
  const root = await rootOf(disk);
  const otherRoots = new Set(await Promise.all(others.map((other) => realpath(other).catch(() => other))));
  otherRoots.delete(root);
  const trusted = await readTrusted(root, group);
  let batch: Entry[] = [];
  const pending = ['/'];
  for (let directory = pending.pop(); directory !== undefined; directory = pending.pop()) {
    const at = path.join(root, directory);
    try {
      for await (const entry of await opendir(at)) {
        const below = path.join(directory, entry.name);
        if (directory === '/' && (entry.name.startsWith(markerName) || entry.name === FOREIGN)) continue;
        if (entry.isDirectory()) {
          if (!otherRoots.has(path.join(root, below))) pending.push(below);
          continue;
        }
        batch.push({ path: below, kind: kindOf(entry) });
        if (batch.length < BATCH) continue;
        yield batch;
        batch = [];
      }
      const problem = directory === '/' ? undefined : findProblem({ directory: at, root }, await lstat(at), trusted);
      onDirectory({ directory: at, logicalPath: directory, untrusted: problem && describeUntrusted(problem) });
    } catch (error) {
      // a directory name that is not UTF-8 was decoded with replacement characters and cannot be opened
      if (codeOf(error) !== 'ENOENT' || directory.includes('\uFFFD'))
        onDirectory({ directory: at, logicalPath: directory, error });
    }
  }
  if (batch.length > 0) yield batch;
}

function kindOf(entry: Dirent): Entry['kind'] {
  if (entry.isFile()) return 'file';
  return entry.isSymbolicLink() ? 'link' : 'other';
}
