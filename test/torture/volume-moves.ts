/** An operator who has cartridges copied onto others, and says so, whatever is read from them just then. What was copied is often written again. */
import { randomBytes } from 'node:crypto';
import { cp, readdir, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { graphql } from './gateway.js';
import { inTurn } from './in-turn.js';
import type { Random } from './random.js';
import { OWN_VOLUMES } from './retirements.js';
import type { World } from './world.js';

const MOVE = 'mutation ($input: MoveVolumeInput!) { result: moveVolume(input: $input) { __typename } }';
const WRITTEN_AGAIN = 0.5;

interface Placed {
  path: string;
  size: bigint;
  volume: string;
  position: bigint;
}

/** Of those that renewals.ts has written, first or second copies: nobody else registers anything there. */
export const moveVolume = (world: World, random: Random): Promise<void> => inTurn(() => moveOne(world, random));

async function moveOne(world: World, random: Random): Promise<void> {
  const { rows } = await world.ctx.db.pool.query<Placed>(
    `SELECT f.path, f.size, v.name AS volume, p.position
     FROM tape_file f CROSS JOIN LATERAL (VALUES (f.volume_id, f.position), (f.copy_volume_id, f.copy_position)) AS p (volume_id, position)
     JOIN volume v ON v.id = p.volume_id WHERE v.name ~ '${OWN_VOLUMES}' AND p.position IS NOT NULL ORDER BY v.id, f.id`,
  );
  if (rows.length === 0) return;
  const { volume: from } = random.pick(rows);
  const to = `${from.slice(0, 2)}${String(random.integer(0, 999_999)).padStart(6, '0')}`;
  const library = path.join(world.dataDir, 'library');
  await cp(path.join(library, from), path.join(library, to), { recursive: true, errorOnExist: true, force: false });
  // before it is sent: the answer may be lost, and the change not
  for (const file of rows.filter(({ volume }) => volume === from)) {
    const versions = world.versions.get(file.path) ?? [];
    const there = versions.find(({ volume, position }) => volume === from && position === file.position);
    if (there) world.versions.set(file.path, [...versions, { ...there, volume: to }]);
  }
  const { __typename: told } = await graphql<{ __typename: string }>(
    world,
    MOVE,
    { input: { from, to } },
    world.callers.operator.secret,
  );
  if (told !== 'MovedVolume') return;
  world.counts.volumeMoves++;
  if (random.chance(WRITTEN_AGAIN)) await writeAgain(path.join(library, from));
}

/** All of it, with as many bytes, and none of them right. */
async function writeAgain(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    const file = path.join(folder, name);
    const found = await stat(file);
    if (found.isFile()) await writeFile(file, randomBytes(found.size));
  }
}
