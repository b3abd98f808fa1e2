/**
 * Finds the copies of the system before on its restore disks, and gives each a second name where Tapegate has its copies: the same inode,
 * so that nothing is copied, and the system before goes on with the name that it knows.
 */
import { link, lstat, realpath } from 'node:fs/promises';
import path from 'node:path';
import type { PoolClient } from 'pg';
import type { Context } from '../../context.js';
import { codeOf, messageOf, UnavailableError } from '../../errors.js';
import { readSourceCopies, type SourceCopy, type TakenCopy, takeOverCopies } from '../../operations/adoption/copies.js';
import type { Adopting } from '../../operations/adoption/report.js';
import { noteTrialCopies } from '../../operations/adoption/unheld.js';
import { checksumOf } from '../checksum.js';
import { inodeOf } from '../disk/copy.js';
import { openFolder } from '../disk/made-folders.js';
import { ignoreNone, isSameName, targetOf } from './names.js';

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
    const taken: FoundCopy[] = [];
    for (const copy of page) {
      const found = await tryTake(ctx, copy, { adopting, archiveRoot, refusedDisks });
      if (found) taken.push(found);
    }
    const done = adopting.isTrial ? await noteTrial(client, page, taken) : await noteTaken(ctx, taken);
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

async function noteTrial(
  client: PoolClient,
  page: readonly SourceCopy[],
  taken: readonly FoundCopy[],
): Promise<Set<bigint>> {
  const paths = new Set(taken.map(({ path: file }) => file));
  await noteTrialCopies(
    client,
    page.filter((copy) => paths.has(copy.path)),
  );
  return new Set(taken.map(({ fileId }) => fileId));
}

type FoundCopy = TakenCopy & Pick<SourceCopy, 'path'>;

/** @returns undefined for one that cannot be taken over, which is told */
async function tryTake(
  ctx: Context,
  copy: SourceCopy,
  { adopting, archiveRoot, refusedDisks }: Finding,
): Promise<FoundCopy | undefined> {
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
    const old = (await isSameName(place, mountpoint + copy.path)) ? null : place;
    return { ...copy, diskId, place: old, ...traits };
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

/** @throws Error where something else has the place */
async function giveName(
  ctx: Context,
  copy: SourceCopy & { diskId: number; mountpoint: string },
  place: string,
): Promise<void> {
  if (await isSameName(place, copy.mountpoint + copy.path)) return;
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
