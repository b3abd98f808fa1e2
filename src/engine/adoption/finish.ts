/**
 * The end of an adoption: the system before is no more. What nobody holds of what it had restored is let go, and the names go by which it had
 * its copies. Killed at any line, it is done by the next call: a name is forgotten after it has gone.
 */
import { realpath, rmdir } from 'node:fs/promises';
import path from 'node:path';
import type { Deed } from '../../audit.js';
import type { Context } from '../../context.js';
import { codeOf, messageOf, UnavailableError } from '../../errors.js';
import { forgetOldNames, type GoneName, type OldName, readOldNames } from '../../operations/adoption/old-names.js';
import type { Difference } from '../../operations/adoption/report.js';
import { readUnheldAdopted } from '../../operations/adoption/unheld.js';
import { auditedRun } from '../../operations/audit/audited.js';
import type { NotedCopy } from '../../operations/disks/copies.js';
import { letGo } from '../../operations/disks/removals.js';
import { compareCopy, isKnownBy, lookAt } from '../disk/copy.js';
import { removeEntry } from '../disk/entry.js';
import { rootOf } from '../disk/marker.js';
import { type CopyPlace, withCopy } from '../disk/restore-area.js';
import { lookAtLink, removeLink, syncLinkFolder } from '../links/link.js';
import { isSameName } from './names.js';

const PAGE = 200;

/** What an end comes to. */
export interface Finish {
  /** Names that have gone. */
  names: number;
  /** Names that stay, since links at archive paths lead there: programs open the files by these until an engine has turned them. */
  kept: number;
  /** Names that stay for another reason, each of which is told. */
  left: number;
  /** Copies that nobody holds, which engines remove from now on. */
  released: number;
  /** Bytes of these. */
  bytes: bigint;
}

/** @param tell is given what is left, and why */
export async function finishAdoption(
  ctx: Context,
  archiveRoot: string,
  tell: (left: Difference) => void,
): Promise<Finish> {
  const deed: Deed = { operation: 'adopt', kind: 'NONE', object: '', given: { finish: true } };
  const work = async () => {
    const done: Finish = { names: 0, kept: 0, left: 0, released: 0, bytes: 0n };
    await releaseUnheld(ctx, done, tell);
    await removeOldNames(ctx, { archiveRoot, done, tell });
    return done;
  };
  return await auditedRun(ctx, deed, work, ({ bytes, ...counts }) => ({ ...counts, bytes: String(bytes) }));
}

/** As copies leave whose request has ended: first their files are on tape again, and an engine removes them and gives their room back. */
async function releaseUnheld(ctx: Context, done: Finish, tell: (left: Difference) => void): Promise<void> {
  for (let after = 0n; ; ) {
    const copies = await readUnheldAdopted(ctx, { after, limit: PAGE });
    const [unchanged, changed]: [NotedCopy[], NotedCopy[]] = [[], []];
    for (const copy of copies) {
      try {
        ((await compareCopy(copy)) === 'changed' ? changed : unchanged).push(copy);
      } catch (error) {
        const thing = `${copy.mountpoint}${copy.path}`;
        tell({ kind: 'copy-left', thing, there: 'no request', here: messageOf(error) });
      }
    }
    const gone = new Set(await letGo(ctx, { unchanged, changed }));
    for (const { size } of unchanged.filter(({ fileId }) => gone.has(fileId))) {
      done.released++;
      done.bytes += size;
    }
    if (copies.length < PAGE) return;
    after = copies.at(-1)?.fileId ?? after;
  }
}

/** What has such a name by now and is another file stays. */
async function removeOldNames(
  ctx: Context,
  { archiveRoot, done, tell }: { archiveRoot: string; done: Finish; tell: (left: Difference) => void },
): Promise<void> {
  for (let after = 0n; ; ) {
    const page = await readOldNames(ctx, { after, limit: PAGE });
    const gone: GoneName[] = [];
    for (const name of page) {
      const { fate, why = '' } = await removeOldName(name, archiveRoot).catch((error: unknown) => {
        if (error instanceof UnavailableError) throw error;
        return { fate: 'left' as const, why: messageOf(error) };
      });
      if (fate === 'removed') done.names++;
      if (fate === 'kept') done.kept++;
      if (fate === 'left') {
        done.left++;
        tell({ kind: 'name-left', thing: name.place, there: `a name of ${name.path ?? 'a file'}`, here: why });
      }
      if (fate === 'removed' || fate === 'gone') gone.push({ ...name, ctimeNs: await readOtherName(name) });
    }
    if (gone.length > 0) await forgetOldNames(ctx, gone);
    if (page.length < PAGE) return;
    after = page.at(-1)?.fileId ?? after;
  }
}

