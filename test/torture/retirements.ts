/**
 * An operator who takes volumes out of the archive, and has them used again, whatever is recalled from them just then: of those that renewals.ts
 * has written. What was nowhere else is written once more, later.
 */
import { graphql } from './gateway.js';
import { inTurn } from './in-turn.js';
import type { Random } from './random.js';
import type { World } from './world.js';

const RETIRE = 'mutation ($input: RetireVolumeInput!) { result: retireVolume(input: $input) { __typename } }';
const REINSTATE = 'mutation ($name: String!) { result: reinstateVolume(name: $name) { __typename } }';

const USED = 0.8;
const WITHDRAWN = 0.3;
const BACK = 0.5;

/** Names of volumes that are read and written by renewals.ts and volume-moves.ts alone. */
export const OWN_VOLUMES = '^(MV|CP)[0-9]{6}$';

export const retireVolume = (world: World, random: Random): Promise<void> => inTurn(() => retireOne(world, random));

async function retireOne(world: World, random: Random): Promise<void> {
  const { rows } = await world.ctx.db.pool.query<{ name: string; isRetired: boolean; isUsed: boolean }>(
    `SELECT v.name, v.retired_at IS NOT NULL AS "isRetired",
       EXISTS (SELECT FROM tape_file f WHERE f.volume_id = v.id OR f.copy_volume_id = v.id) AS "isUsed"
     FROM volume v WHERE v.name ~ '${OWN_VOLUMES}' ORDER BY v.id`,
  );
  const takesEmpty = !random.chance(USED);
  const volumes = rows.filter(({ isUsed, isRetired }) => takesEmpty || isUsed || isRetired);
  if (volumes.length === 0) return;
  const { name, isRetired } = random.pick(volumes);
  if (isRetired && random.chance(BACK)) {
    await graphql(world, REINSTATE, { name }, world.callers.operator.secret);
    world.counts.retirements++;
    return;
  }
  await retire(world, name, random.chance(WITHDRAWN));
}

/** Until an answer says that it is done, it may be done at any time, and by halves. */
async function retire(world: World, name: string, withdraw: boolean): Promise<void> {
  const wasOpen = world.openRetirements.has(name);
  world.openRetirements.add(name);
  if (withdraw) for (const path of await listOn(world, name)) world.withdrawn.add(path);
  const input = { name, withdraw, why: 'planned' };
  const { __typename: told } = await graphql<{ __typename: string }>(
    world,
    RETIRE,
    { input },
    world.callers.operator.secret,
  );
  if (told === 'RetiredVolume') world.counts.retirements++;
  const isDone = told === 'RetiredVolume' || !(await hasLeft(world, name));
  if (isDone && !wasOpen) world.openRetirements.delete(name);
}

async function listOn(world: World, name: string): Promise<string[]> {
  const { rows } = await world.ctx.db.pool.query<{ path: string }>(
    'SELECT f.path FROM tape_file f JOIN volume v ON v.id IN (f.volume_id, f.copy_volume_id) WHERE v.name = $1',
    [name],
  );
  return rows.map(({ path }) => path);
}

/** It is said to be retired, whatever is still on it. */
async function hasLeft(world: World, name: string): Promise<boolean> {
  const { rowCount } = await world.ctx.db.pool.query(
    'SELECT FROM volume v WHERE v.name = $1 AND v.retired_at IS NOT NULL',
    [name],
  );
  return rowCount === 1;
}

/** Once nothing is in the way, does what was broken off. @returns on how many volumes it is left to do */
export async function retireRest(world: World): Promise<number> {
  let left = 0;
  for (const name of world.openRetirements) {
    if (!(await hasLeft(world, name)) || (await listOn(world, name)).length === 0) continue;
    await retire(world, name, true);
    if ((await listOn(world, name)).length > 0) left++;
  }
  return left;
}
