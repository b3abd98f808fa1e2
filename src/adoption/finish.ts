/**
 * Finishes an adoption after the source system has been shut down. Releases adopted copies that no request contains,
 * and removes the copies' old names. Removes an old name first and the name's database record afterwards, so that a
 * repeated call can continue after a crash.
 */
import { realpath, rmdir } from 'node:fs/promises';
import path from 'node:path';
import { codeOf, messageOf, UnavailableError } from '../core/errors.js';
import type { AuditedAction } from '../domain/audit/audit.js';
import { auditedRun } from '../domain/audit/audited.js';
import type { Context } from '../domain/context.js';
import type { RecordedCopy } from '../domain/disks/disk-copies.js';
import { releaseCopies } from '../domain/disks/removals.js';
import { pagesByFile } from '../domain/page-keys.js';
import { compareCopy, matchesRecord, statCopy, storedStats } from '../restore-area/copies/copy.js';
import { removeEntry } from '../restore-area/entry.js';
import { lookAtLink, removeLink, syncLinkDirectory } from '../restore-area/links/link.js';
import { rootOf } from '../restore-area/marker.js';
import { confirmOwned, ownershipOf } from '../restore-area/ownership.js';
import { type CopyLocation, ignoreReplaced, withCopy } from '../restore-area/restore-area.js';
import { forgetOldNames, type OldName, type RemovedName, readOldNames, readUnheldAdopted } from './adopted-copies.js';
import { isSameName } from './link-copies.js';
import type { Difference } from './report.js';

export interface Finish {
  names: number;
  /**
   * Number of old names that the command keeps, because links in the archive still point to these names. An engine
   * later replaces the links.
   */
  kept: number;
  left: number;
  released: number;
  bytes: bigint;
}

/** @param report receives each name or copy that could not be removed, with the reason */
export async function finishAdoption(
  ctx: Context,
  archiveRoot: string,
  report: (left: Difference) => void,
): Promise<Finish> {
  await ownershipOf(ctx).require();
  const deed: AuditedAction = { operation: 'adopt', kind: 'NONE', object: '', given: { finish: true } };
  const work = async () => {
    const done: Finish = { names: 0, kept: 0, left: 0, released: 0, bytes: 0n };
    await releaseUnheld(ctx, done, report);
    await removeOldNames(ctx, { archiveRoot, done, report });
    return done;
  };
  return await auditedRun(ctx, deed, work, ({ bytes, ...counts }) => ({ ...counts, bytes: String(bytes) }));
}

/** Releases the adopted copies that no request contains. An engine later removes the copies from disk. */
async function releaseUnheld(ctx: Context, done: Finish, report: (left: Difference) => void): Promise<void> {
  for await (const copies of pagesByFile((page) => readUnheldAdopted(ctx, page))) {
    const [unchanged, changed]: [RecordedCopy[], RecordedCopy[]] = [[], []];
    for (const copy of copies) {
      try {
        ((await compareCopy(copy)) === 'changed' ? changed : unchanged).push(copy);
      } catch (error) {
        const object = `${copy.mountpoint}${copy.path}`;
        report({ kind: 'copy-left', object, there: 'no request', here: messageOf(error) });
      }
    }
    const gone = new Set(await releaseCopies(ctx, { unchanged, changed }));
    for (const { size } of unchanged.filter(({ fileId }) => gone.has(fileId))) {
      done.released++;
      done.bytes += size;
    }
  }
}

async function removeOldNames(
  ctx: Context,
  { archiveRoot, done, report }: { archiveRoot: string; done: Finish; report: (left: Difference) => void },
): Promise<void> {
  for await (const page of pagesByFile((after) => readOldNames(ctx, after))) {
    const gone: RemovedName[] = [];
    for (const name of page) {
      await confirmOwned(ctx);
      const { fate, why = '' } = await removeOldName(name, archiveRoot).catch((error: unknown) => {
        if (error instanceof UnavailableError) throw error;
        return { fate: 'left' as const, why: messageOf(error) };
      });
      if (fate === 'removed') done.names++;
      if (fate === 'kept') done.kept++;
      if (fate === 'left') {
        done.left++;
        report({ kind: 'name-left', object: name.sourcePath, there: `a name of ${name.path ?? 'a file'}`, here: why });
      }
      if (fate === 'removed' || fate === 'gone') gone.push({ ...name, ctimeNs: await readOtherName(name) });
    }
    if (gone.length > 0) await forgetOldNames(ctx, gone);
  }
}

