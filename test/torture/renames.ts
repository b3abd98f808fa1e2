/**
 * An operator who renames files and folders, has other files take the names of before, and forgets what is withdrawn, whatever is recalled
 * just then. These are files that were registered once more (copies.ts): nobody archives them by their paths again.
 */
import path from 'node:path';
import { importRows } from '../../src/operations/catalogue/import.js';
import { graphql } from './gateway.js';
import { inTurn } from './in-turn.js';
import type { Random } from './random.js';
import type { World } from './world.js';

const RENAME = 'mutation ($input: RenameFilesInput!) { result: renameFiles(input: $input) { __typename } }';
const WITHDRAW = 'mutation ($input: WithdrawFilesInput!) { result: withdrawFiles(input: $input) { __typename } }';
const FORGET = 'mutation ($input: ForgetFilesInput!) { result: forgetFiles(input: $input) { __typename } }';

const WHOLE = 0.4;
const TAKEN_AGAIN = 0.6;
const WITHDRAWN = 0.3;

interface Named {
  path: string;
  size: bigint;
  volume: string;
  position: bigint;
  checksum: string;
}

async function readNamed(world: World): Promise<Named[]> {
  const { rows } = await world.ctx.db.pool.query<Named>(
    `SELECT f.path, f.size, f.position, f.checksum, v.name AS volume FROM tape_file f JOIN volume v ON v.id = f.volume_id
     WHERE (f.path LIKE '/copies/%' OR f.path LIKE '/named/%') AND f.position IS NOT NULL AND f.checksum IS NOT NULL ORDER BY f.id`,
  );
  return rows;
}

export const renameSome = (world: World, random: Random): Promise<void> => inTurn(() => rename(world, random));

async function rename(world: World, random: Random): Promise<void> {
  const rows = await readNamed(world);
  const file = random.pick(rows);
  const [, kind = '', number = '', ...rest] = file.path.split('/');
  const folder = `/${kind}/${number}/`;
  const newFolder = `/named/${random.integer(0, 999_999)}/`;
  const isWhole = random.chance(WHOLE);
  const names = new Map(
    rows
      .filter((row) => (isWhole ? row.path.startsWith(folder) : row.path === file.path))
      .map((row) => [row.path, newFolder + row.path.slice(folder.length)]),
  );
  // before it is sent: the answer may be lost, and the change not
  for (const [from, to] of names) takeOver(world, from, to);
  const input = isWhole ? { from: folder, to: newFolder } : { from: file.path, to: newFolder + rest.join('/') };
  await graphql(world, RENAME, { input }, world.callers.operator.secret);
  world.counts.renames += names.size;
  if (random.chance(TAKEN_AGAIN)) await registerAgain(world, file);
}

/** What is known of a file by its path is known by its other one, too. */
function takeOver(world: World, from: string, to: string): void {
  const source = world.sources.get(from);
  if (source) world.sources.set(to, source);
  for (const known of [world.miswritten, world.withdrawn]) if (known.has(from)) known.add(to);
  for (const { mountpoint } of world.disks) {
    if (world.touched.has(mountpoint + from)) world.touched.add(mountpoint + to);
  }
}

/** Another file of the name that was free by then; where the first one has kept it, nothing new is told of it. */
async function registerAgain(world: World, file: Named): Promise<void> {
  await importRows(world.ctx, [{ ...file, line: 1, stage: null, verified: undefined, spotName: undefined }]);
}

export const forgetSome = (world: World, random: Random): Promise<void> => inTurn(() => forget(world, random));

async function forget(world: World, random: Random): Promise<void> {
  const file = random.pick(await readNamed(world));
  const chosen = random.chance(0.5) ? file.path : `${path.dirname(file.path)}/`;
  if (random.chance(WITHDRAWN)) {
    world.withdrawn.add(file.path);
    await graphql(world, WITHDRAW, { input: { path: file.path, why: 'planned' } }, world.callers.operator.secret);
  }
  await graphql(world, FORGET, { input: { path: chosen } }, world.callers.operator.secret);
  world.counts.forgets++;
}
