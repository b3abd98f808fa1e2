/** An operator who withdraws files and brings them back, by hand and by complete lists, whatever is recalled just then. */
import path from 'node:path';
import { importRows } from '../../src/operations/catalogue/import.js';
import { kept } from './copies.js';
import { graphql } from './gateway.js';
import { inTurn } from './in-turn.js';
import type { Random } from './random.js';
import type { World } from './world.js';

const WITHDRAW = 'mutation ($input: WithdrawFilesInput!) { result: withdrawFiles(input: $input) { __typename } }';
const REINSTATE = 'mutation ($input: ReinstateFilesInput!) { result: reinstateFiles(input: $input) { __typename } }';

interface Placed {
  path: string;
  size: bigint;
}

async function readFolder(world: World, random: Random): Promise<{ folder: string; files: Placed[] }> {
  const { rows } = await world.ctx.db.pool.query<Placed>(
    `SELECT path, size FROM tape_file WHERE path LIKE '/data/%' ORDER BY id`,
  );
  const folder = `${path.dirname(random.pick(rows).path)}/`;
  return { folder, files: rows.filter((file) => file.path.startsWith(folder)) };
}

/** A file, or all of a folder. */
export async function withdrawSome(world: World, random: Random): Promise<void> {
  const { folder, files } = await readFolder(world, random);
  const isWhole = random.chance(0.2);
  const chosen = isWhole ? folder : random.pick(files).path;
  // before it is sent: the answer may be lost, and the change not
  for (const file of files) if (isWhole || file.path === chosen) world.withdrawn.add(file.path);
  await graphql(world, WITHDRAW, { input: { path: chosen, why: 'planned' } }, world.callers.operator.secret);
  world.counts.withdrawals++;
}

export async function reinstateSome(world: World, random: Random): Promise<void> {
  const { rows } = await world.ctx.db.pool.query<Placed>(
    'SELECT path, size FROM tape_file WHERE withdrawn_at IS NOT NULL AND forgotten_at IS NULL ORDER BY id',
  );
  if (rows.length === 0) return;
  const { path: file } = random.pick(rows);
  const chosen = random.chance(0.5) ? file : `${path.dirname(file)}/`;
  await graphql(world, REINSTATE, { input: { path: chosen } }, world.callers.operator.secret);
  world.counts.withdrawals++;
}

/** A list of all files of a folder, of which some may be missing. */
export const listCompletely = (world: World, random: Random): Promise<void> => inTurn(() => listFolder(world, random));

async function listFolder(world: World, random: Random): Promise<void> {
  const { folder, files } = await readFolder(world, random);
  const missing = new Set(random.sample(files, random.integer(0, 2)).map((file) => file.path));
  for (const file of missing) world.withdrawn.add(file);
  const rows = files
    .filter((file) => !missing.has(file.path))
    .map(({ path: file, size }, index) => ({ line: index + 1, path: file, size, stage: null, ...kept }));
  const { withdrawn, reinstated } = await importRows(world.ctx, rows, {
    complete: { prefix: folder, mostPercent: 100 },
  });
  if (withdrawn || reinstated) world.counts.withdrawals++;
}
