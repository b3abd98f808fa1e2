/** Failures of restore disks: full disks, failing file systems, and users who change restored files. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:fs';
import { appendFile, lutimes, open, rm, writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { setOnTape } from './catalogue-changes.js';
import { pickWeighted, type Random, type Weighted } from './random.js';
import type { World } from './world.js';

/** Duration of a failure, often longer than an engine's lease. */
const FAILING_MS = { low: 500, high: 8000 };
const PIECE = Buffer.alloc(1024 * 1024);

/** Fills a disk with a file outside the restore area, so that the disk's allocation no longer fits. */
export async function takeRoom(world: World, random: Random): Promise<void> {
  const disk = world.disks.find(({ ballast }) => ballast !== undefined);
  if (!disk?.ballast || !disk.capacity) return;
  const pieces = random.integer(1, Number(disk.capacity) / PIECE.length);
  await writeFile(disk.ballast, '');
  for (let n = 0; n < pieces; n++) await appendFile(disk.ballast, PIECE); // appending fails when the disk is full
}

export async function freeRoom(world: World): Promise<void> {
  for (const { ballast } of world.disks) if (ballast) await rm(ballast, { force: true });
}

/**
 * Commands that make a file system fail, and commands that repair it.
 * A remount as read-only fails while a file is open for writing.
 */
const FAILURES = [
  { fail: 'mount -o remount,ro', recover: 'mount -o remount,rw' },
  { fail: 'fsfreeze --freeze', recover: 'fsfreeze --unfreeze' },
];

/** Makes a disk read-only or unresponsive for a while. */
export async function failDisk(world: World, random: Random): Promise<void> {
  const fileSystem = world.disks.find((disk) => disk.fileSystem !== undefined)?.fileSystem;
  const forMs = random.integer(FAILING_MS.low, FAILING_MS.high);
  const { fail, recover } = random.pick(FAILURES);
  if (fileSystem === undefined || !(await run(fail, fileSystem))) return;
  try {
    world.counts.hangs++;
    await sleep(forMs);
  } finally {
    await run(recover, fileSystem);
  }
}

async function run(command: string, fileSystem: string): Promise<boolean> {
  const [program = '', ...args] = [...command.split(' '), fileSystem];
  const [code] = (await once(spawn(program, args, { stdio: 'ignore' }), 'exit')) as [number | null];
  return code === 0;
}

/** Repairs all file systems. */
export async function restoreDisks(world: World): Promise<void> {
  for (const { fileSystem } of world.disks) {
    if (fileSystem !== undefined) for (const { recover } of FAILURES) await run(recover, fileSystem);
  }
}

interface Restored {
  path: string;
  copyPath: string;
  mountpoint: string;
}

/** Changes a restored file as a user would. Sometimes also imports that an UNVERIFIED file is on tape. */
export async function changeCopy(world: World, random: Random): Promise<void> {
  const { rows } = await world.ctx.db.pool.query<Restored>(
    `SELECT f.path, coalesce(f.disk_path, f.path) AS "copyPath", d.mountpoint FROM tape_file f JOIN restore_disk d ON d.id = f.disk_id
     WHERE f.stage = 'RESTORED' ORDER BY f.id`,
  );
  const change = pickWeighted(random, CHANGES);
  if (rows.length > 0) {
    const { path, copyPath, mountpoint } = random.pick(rows);
    const place = mountpoint + copyPath;
    world.observed.changedPaths.add(place).add(mountpoint + path);
    await change(place);
  }
  if (random.chance(0.3)) await importDoubted(world, random);
}

const CHANGES: Weighted<(place: string) => Promise<void>> = [
  [2, overwrite],
  [1, (place) => lutimes(place, new Date(), new Date())],
];

/** Overwrites an existing file. Does not create a file, because Tapegate may have just removed the old one. */
async function overwrite(place: string): Promise<void> {
  const handle = await open(place, constants.O_RDWR | constants.O_NOFOLLOW);
  try {
    await handle.write('changed outside Tapegate');
  } finally {
    await handle.close();
  }
}

/** Imports that an UNVERIFIED file is at stage ONTAPE. */
async function importDoubted(world: World, random: Random): Promise<void> {
  const { rows } = await world.ctx.db.pool.query<{ path: string; size: bigint }>(
    `SELECT path, size FROM tape_file WHERE stage IN ('UNVERIFIED', 'ONDISK') AND volume_id IS NOT NULL AND path LIKE '/data/%'
     ORDER BY id`,
  );
  if (rows.length === 0) return;
  const file = random.pick(rows);
  for (const { mountpoint } of world.disks) {
    const place = `${mountpoint}${file.path}`;
    if (!world.observed.changedPaths.has(place) || !random.chance(0.5)) continue;
    await rm(place, { force: true });
  }
  await setOnTape(world, [file]);
}