/**
 * Result of removing an old name. `gone` means that no removal was necessary: the old name did not exist, or is now the
 * name of the file's current copy.
 */
interface Fate {
  fate: 'removed' | 'gone' | 'kept' | 'left';
  why?: string;
}

async function removeOldName(name: OldName, archiveRoot: string): Promise<Fate> {
  const { sourcePath, own } = name;
  if (own && (await isSameName(sourcePath, own.mountpoint + own.path))) return { fate: 'gone' };
  const at = await locate(name);
  if (typeof at === 'string') return { fate: 'left', why: at };
  const stats = at && (await statCopy(at));
  if (!at || !stats) return { fate: 'gone' };
  const known = knownOf(name);
  if (!matchesRecord(known, stats))
    return { fate: 'left', why: 'the file is not the adopted file, or was changed after its adoption' };
  const link = await findLinkTo(name, archiveRoot);
  if (link && name.stage !== 'ONTAPE' && name.stage !== 'RESTORING') return { fate: 'kept' };
  if (link) {
    await removeLink(link);
    await syncLinkDirectory(path.dirname(link.at));
  }
  const removed = await withCopy(at, (_file, directory) =>
    removeEntry(directory, path.basename(at.path), (now) => matchesRecord(known, now)),
  );
  if (removed === 'other') return { fate: 'left', why: 'another file has this name now' };
  await removeEmptyAbove(at);
  return { fate: removed === 'removed' ? 'removed' : 'gone' };
}

const knownOf = ({ ino, mtimeNs, size }: OldName) => ({ ino, mtimeNs, size, ctimeNs: null, copyChecksum: null });

/**
 * Returns the path of an old name on its restore disk, with symbolic links resolved.
 * @returns undefined if the parent directory no longer exists; a text with the reason if Tapegate cannot check the old
 * name
 * @throws AbsentError if the restore disk is unavailable
 */
async function locate({ diskId, mountpoint, sourcePath }: OldName): Promise<CopyLocation | string | undefined> {
  if (diskId === null || mountpoint === null) return 'the restore disk of the copy was removed from Tapegate';
  const root = await rootOf({ diskId, mountpoint });
  const isWithin = (name: string) => name.startsWith(`${root}/`) || name.startsWith(`${mountpoint}/`);
  try {
    const file = path.join(await realpath(path.dirname(sourcePath)), path.basename(sourcePath));
    if (!file.startsWith(`${root}/`)) return `the copy is not on the restore disk ${mountpoint}`;
    return { diskId, mountpoint, path: file.slice(root.length) };
  } catch (error) {
    if (!['ENOENT', 'ENOTDIR'].includes(codeOf(error) ?? '')) throw error;
    return isWithin(sourcePath) ? undefined : 'the directory of the file does not exist';
  }
}

async function findLinkTo(name: OldName, archiveRoot: string): Promise<{ at: string; target: string } | undefined> {
  if (name.path === null) return undefined;
  const at = path.join(archiveRoot, name.path);
  const target = (await lookAtLink(at))?.target;
  if (target === undefined || target === null) return undefined;
  return (await isSameName(path.resolve(path.dirname(at), target), name.sourcePath)) ? { at, target } : undefined;
}

/**
 * Returns the change time (ns) of the copy at the copy's path in Tapegate. Returns null if the copy is not at that
 * path.
 */
async function readOtherName(name: OldName): Promise<bigint | null> {
  if (!name.own) return null;
  const stats = await statCopy(name.own).catch(() => undefined);
  return stats && matchesRecord(knownOf(name), stats) ? storedStats(stats).ctimeNs : null;
}

async function removeEmptyAbove(at: CopyLocation): Promise<void> {
  try {
    for (let dir = path.dirname(at.path); dir !== '/'; dir = path.dirname(dir)) {
      await withCopy({ ...at, path: dir }, (file) => rmdir(file));
    }
  } catch (error) {
    if (!['ENOTEMPTY', 'EEXIST', 'EBUSY', 'EACCES', 'EPERM'].includes(codeOf(error) ?? '')) ignoreReplaced(error);
  }
}