/** What became of a name: `gone` had gone before, or is the name of the copy that the file has. */
interface Fate {
  fate: 'removed' | 'gone' | 'kept' | 'left';
  why?: string;
}

async function removeOldName(name: OldName, archiveRoot: string): Promise<Fate> {
  const { place, own } = name;
  if (own && (await isSameName(place, own.mountpoint + own.path))) return { fate: 'gone' };
  const at = await locate(name);
  if (typeof at === 'string') return { fate: 'left', why: at };
  const stats = at && (await lookAt(at));
  if (!at || !stats) return { fate: 'gone' };
  const known = knownOf(name);
  if (!known) return { fate: 'left', why: 'its copy has left, and nobody has noted which file had this name' };
  if (!isKnownBy(known, stats)) return { fate: 'left', why: 'it is not the file that was taken over, or was changed' };
  const link = await findLinkTo(name, archiveRoot);
  if (link && name.stage !== 'ONTAPE' && name.stage !== 'RESTORING') return { fate: 'kept' };
  if (link) {
    // there is no copy here that a link could be turned to: nobody holds the file
    await removeLink(link);
    await syncLinkFolder(path.dirname(link.at));
  }
  const removed = await withCopy(at, (_file, folder) =>
    removeEntry(folder, path.basename(at.path), (now) => isKnownBy(known, now)),
  );
  if (removed === 'other') return { fate: 'left', why: 'another file has the name by now' };
  await removeEmptyAbove(place, at.mountpoint);
  return { fate: removed === 'removed' ? 'removed' : 'gone' };
}

function knownOf({ ino, mtimeNs, size }: OldName): Parameters<typeof isKnownBy>[0] | undefined {
  if (ino === null || mtimeNs === null || size === null) return undefined;
  return { ino, mtimeNs, size, ctimeNs: null, copyChecksum: null };
}

/**
 * Where the name is on its restore disk, by no links.
 * @returns undefined where its folder has gone; why it cannot be looked at, as a text
 * @throws AbsentError when the disk is not there: what is on it stays
 */
async function locate({ diskId, mountpoint, place }: OldName): Promise<CopyPlace | string | undefined> {
  if (diskId === null || mountpoint === null) return 'its restore disk is none of Tapegate’s any more';
  const root = await rootOf({ diskId, mountpoint });
  const isWithin = (name: string) => name.startsWith(`${root}/`) || name.startsWith(`${mountpoint}/`);
  try {
    const file = path.join(await realpath(path.dirname(place)), path.basename(place));
    if (!file.startsWith(`${root}/`)) return `it is not on the restore disk ${mountpoint}`;
    return { diskId, mountpoint, path: file.slice(root.length) };
  } catch (error) {
    if (!['ENOENT', 'ENOTDIR'].includes(codeOf(error) ?? '')) throw error;
    return isWithin(place) ? undefined : 'the way to it is not there';
  }
}

/** The link at the archive path, where it leads to the name. */
async function findLinkTo(name: OldName, archiveRoot: string): Promise<{ at: string; target: string } | undefined> {
  if (name.path === null) return undefined;
  const at = path.join(archiveRoot, name.path);
  const target = (await lookAtLink(at))?.target;
  if (target === undefined || target === null) return undefined;
  return (await isSameName(path.resolve(path.dirname(at), target), name.place)) ? { at, target } : undefined;
}

/** Of the copy that had the name, where it has another one still. */
async function readOtherName(name: OldName): Promise<bigint | null> {
  const known = knownOf(name);
  if (!known || !name.own) return null;
  const stats = await lookAt(name.own).catch(() => undefined); // its bytes are read by whoever compares it next
  return stats && isKnownBy(known, stats) ? stats.ctimeNs : null;
}

/** Nobody comes back to folders of the system before that are empty. */
async function removeEmptyAbove(place: string, mountpoint: string): Promise<void> {
  try {
    for (let dir = path.dirname(place); dir.startsWith(`${mountpoint}/`); dir = path.dirname(dir)) await rmdir(dir);
  } catch (error) {
    if (!['ENOTEMPTY', 'EEXIST', 'EBUSY', 'EACCES', 'EPERM', 'ENOENT'].includes(codeOf(error) ?? '')) throw error;
  }
}
