/**
 * What other users of the host may do in the folders of the restore area. Who may write in a folder may exchange what is in it at
 * any moment: a file for another one, a folder for a link. Root, this process's user and who owns the disk's marker (a server
 * may map them to another one) are none of these others.
 */
import { randomUUID } from 'node:crypto';
import type { Stats } from 'node:fs';
import { lstat, open, realpath, unlink } from 'node:fs/promises';
import path from 'node:path';
import { codeOf } from '../../errors.js';
import { markerName } from './marker.js';

/** Others may write in a folder. */
export interface Exposure {
  folder: string;
  /** Who, for people. */
  who: string;
  /** Anybody may exchange what is in it. */
  isEverybodys: boolean;
  /** The group that may, where nobody else may; null otherwise. */
  group: number | null;
  /** Others may put their own things in it, and exchange nobody else's. */
  isSticky: boolean;
}

/** @param owners users who are no others */
export function exposureOf(
  folder: string,
  { uid, gid, mode }: Pick<Stats, 'uid' | 'gid' | 'mode'>,
  owners: ReadonlySet<number>,
): Exposure | undefined {
  const isOwn = owners.has(uid);
  const [mayAll, mayGroup] = [(mode & 0o002) !== 0, (mode & 0o020) !== 0];
  if (isOwn && !mayAll && !mayGroup) return undefined;
  const isSticky = isOwn && (mode & 0o1000) !== 0;
  const bits = `mode ${(mode & 0o7777).toString(8).padStart(4, '0')}`;
  const rest = { folder, isSticky, isEverybodys: mayAll && !isSticky, group: isOwn && !mayAll ? gid : null };
  if (mayAll) return { ...rest, who: `everybody may write in ${folder} (${bits})` };
  if (!isOwn) return { ...rest, who: `${folder} belongs to another user (uid ${uid})` };
  return { ...rest, who: `group ${gid} may write in ${folder} (${bits})` };
}

/** @param root the mount point, without links */
export async function ownersOf(root: string): Promise<Set<number>> {
  const marker = await lstat(path.join(root, markerName)).catch(() => undefined); // it is not marked yet
  const owners = [0, process.geteuid?.(), marker?.uid].filter((uid) => uid !== undefined);
  return new Set(owners);
}

/**
 * Where others may write on the way from the mount point to a folder below it, the worst of it; undefined where nobody may.
 * @param root the mount point, without links
 */
export async function findExposure(root: string, dir: string): Promise<Exposure | undefined> {
  const owners = await ownersOf(root);
  const exposures: Exposure[] = [];
  let folder = root;
  for (const name of ['', ...dir.split('/').filter((part) => part !== '')]) {
    folder = path.join(folder, name);
    const stats = await lstat(folder).catch((error: unknown) => {
      if (codeOf(error) !== 'ENOENT') throw error;
    });
    if (!stats?.isDirectory()) break; // a link, or what is in the way, is told by whoever opens it
    const exposure = exposureOf(folder, stats, owners);
    if (exposure) exposures.push(exposure);
  }
  return exposures.find(({ isEverybodys }) => isEverybodys) ?? exposures[0];
}

/** Why nothing is restored there. */
export function tellEverybodys({ who }: Exposure): string {
  return `${who}, and exchange what is restored there: chmod o-w, or +t, has it taken again`;
}

/**
 * Why a mount point is no place for a restore disk: others may exchange what is in it, or in a folder above it, the whole disk
 * included. A folder in which everybody may put things and take away none but their own (/tmp) is none of these.
 * @param group that may write all the same, as an operator has said
 * @param isNew it has no marker yet: whom its server makes of this process's user is tried
 * @returns for people; undefined where nobody may, or the mount point is not there
 */
export async function findOpenMount(
  mountpoint: string,
  group: number | undefined,
  isNew = false,
): Promise<string | undefined> {
  const root = await realpath(mountpoint).catch(() => undefined);
  if (root === undefined) return undefined;
  const owners = await ownersOf(root);
  if (isNew && !owners.has((await lstat(root)).uid)) owners.add(await tryOwner(root));
  for (let folder = root; ; folder = path.dirname(folder)) {
    const exposure = exposureOf(folder, await lstat(folder), owners);
    const isMeant = exposure?.isSticky || (group !== undefined && exposure?.group === group);
    if (exposure && !isMeant) return exposure.who;
    if (folder === path.dirname(folder)) return undefined;
  }
}

/** @returns who owns what this process makes there */
async function tryOwner(root: string): Promise<number> {
  const file = path.join(root, `${markerName}-${randomUUID()}`);
  const handle = await open(file, 'wx', 0o600);
  try {
    return (await handle.stat()).uid;
  } finally {
    await handle.close();
    await unlink(file);
  }
}
