/** What the unprivileged user does until the signal: puts things in the way, replaces and moves files and directories, and has own ones. */
import { spawnSync } from 'node:child_process';
import { chownSync } from 'node:fs';
import { chmod, lstat, mkdir, readdir } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { UNPRIVILEGED_UID } from '../support/unprivileged-user.js';
import { pickWeighted, type Random, type Weighted } from './random.js';
import { findLosses, type Possession, type UnprivilegedUser } from './unprivileged-user.js';
import type { World } from './world.js';

const PAUSE_MS = { low: 50, high: 700 };
const CHECK_EVERY = 25;
/** Tapegate may be putting something back. */
const GRACE_MS = 3000;
/** Few enough that files can still be restored. */
const MOST_IN_THE_WAY = 12;
const CHMOD_MS = { low: 100, high: 2500 };

export async function actUnprivileged(world: World, random: Random, signal: AbortSignal): Promise<void> {
  const { unprivileged: user } = world;
  if (!user) return;
  for (let count = 1; !signal.aborted; count++) {
    await sleep(random.integer(PAUSE_MS.low, PAUSE_MS.high), undefined, { signal }).catch(() => {}); // aborted
    const isEnough = user.possessions.size > MOST_IN_THE_WAY && random.chance(0.6);
    const action = isEnough ? removeOwn : pickWeighted(random, ACTIONS);
    await action(world, user, random).catch(() => {}); // not everything is possible at any time
    world.counts.unprivilegedActions++;
    if (count % CHECK_EVERY === 0) await checkLosses(user);
  }
  user.end();
}

async function checkLosses(user: UnprivilegedUser): Promise<void> {
  const before = await findLosses(user);
  if (before.length === 0) return;
  await sleep(GRACE_MS);
  const after = new Set(await findLosses(user));
  for (const loss of before) if (after.has(loss)) user.losses.add(loss);
}

type Action = (world: World, user: UnprivilegedUser, random: Random) => Promise<void>;

const pickGround = ({ grounds }: UnprivilegedUser, random: Random, contains: string) =>
  random.pick(grounds.filter((ground) => ground.contains === contains));

/** Picks the path of a copy in a directory of the user. */
function pickCopy({ observed }: World, user: UnprivilegedUser, random: Random): string {
  const { directory, mountpoint } = pickGround(user, random, 'files');
  const below = directory.slice(mountpoint.length);
  const place = mountpoint + random.pick([...observed.sources.keys()].filter((file) => path.dirname(file) === below));
  observed.changedPaths.add(place);
  return place;
}

/** Picks a directory of Tapegate in one of the user; every second one, so that the others stay what they are. */
function pickDirectory({ observed }: World, user: UnprivilegedUser, random: Random): string {
  const { directory, mountpoint } = pickGround(user, random, 'directories');
  const files = [...observed.sources.keys()].filter((file) => file.startsWith('/data/'));
  const names = [...new Set(files.map((file) => path.dirname(file)))].sort();
  const chosen = random.pick(names.filter((_, index) => index % 2 === 0));
  const place = path.join(directory, path.basename(chosen));
  observed.changedPaths.add(place);
  for (const file of files) if (path.dirname(file) === chosen) observed.changedPaths.add(mountpoint + file);
  return place;
}

async function make(
  user: UnprivilegedUser,
  place: string,
  action: 'put' | 'replace' | 'folder',
  input: object = {},
): Promise<void> {
  if (user.possessions.has(place)) return;
  const made = await user.perform(action, { place, ...input });
  if (made) user.possessions.set(place, { ...made, ino: BigInt(made.ino) });
}

async function makeAny(
  user: UnprivilegedUser,
  random: Random,
  place: string,
  action: 'put' | 'replace',
): Promise<void> {
  const kind = random.pick(['file', 'link', 'link', 'pipe', 'pipe', 'socket']);
  const target = random.pick([user.home, path.join(user.home, 'nothing'), '/etc/passwd', path.dirname(place)]);
  await make(user, place, action, { kind, target });
}

async function putInTheWay(world: World, user: UnprivilegedUser, random: Random): Promise<void> {
  const place = pickCopy(world, user, random);
  if (random.chance(0.2)) await make(user, place, 'folder');
  else if (random.chance(0.15)) await makeDevice(user, place);
  else await makeAny(user, random, place, 'put');
}

/** Only root can make a device. It is given to the user. */
async function makeDevice(user: UnprivilegedUser, place: string): Promise<void> {
  if (user.possessions.has(place)) return;
  if (spawnSync('mknod', [place, 'c', '1', '3'], { stdio: 'ignore' }).status !== 0) return; // not in each container
  chownSync(place, UNPRIVILEGED_UID, UNPRIVILEGED_UID);
  const { ino } = await lstat(place, { bigint: true });
  user.possessions.set(place, { ino, kind: 'device', content: '' });
}

async function replaceCopy(world: World, user: UnprivilegedUser, random: Random): Promise<void> {
  const place = pickCopy(world, user, random);
  if (random.chance(0.5)) await make(user, place, 'replace', { kind: 'twin' });
  else await makeAny(user, random, place, 'replace');
}

