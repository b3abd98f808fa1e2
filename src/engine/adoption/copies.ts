/**
 * Finds the copies of the system before on its restore disks, and gives each a second name where Tapegate has its copies: the same inode,
 * so that nothing is copied, and the system before goes on with the name that it knows.
 */
import type { BigIntStats } from 'node:fs';
import { link, lstat, readlink, realpath, rmdir, unlink } from 'node:fs/promises';
import path from 'node:path';
import type { PoolClient } from 'pg';
import type { Context } from '../../context.js';
import { codeOf, messageOf, UnavailableError } from '../../errors.js';
import {
  forgetOldNames,
  readOldNames,
  readSourceCopies,
  type SourceCopy,
  type TakenCopy,
  takeOverCopies,
} from '../../operations/adoption/copies.js';
import type { Adopting } from '../../operations/adoption/report.js';
import { checksumOf } from '../checksum.js';
import { inodeOf, isSame } from '../disk/copy.js';
import { openFolder } from '../disk/making.js';

const PAGE = 200;

interface Finding {
  adopting: Adopting;
  /** Below which the archive paths of the system before are, as links to its copies. */
  archiveRoot: string;
  /** Mount points of those that are, or would be, none here. */
  refusedDisks: ReadonlySet<string>;
}

export async function adoptSourceCopies(
  ctx: Context,
  client: PoolClient,
  { adopting, archiveRoot, refusedDisks }: Finding,
): Promise<void> {
  for (let after = ''; ; ) {
    const page = await readSourceCopies(client, { after, limit: PAGE, isTrial: adopting.isTrial });
    const taken: TakenCopy[] = [];
    for (const copy of page) {
      const found = await tryTake(ctx, copy, { adopting, archiveRoot, refusedDisks });
      if (found) taken.push(found);
    }
    const done = adopting.isTrial ? new Set(taken.map(({ fileId }) => fileId)) : await noteTaken(ctx, taken);
    for (const { size } of taken.filter(({ fileId }) => done.has(fileId))) {
      adopting.counts.copies++;
      adopting.counts.bytes += size;
    }
    if (page.length < PAGE) return;
    after = page.at(-1)?.path ?? after;
  }
}

async function noteTaken(ctx: Context, taken: readonly TakenCopy[]): Promise<Set<bigint>> {
  return taken.length === 0 ? new Set() : await takeOverCopies(ctx, taken);
}

/** @returns undefined for one that cannot be taken over, which is told */
async function tryTake(
  ctx: Context,
  copy: SourceCopy,
  { adopting, archiveRoot, refusedDisks }: Finding,
): Promise<TakenCopy | undefined> {
  const there = `restored, ${copy.size} bytes`;
  const refuse = (kind: string, problem: string) => {
    adopting.tell({ kind, thing: copy.path, there, here: `on tape: ${problem}` });
    return undefined;
  };
  const { diskId, mountpoint, checksum } = copy;
  if (mountpoint === null || diskId === null || refusedDisks.has(mountpoint)) {
    return refuse(
      'copy-disk',
      `its restore disk ${mountpoint === null ? 'is not noted' : `${mountpoint} is none here`}`,
    );
  }
  try {
    const place = await findCopy(copy.path, mountpoint, archiveRoot);
    if (place === undefined) return refuse('copy-missing', `nothing of it is found on ${mountpoint}`);
    const before = await lstat(place, { bigint: true });
    if (before.size !== copy.size) return refuse('copy-size', `${place} has ${before.size} bytes`);
    const found = checksum === null ? null : await checksumOf(place, checksum);
    if (found !== checksum) return refuse('copy-checksum', `${place} has ${found}, and not ${checksum}`);
    if (!adopting.isTrial) await giveName(ctx, { ...copy, diskId, mountpoint }, place);
    const after = await lstat(place, { bigint: true });
    if (after.ino !== before.ino || after.mtimeNs !== before.mtimeNs || after.size !== before.size) {
      return refuse('copy-changing', `${place} was changed while it was looked at`);
    }
    const traits = { ino: inodeOf(after), mtimeNs: after.mtimeNs, ctimeNs: after.ctimeNs, checksum };
    return { fileId: copy.fileId, size: copy.size, version: copy.version, diskId, place, ...traits };
  } catch (error) {
    if (error instanceof UnavailableError) throw error;
    return refuse('copy-refused', messageOf(error));
  }
}

