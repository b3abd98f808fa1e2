/**
 * Users who remove restored copies of live requests, one by one or a whole directory.
 * Tapegate must notice each removal and recall the file.
 */
import { lstat, rmdir, unlink } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { codeOf } from '../../src/core/errors.js';
import type { Facts, StageEvent } from './facts.js';
import type { Random } from './random.js';
import type { World } from './world.js';

/** A copy that was removed outside Tapegate. */
export interface RemovedCopy {
  fileId: bigint;
  mountpoint: string;
  place: string;
}

const WAIT_MS = 500;
const TRIES = 40;

export async function removeCopies(world: World, random: Random): Promise<void> {
  let held = await readHeld(world);
  for (let triesLeft = TRIES; held.length === 0 && triesLeft > 0; triesLeft--) {
    await sleep(WAIT_MS);
    held = await readHeld(world);
  }
  if (held.length === 0) return;
  const directory = path.dirname(random.pick(held).place);
  const chosen = random.chance(0.3)
    ? held.filter(({ place }) => place.startsWith(`${directory}/`))
    : random.sample(held, random.integer(1, 5));
  for (const copy of chosen) {
    world.counts.removedCopies += (await remove(world, copy)) ? 1 : 0;
  }
}

/**
 * Removes a copy, and the directories above that become empty.
 * @returns false if Tapegate has already removed the copy, or if the disk is read-only
 */
async function remove({ observed }: World, copy: RemovedCopy): Promise<boolean> {
  try {
    await unlink(copy.place);
  } catch {
    return false;
  }
  observed.removedCopies.push(copy);
  for (let above = path.dirname(copy.place); above !== copy.mountpoint; above = path.dirname(above)) {
    try {
      await rmdir(above);
    } catch (error) {
      if (codeOf(error) === 'EROFS') observed.changedPaths.add(above); // the directory stays
      if (codeOf(error) !== 'ENOENT') break; // usually the directory contains other copies
    }
  }
  return true;
}

async function readHeld({ ctx }: World): Promise<RemovedCopy[]> {
  const { rows } = await ctx.db.pool.query<RemovedCopy>(
    `SELECT f.id AS "fileId", d.mountpoint, d.mountpoint || coalesce(f.disk_path, f.path) AS place
     FROM tape_file f JOIN restore_disk d ON d.id = f.disk_id
     WHERE f.stage = 'RESTORED' AND EXISTS (SELECT FROM live_request_file h WHERE h.file_id = f.id) ORDER BY f.id`,
  );
  return rows;
}

/** @returns the number of removed copies that the database still records as present */
export async function countUnnoticed({ ctx, observed }: World): Promise<number> {
  const ids = observed.removedCopies.map(({ fileId }) => fileId);
  const { rows } = await ctx.db.pool.query<RemovedCopy>(
    `SELECT f.id AS "fileId", d.mountpoint, d.mountpoint || coalesce(f.disk_path, f.path) AS place
     FROM tape_file f JOIN restore_disk d ON d.id = f.disk_id WHERE f.stage = 'RESTORED' AND f.id = ANY($1::bigint[])`,
    [ids],
  );
  let unnoticed = 0;
  for (const { place } of rows) if (!observed.changedPaths.has(place) && !(await isThere(place))) unnoticed++;
  return unnoticed;
}

const isThere = async (place: string) => (await lstat(place).catch(() => undefined)) !== undefined;

/** Finds events that record a removed copy. Returns at most one event of a file for each removed copy of the file. */
export function findRecorded({ stageEvents, observed }: Facts): StageEvent[] {
  const left = new Map<bigint, number>();
  for (const { fileId } of observed.removedCopies) left.set(fileId, (left.get(fileId) ?? 0) + 1);
  return stageEvents.filter(({ fileId, fromStage, toStage, requestIds }) => {
    const removed = left.get(fileId) ?? 0;
    if (removed === 0 || fromStage !== 'RESTORED' || toStage !== 'ONTAPE' || requestIds.length === 0) return false;
    left.set(fileId, removed - 1);
    return true;
  });
}