/** Often while it is being written. */
async function replacePartial(_world: World, user: UnprivilegedUser, random: Random): Promise<void> {
  const { directory } = pickGround(user, random, 'files');
  const place = path.join(directory, random.pick((await readdir(directory)).filter((name) => /\.part$/.test(name))));
  await make(user, place, 'replace', { kind: random.pick(['file', 'twin', 'pipe', 'link']), target: '/etc/passwd' });
}

/** Takes a name that Tapegate may use next: of a partial file of the same drive, or of a copy that is being removed. */
async function takeName(world: World, user: UnprivilegedUser, random: Random): Promise<void> {
  const copy = pickCopy(world, user, random);
  const directory = path.dirname(copy);
  const parts = (await readdir(directory)).filter((name) => /^\.tapegate-\d+-\d+-\d+\.part$/.test(name));
  const other = `.tapegate-${random.integer(1, world.observed.sources.size)}`;
  const names = parts.map((name) => name.replace(/^\.tapegate-\d+/, other));
  const stats = await lstat(copy, { bigint: true }).catch(() => undefined);
  if (stats) names.push(`.tapegate-removed-${stats.ino}-${stats.mtimeNs}.part`);
  await make(user, path.join(directory, random.pick(names)), 'put', { kind: random.pick(['file', 'file', 'pipe']) });
}

async function makeOwn({ counts }: World, user: UnprivilegedUser, random: Random): Promise<void> {
  const place = path.join(random.pick(user.grounds).directory, `own-${counts.unprivilegedActions}`);
  if (random.chance(0.4)) await make(user, place, 'folder');
  else await make(user, place, 'put', { kind: 'file' });
}

/** Moves a directory with its copies from the restore disk, and often puts something in its place. */
async function moveDirectory(world: World, user: UnprivilegedUser, random: Random): Promise<void> {
  const place = pickDirectory(world, user, random);
  const to = path.join(user.home, `moved-${world.counts.unprivilegedActions}`);
  if (user.possessions.has(place) || !(await lstat(place)).isDirectory()) return;
  if ((await user.perform('rename', { place, to })) === undefined) return;
  for (const name of await readdir(to)) user.moved.add((await lstat(path.join(to, name), { bigint: true })).ino);
  if (random.chance(0.6)) await makeLikeDirectory(user, random, place, 0.4);
}

/** Makes a directory before Tapegate does, or something that is none. */
async function comeFirst(world: World, user: UnprivilegedUser, random: Random): Promise<void> {
  await makeLikeDirectory(user, random, pickDirectory(world, user, random), 0.5);
}

async function makeLikeDirectory(user: UnprivilegedUser, random: Random, place: string, real: number): Promise<void> {
  const target = random.pick([user.home, path.join(user.home, 'nothing'), path.dirname(place)]);
  if (random.chance(real)) await make(user, place, 'folder');
  else await make(user, place, 'put', { kind: random.pick(['link', 'link', 'pipe', 'file']), target });
}

/** Opens or closes a directory for a while: one of the user, or one of Tapegate, as an operator can. */
async function changeMode(world: World, user: UnprivilegedUser, random: Random): Promise<void> {
  const { directory, contains } = random.pick(user.grounds);
  const place = contains === 'files' || random.chance(0.3) ? directory : pickDirectory(world, user, random);
  const stats = await lstat(place);
  if (!stats.isDirectory()) return;
  await chmod(place, random.pick([0o700, 0o775, 0o777, 0o1777, 0o500]));
  await sleep(random.integer(CHMOD_MS.low, CHMOD_MS.high));
  const now = await lstat(place).catch(() => undefined);
  if (now?.ino === stats.ino) await chmod(place, stats.mode & 0o7777);
}

async function removeOwn(_world: World, user: UnprivilegedUser, random: Random): Promise<void> {
  const place = random.pick([...user.possessions.keys()]);
  const possession = user.possessions.get(place) as Possession;
  user.possessions.delete(place); // it may be gone before the result arrives
  if ((await user.perform('remove', { place })) === undefined) user.possessions.set(place, possession);
}

/** Tries to change what only root may: the library, directories that others cannot write, and Tapegate's own. */
async function tryForbidden(world: World, user: UnprivilegedUser, random: Random): Promise<void> {
  const file = random.pick([...world.observed.sources.keys()]);
  const { mountpoint } = random.pick(world.disks);
  const volume = path.join(world.dataDir, 'library', `TG000${random.integer(1, 4)}`);
  const own = ['.tapegate-disk', '.tapegate-aside'].map((name) => path.join(mountpoint, name));
  const late = mountpoint + path.dirname(file).replace('/data', '/late');
  const place = random.pick([volume, path.join(volume, '00000001'), mountpoint, ...own, late]);
  await user.perform('chmod', { place, mode: 0o777 });
  await user.perform('write', { place });
  await user.perform('rename', { place, to: path.join(user.home, `stolen-${world.counts.unprivilegedActions}`) });
  await mkdir(path.join(user.home, 'nothing')).catch(() => {}); // dangling links lead somewhere now
  await user.perform('remove', { place: path.join(user.home, 'nothing') });
}

const ACTIONS: Weighted<Action> = [
  [20, putInTheWay],
  [16, replaceCopy],
  [14, replacePartial],
  [8, takeName],
  [8, makeOwn],
  [12, moveDirectory],
  [8, comeFirst],
  [8, changeMode],
  [25, removeOwn],
  [3, tryForbidden],
];
