/** Trouble on the restore disks: no room, and people who change what they were given. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:fs';
import { appendFile, lstat, lutimes, open, rm, unlink, writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { UNPRIVILEGED_UID } from '../support/unprivileged-user.js';
import { tellOnTape } from './copies.js';
import { pickWeighted, type Random } from './random.js';
import type { World } from './world.js';

/** Longer than the lease of an engine, as the case may be. */
const SPOILT_MS = { low: 500, high: 8000 };

const BALLAST_PIECE = Buffer.alloc(1024 * 1024);

/** Fills a disk, from outside, with more than its allocation allows for. */
export async function takeRoom(world: World, random: Random): Promise<void> {
  const disk = world.disks.find((candidate) => candidate.ballast !== undefined);
  if (!disk?.ballast || !disk.capacity) return;
  const pieces = random.integer(1, Number(disk.capacity) / BALLAST_PIECE.length);
  await writeFile(disk.ballast, '');
  for (let n = 0; n < pieces; n++) await appendFile(disk.ballast, BALLAST_PIECE); // until ENOSPC, as the case may be
}

export async function dropBallast(world: World): Promise<void> {
  for (const { ballast } of world.disks) if (ballast) await rm(ballast, { force: true });
}

/** A disk takes no writes for a while, or answers nobody: what is on its way waits in the kernel. */
export async function spoilDisk(world: World, random: Random): Promise<void> {
  const fileSystem = world.disks.find((disk) => disk.fileSystem !== undefined)?.fileSystem;
  const forMs = random.integer(SPOILT_MS.low, SPOILT_MS.high);
  const [spoil, mend] = random.pick(SPOILS);
  if (fileSystem === undefined || !(await run(spoil, fileSystem))) return;
  try {
    world.counts.hangs++;
    await sleep(forMs);
  } finally {
    await run(mend, fileSystem);
  }
}

/** Each with what ends it. Nothing may be open for writing when a file system becomes read-only: then it does not. */
const SPOILS: readonly (readonly [string[], string[]])[] = [
  [
    ['mount', '-o', 'remount,ro'],
    ['mount', '-o', 'remount,rw'],
  ],
  [
    ['fsfreeze', '--freeze'],
    ['fsfreeze', '--unfreeze'],
  ],
];

/** @returns whether it went well */
async function run([command = '', ...args]: readonly string[], fileSystem: string): Promise<boolean> {
  const [code] = (await once(spawn(command, [...args, fileSystem], { stdio: 'ignore' }), 'exit')) as [number | null];
  return code === 0;
}

/** Of a disk that may be spoilt just now: a trouble that hangs with it keeps nobody else. */
export async function mendDisks(world: World): Promise<void> {
  for (const { fileSystem } of world.disks) {
    if (fileSystem !== undefined) for (const [, mend] of SPOILS) await run(mend, fileSystem);
  }
}

interface Restored {
  path: string;
  /** Below the mount point. */
  place: string;
  size: bigint;
  mountpoint: string;
}

/** Somebody changes a restored file, or takes it away; an operator may have the catalogue forget that later on. */
export async function touchCopy(world: World, random: Random): Promise<void> {
  const { rows } = await world.ctx.db.pool.query<Restored>(
    `SELECT f.path, coalesce(f.disk_path, f.path) AS place, f.size, d.mountpoint FROM tape_file f JOIN restore_disk d ON d.id = f.disk_id
     WHERE f.stage = 'RESTORED' ORDER BY f.id`,
  );
  const change = pickWeighted(random, CHANGES);
  if (rows.length > 0) {
    const copy = random.pick(rows);
    const place = `${copy.mountpoint}${copy.place}`;
    world.touched.add(place);
    world.touched.add(`${copy.mountpoint}${copy.path}`); // by which its file is known
    if (!(await isStrangers(place))) await change(place);
  }
  if (random.chance(0.3)) await importDoubted(world, random);
}

type Change = (place: string) => Promise<void>;

const CHANGES: readonly (readonly [number, Change])[] = [
  [2, overwrite],
  [1, async (place) => await lutimes(place, new Date(), new Date())],
  [1, async (place) => await unlink(place)],
];

/** The stranger may have exchanged it just now, and what is his is for nobody else to touch. */
async function isStrangers(place: string): Promise<boolean> {
  return (await lstat(place).catch(() => undefined))?.uid === UNPRIVILEGED_UID;
}

/** Never makes a file: it may just have left. */
async function overwrite(place: string): Promise<void> {
  const handle = await open(place, constants.O_RDWR | constants.O_NOFOLLOW);
  try {
    await handle.write('changed by hand');
  } finally {
    await handle.close();
  }
}

/** A file that became UNVERIFIED is on tape all the same, which its operator knows. */
async function importDoubted(world: World, random: Random): Promise<void> {
  const { rows } = await world.ctx.db.pool.query<{ path: string; size: bigint }>(
    `SELECT path, size FROM tape_file WHERE stage IN ('UNVERIFIED', 'ONDISK') AND volume_id IS NOT NULL AND path LIKE '/data/%'
     ORDER BY id`,
  );
  if (rows.length === 0) return;
  const { path, size } = random.pick(rows);
  for (const { mountpoint } of world.disks) {
    const place = `${mountpoint}${path}`;
    if (!world.touched.has(place) || !random.chance(0.5) || (await isStrangers(place))) continue;
    await rm(place, { force: true });
  }
  await tellOnTape(world, [{ path, size }]);
}
