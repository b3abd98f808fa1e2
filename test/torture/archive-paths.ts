/**
 * A user who creates files and links at archive paths, where Tapegate creates links to copies.
 * Tapegate may replace dangling links, but must not change other files and links of the user.
 */
import { lstat, mkdir, readFile, readlink, symlink, unlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pickWeighted, type Random } from './random.js';
import type { World } from './world.js';

const PAUSE_MS = { low: 50, high: 500 };
/** Maximum number of the user's files and links, few enough that Tapegate can make most of its links. */
const MOST = 12;

/**
 * Creates files and links at archive paths until the signal aborts. Then checks and removes the created files and
 * links.
 */
export async function useArchivePaths(world: World, random: Random, signal: AbortSignal): Promise<void> {
  /** Content of each file and target of each link, by path. */
  const own = new Map<string, string>();
  const pickPlace = async () => {
    const place = world.linkRoot + random.pick([...world.observed.sources.keys()]);
    await mkdir(path.dirname(place), { recursive: true });
    return place;
  };
  const putFile = async (name: string) => {
    const place = await pickPlace();
    await writeFile(place, name, { flag: 'wx' });
    own.set(place, `file ${name}`);
  };
  const putLink = async () => {
    const place = await pickPlace();
    await symlink('/etc/passwd', place);
    own.set(place, 'link /etc/passwd');
  };
  const putDangling = async (name: string) => await symlink(`/nowhere/${name}`, await pickPlace());
  const remove = async (place = random.pick([...own.keys()])) => {
    const expected = own.get(place);
    own.delete(place);
    const found = await describe(place);
    if (found === expected) await unlink(place);
    else world.observed.archivePaths.losses.push(`${place} was ${expected}, and is ${found}`);
  };
  const removeOne = async () => await remove();
  for (let count = 0; !signal.aborted; count++) {
    await sleep(random.integer(PAUSE_MS.low, PAUSE_MS.high), undefined, { signal }).catch(() => {}); // aborted
    const actions = [
      [10, putFile],
      [10, putLink],
      [10, putDangling],
      [20, removeOne],
    ] as const;
    const action = own.size > MOST ? removeOne : pickWeighted<(name: string) => Promise<void>>(random, actions);
    await action(`own ${count}`).catch(() => {}); // the action fails if the path has a link of Tapegate
  }
  for (const place of [...own.keys()]) await remove(place);
}

async function describe(place: string): Promise<string> {
  const stats = await lstat(place).catch(() => undefined);
  if (!stats) return 'nothing';
  return stats.isSymbolicLink() ? `link ${await readlink(place)}` : `file ${await readFile(place, 'utf8')}`;
}
