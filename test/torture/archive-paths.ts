/**
 * Who has things at archive paths, where links to copies belong: files and links of their own come and go there while all else is killed, and
 * dangling ones, which anybody may replace.
 */
import { lstat, mkdir, readdir, readFile, readlink, symlink, unlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isBeingMade } from '../../src/engine/disk/made-folder.js';
import { pickWeighted, type Random } from './random.js';
import type { World } from './world.js';

const PAUSE_MS = { low: 50, high: 500 };
/** So many things are in the way at most, so that most links can be made. */
const MOST = 12;

/** By its place: the content of a file, or the target of a link, with a word before it. */
export type Belongings = Map<string, string>;

/** What there is to be judged of archive paths. */
export interface ArchivePaths {
  /** `LINK_ROOT`; undefined: there is none. */
  root: string | undefined;
  /** What somebody had at an archive path, and was gone or another thing when it was looked for. */
  lost: readonly string[];
}

export const noArchivePaths: ArchivePaths = { root: undefined, lost: [] };

/** All of it ends, looked at and taken away, with the peace. @returns what was lost by then */
export async function useArchivePaths(world: World, random: Random, signal: AbortSignal): Promise<void> {
  const own: Belongings = new Map();
  for (let count = 0; !signal.aborted; count++) {
    await sleep(random.integer(PAUSE_MS.low, PAUSE_MS.high), undefined, { signal }).catch(() => {}); // woken by the end
    const deed = own.size > MOST ? takeAway : pickWeighted(random, DEEDS);
    await deed(world, own, { random, name: `own ${count}` }).catch(() => {}); // a link of Tapegate's stands there
  }
  for (const place of [...own.keys()]) await takeAway(world, own, { random, name: '', place });
}

type Deed = (world: World, own: Belongings, given: { random: Random; name: string; place?: string }) => Promise<void>;

async function pickPlace({ linkRoot, sources }: World, random: Random): Promise<string> {
  const place = linkRoot + random.pick([...sources.keys()]);
  await mkdir(path.dirname(place), { recursive: true });
  return place;
}

async function putFile(world: World, own: Belongings, { random, name }: Parameters<Deed>[2]): Promise<void> {
  const place = await pickPlace(world, random);
  await writeFile(place, name, { flag: 'wx' });
  own.set(place, `file ${name}`);
}

async function putLink(world: World, own: Belongings, { random }: Parameters<Deed>[2]): Promise<void> {
  const place = await pickPlace(world, random);
  await symlink('/etc/passwd', place);
  own.set(place, 'link /etc/passwd');
}

async function putDangling(world: World, _own: Belongings, { random, name }: Parameters<Deed>[2]): Promise<void> {
  await symlink(`/nowhere/${name}`, await pickPlace(world, random));
}

async function takeAway(
  world: World,
  own: Belongings,
  { random, place = random.pick([...own.keys()]) }: Parameters<Deed>[2],
): Promise<void> {
  const due = own.get(place);
  own.delete(place);
  const found = await describeThere(place);
  if (found === due) await unlink(place);
  else world.linksLost.push(`${place} was ${due}, and is ${found}`);
}

async function describeThere(place: string): Promise<string> {
  const stats = await lstat(place).catch(() => undefined);
  if (!stats) return 'nothing';
  return stats.isSymbolicLink() ? `link ${await readlink(place)}` : `file ${await readFile(place, 'utf8')}`;
}

const DEEDS: readonly (readonly [number, Deed])[] = [
  [10, putFile],
  [10, putLink],
  [10, putDangling],
  [20, takeAway],
];

/**
 * Folders below a folder that are as they were when they were being made for links, and have something in them, which nobody but their owner can
 * open. Those that are empty go by themselves after a while.
 */
export async function scanHalfMade(root: string | undefined): Promise<string[]> {
  if (root === undefined) return [];
  const entries = await readdir(root, { withFileTypes: true, recursive: true });
  const folders = entries
    .filter((entry) => entry.isDirectory())
    .map(({ parentPath, name }) => path.join(parentPath, name));
  const found = await Promise.all(folders.map((folder) => lstat(folder, { bigint: true }).catch(() => undefined)));
  return folders.filter((folder, at) => {
    const stats = found[at];
    return stats !== undefined && isBeingMade(stats) && entries.some(({ parentPath }) => parentPath === folder);
  });
}

/** All links below a folder, by their paths below it, with their targets. */
export async function scanLinks(root: string | undefined): Promise<Map<string, string>> {
  const links = new Map<string, string>();
  if (root === undefined) return links;
  for (const entry of await readdir(root, { withFileTypes: true, recursive: true })) {
    if (!entry.isSymbolicLink()) continue;
    const place = path.join(entry.parentPath, entry.name);
    const target = await readlink(place).catch(() => undefined); // it has just gone
    if (target !== undefined) links.set(place.slice(root.length), target);
  }
  return links;
}
