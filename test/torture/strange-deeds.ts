/** The stranger's deeds, one after another, until there is peace; what he has made is looked at in between. */

import { spawnSync } from 'node:child_process';
import { chownSync } from 'node:fs';
import { chmod, lstat, mkdir, readdir } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { UNPRIVILEGED_UID } from '../support/unprivileged-user.js';
import { pickWeighted, type Random } from './random.js';
import type { Belonging, Ground, Stranger } from './stranger.js';
import { findLosses } from './stranger-scan.js';
import type { World } from './world.js';

const PAUSE_MS = { low: 50, high: 700 };
/** Deeds between two looks at all that is his. */
const LOOK_EVERY = 25;
/** Somebody may be putting it back just then. */
const GRACE_MS = 3000;
/** So many things of his are in the way at most, so that something can still be restored. */
const MOST_IN_THE_WAY = 12;
const CHMOD_MS = { low: 100, high: 2500 };

export async function makeStrangeDeeds(world: World, random: Random, signal: AbortSignal): Promise<void> {
  const { stranger } = world;
  if (!stranger) return;
  for (let count = 1; !signal.aborted; count++) {
    await sleep(random.integer(PAUSE_MS.low, PAUSE_MS.high), undefined, { signal }).catch(() => {}); // woken by the end
    const deed =
      stranger.belongings.size > MOST_IN_THE_WAY && random.chance(0.6) ? takeBack : pickWeighted(random, DEEDS);
    await deed(world, stranger, random).catch(() => {}); // what cannot be done just now is left out
    world.counts.strangeDeeds++;
    if (count % LOOK_EVERY === 0) await lookForLosses(stranger);
  }
  stranger.end();
}

async function lookForLosses(stranger: Stranger): Promise<void> {
  const before = await findLosses(stranger);
  if (before.length === 0) return;
  await sleep(GRACE_MS);
  const still = new Set(await findLosses(stranger));
  for (const loss of before) if (still.has(loss)) stranger.losses.add(loss);
}

type Deed = (world: World, stranger: Stranger, random: Random) => Promise<void>;

/** A file of the archive, and where it is, or would be, in a folder that is the stranger's. */
function pickPlace(world: World, { grounds }: Stranger, random: Random): { ground: Ground; place: string } {
  const ground = random.pick(grounds.filter(({ has }) => has === 'files'));
  const below = ground.folder.slice(ground.mountpoint.length);
  const files = [...world.sources.keys()].filter((file) => path.dirname(file) === below);
  const place = ground.mountpoint + random.pick(files);
  world.touched.add(place);
  return { ground, place };
}

/** A folder of Tapegate's in one that is the stranger's; every second one, so that the others stay what they are. */
function pickFolder(world: World, { grounds }: Stranger, random: Random): string {
  const { folder, mountpoint } = random.pick(grounds.filter(({ has }) => has === 'folders'));
  const names = new Set([...world.sources.keys()].filter((file) => file.startsWith('/data/')).map(path.dirname));
  const own = random.pick([...names].sort().filter((_, index) => index % 2 === 0));
  const place = path.join(folder, path.basename(own));
  world.touched.add(place);
  for (const file of world.sources.keys()) if (path.dirname(file) === own) world.touched.add(mountpoint + file);
  return place;
}

async function note(stranger: Stranger, place: string, deed: string, given: object): Promise<boolean> {
  const answer = await stranger.ask(deed, { place, ...given });
  if (!answer?.made || Array.isArray(answer.made)) return false;
  const { ino, kind, content } = answer.made;
  stranger.belongings.set(place, { ino: BigInt(ino), kind, content });
  return true;
}

/** @param place where nothing, or something of Tapegate's, stands */
async function makeSomething(stranger: Stranger, random: Random, place: string, deed: 'put' | 'swap'): Promise<void> {
  const kind = random.pick(['file', 'link', 'link', 'pipe', 'pipe', 'socket']);
  const target = random.pick([stranger.home, path.join(stranger.home, 'nothing'), '/etc/passwd', path.dirname(place)]);
  await note(stranger, place, deed, { kind, target });
}

const isHis = (stranger: Stranger, place: string) => stranger.belongings.has(place);

async function putInTheWay(world: World, stranger: Stranger, random: Random): Promise<void> {
  const { place } = pickPlace(world, stranger, random);
  if (isHis(stranger, place)) return;
  if (random.chance(0.2)) await note(stranger, place, 'folder', {});
  else if (random.chance(0.15)) await makeDevice(stranger, place);
  else await makeSomething(stranger, random, place, 'put');
}

/** Only root makes one; it is given to him. */
async function makeDevice(stranger: Stranger, place: string): Promise<void> {
  if (spawnSync('mknod', [place, 'c', '1', '3'], { stdio: 'ignore' }).status !== 0) return; // not everywhere
  chownSync(place, UNPRIVILEGED_UID, UNPRIVILEGED_UID);
  const { ino } = await lstat(place, { bigint: true });
  stranger.belongings.set(place, { ino, kind: 'device', content: '' });
}

async function exchangeFile(world: World, stranger: Stranger, random: Random): Promise<void> {
  const { place } = pickPlace(world, stranger, random);
  if (isHis(stranger, place)) return;
  if (random.chance(0.5)) await note(stranger, place, 'swap', { kind: 'twin' });
  else await makeSomething(stranger, random, place, 'swap');
}