/**
 * Where the archive path leads, if that is a plain file on the disk; else a file in the place where Tapegate would have it.
 * @returns undefined where there is none
 */
async function findCopy(logicalPath: string, mountpoint: string, archiveRoot: string): Promise<string | undefined> {
  const root = await realpath(mountpoint);
  const target = await targetOf(path.join(archiveRoot, logicalPath));
  for (const candidate of [target, mountpoint + logicalPath]) {
    if (candidate === undefined) continue;
    const stats = await lstat(candidate).catch(ignoreNone);
    if (!stats?.isFile()) continue;
    const real = await realpath(candidate);
    if (real.startsWith(`${root}/`)) return candidate;
  }
  return undefined;
}

/** Where a link leads; undefined where there is none. */
async function targetOf(place: string): Promise<string | undefined> {
  const linked = await readlink(place).catch(ignoreNone);
  return linked === undefined ? undefined : path.resolve(path.dirname(place), linked);
}

function ignoreNone(error: unknown): undefined {
  if (!['ENOENT', 'ENOTDIR', 'EINVAL', 'ELOOP'].includes(codeOf(error) ?? '')) throw error;
}

/** @throws Error where something else has the place */
async function giveName(
  ctx: Context,
  copy: SourceCopy & { diskId: number; mountpoint: string },
  place: string,
): Promise<void> {
  if (path.resolve(place) === path.resolve(copy.mountpoint + copy.path)) return;
  const folder = await openFolder(ctx, copy);
  try {
    const name = path.join(folder.at, path.basename(copy.path));
    try {
      await link(place, name);
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw error;
      const [standing, own] = [await lstat(name, { bigint: true }), await lstat(place, { bigint: true })];
      if (standing.ino !== own.ino) throw new Error(`another file stands at ${copy.mountpoint}${copy.path}`);
    }
    await folder.handle.sync();
  } finally {
    await folder.handle.close();
  }
}

/**
 * Takes the names of before away from copies that were taken over, once the system before is no more: they have their bytes by
 * Tapegate's names. What has such a name by now and is another file stays, and so does a name that the link at the archive path leads to:
 * programs open the file by it until an engine has turned the link.
 * @returns how many names have gone, and how many links have kept theirs
 */
export async function removeOldNames(ctx: Context, archiveRoot: string): Promise<{ names: number; kept: number }> {
  let [names, kept] = [0, 0];
  for (let after = 0n; ; ) {
    const page = await readOldNames(ctx, { after, limit: PAGE });
    const gone: { fileId: bigint; ctimeNs: bigint }[] = [];
    for (const { fileId, path: file, mountpoint, place } of page) {
      if ((await targetOf(path.join(archiveRoot, file))) === path.resolve(place)) {
        kept++;
        continue;
      }
      const [own, old] = await Promise.all([lookAtName(mountpoint + file), lookAtName(place)]);
      if (own && old && own.dev === old.dev && isSame(own, old)) {
        await unlink(place);
        await removeEmptyAbove(place, mountpoint);
        names++;
      }
      const now = await lookAtName(mountpoint + file);
      if (now) gone.push({ fileId, ctimeNs: now.ctimeNs }); // which goes by the number of names, too
    }
    if (gone.length > 0) await forgetOldNames(ctx, gone);
    if (page.length < PAGE) return { names, kept };
    after = page.at(-1)?.fileId ?? after;
  }
}

/** Nobody comes back to folders of the system before that are empty. */
async function removeEmptyAbove(place: string, mountpoint: string): Promise<void> {
  try {
    for (let dir = path.dirname(place); dir.startsWith(`${mountpoint}/`); dir = path.dirname(dir)) await rmdir(dir);
  } catch (error) {
    if (!['ENOTEMPTY', 'EEXIST', 'EBUSY', 'EACCES', 'EPERM', 'ENOENT'].includes(codeOf(error) ?? '')) throw error;
  }
}

async function lookAtName(file: string): Promise<BigIntStats | undefined> {
  return await lstat(file, { bigint: true }).catch(ignoreNone);
}