/** While it is being written, as the case may be. */
async function exchangePartial(_world: World, stranger: Stranger, random: Random): Promise<void> {
  const { folder } = random.pick(stranger.grounds.filter(({ has }) => has === 'files'));
  const parts = (await readdir(folder)).filter((name) => /\.part$/.test(name));
  if (parts.length === 0) return;
  const place = path.join(folder, random.pick(parts));
  if (!isHis(stranger, place))
    await note(stranger, place, 'swap', { kind: random.pick(['file', 'twin', 'pipe', 'link']), target: '/etc/passwd' });
}

/** Names that Tapegate may use next: of a partial file of the same drive, and of a copy that is taken aside. */
async function takeName(world: World, stranger: Stranger, random: Random): Promise<void> {
  const { ground, place: copy } = pickPlace(world, stranger, random);
  const parts = (await readdir(ground.folder)).filter((name) => /^\.tapegate-\d+-\d+-\d+\.part$/.test(name));
  const names = parts.map((name) =>
    name.replace(/^\.tapegate-\d+/, `.tapegate-${random.integer(1, world.sources.size)}`),
  );
  const stats = await lstat(copy, { bigint: true }).catch(() => undefined);
  if (stats) names.push(`.tapegate-removed-${stats.ino}-${stats.mtimeNs}.part`);
  if (names.length === 0) return;
  const place = path.join(ground.folder, random.pick(names));
  if (!isHis(stranger, place)) await note(stranger, place, 'put', { kind: random.pick(['file', 'file', 'pipe']) });
}

async function haveOwn(world: World, stranger: Stranger, random: Random): Promise<void> {
  const { folder } = random.pick(stranger.grounds);
  const place = path.join(folder, `own-${world.counts.strangeDeeds}`);
  if (random.chance(0.4)) await note(stranger, place, 'folder', {});
  else await note(stranger, place, 'put', { kind: 'file' });
}

/** Away from the restore area, with all that is in it. */
async function moveFolder(world: World, stranger: Stranger, random: Random): Promise<void> {
  const place = pickFolder(world, stranger, random);
  if (isHis(stranger, place)) return;
  const to = path.join(stranger.home, `moved-${world.counts.strangeDeeds}`);
  const before = await lstat(place).catch(() => undefined);
  if (!before?.isDirectory() || !(await stranger.ask('rename', { place, to }))) return;
  for (const name of await readdir(to)) {
    stranger.carried.add((await lstat(path.join(to, name), { bigint: true })).ino);
  }
  if (random.chance(0.4)) return;
  if (random.chance(0.4)) await note(stranger, place, 'folder', {});
  else await makeFolderLike(stranger, random, place);
}

async function makeFolderLike(stranger: Stranger, random: Random, place: string): Promise<void> {
  const target = random.pick([stranger.home, path.join(stranger.home, 'nothing'), path.dirname(place)]);
  await note(stranger, place, 'put', { kind: random.pick(['link', 'link', 'pipe', 'file']), target });
}

async function comeFirst(world: World, stranger: Stranger, random: Random): Promise<void> {
  const place = pickFolder(world, stranger, random);
  if (isHis(stranger, place)) return;
  if (random.chance(0.5)) await note(stranger, place, 'folder', {});
  else await makeFolderLike(stranger, random, place);
}

/** His own folder, or one of Tapegate's by whoever may, is open or closed for a while. */
async function changeMode(world: World, stranger: Stranger, random: Random): Promise<void> {
  const { folder, has } = random.pick(stranger.grounds);
  const place = has === 'files' || random.chance(0.3) ? folder : pickFolder(world, stranger, random);
  const stats = await lstat(place);
  if (!stats.isDirectory()) return;
  const mode = stats.mode & 0o7777;
  await chmod(place, random.pick([0o700, 0o775, 0o777, 0o1777, 0o500]));
  await sleep(random.integer(CHMOD_MS.low, CHMOD_MS.high));
  const now = await lstat(place).catch(() => undefined);
  if (now?.ino === stats.ino) await chmod(place, mode);
}

async function takeBack(_world: World, stranger: Stranger, random: Random): Promise<void> {
  const place = random.pick([...stranger.belongings.keys()]);
  const kept = stranger.belongings.get(place) as Belonging;
  stranger.belongings.delete(place); // it may be gone before the answer comes
  if (!(await stranger.ask('remove', { place }))) stranger.belongings.set(place, kept);
}

/** What he may not: the library, the folders in which nobody else may write, and Tapegate's own. */
async function tryDoors(world: World, stranger: Stranger, random: Random): Promise<void> {
  const file = random.pick([...world.sources.keys()]);
  const { mountpoint } = random.pick(world.disks);
  const volume = path.join(world.dataDir, 'library', `TG000${random.integer(1, 4)}`);
  const doors = [
    volume,
    path.join(volume, '00000001'),
    mountpoint,
    path.join(mountpoint, '.tapegate-disk'),
    path.join(mountpoint, '.tapegate-aside'),
  ];
  const place = random.pick([...doors, mountpoint + path.dirname(file).replace('/data', '/late')]);
  await stranger.ask('chmod', { place, mode: 0o777 });
  await stranger.ask('write', { place });
  await stranger.ask('rename', { place, to: path.join(stranger.home, `stolen-${world.counts.strangeDeeds}`) });
  await mkdir(path.join(stranger.home, 'nothing')).catch(() => {}); // a link that led nowhere leads somewhere by now
  await stranger.ask('remove', { place: path.join(stranger.home, 'nothing') });
}

const DEEDS: readonly (readonly [number, Deed])[] = [
  [20, putInTheWay],
  [16, exchangeFile],
  [14, exchangePartial],
  [8, takeName],
  [8, haveOwn],
  [12, moveFolder],
  [8, comeFirst],
  [8, changeMode],
  [25, takeBack],
  [3, tryDoors],
];
