/** An operator who archives, registers, renames, withdraws and purges files, even while files are being recalled. */
import type { ChildProcess } from 'node:child_process';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { importRows } from '../../src/domain/import/import.js';
import type { CatalogueRow } from '../../src/domain/import/import-rows.js';
import { mutate } from './gateway.js';
import { cliFile, movedServer, runProcess } from './processes.js';
import type { Random } from './random.js';
import { STAGED_PREFIX } from './staging-systems.js';
import { inTurn, type LateTree, VOLUME_BYTES, type World } from './world.js';

/** Import columns that do not change a row. */
export const unchanged = {
  stage: null,
  verified: undefined,
  spotName: undefined,
  volume: undefined,
  position: undefined,
  checksum: undefined,
};

export const numberRows = <T extends object>(rows: readonly T[]) =>
  rows.map((row, index) => ({ line: index + 1, ...row }));

interface CatalogueFile {
  path: string;
  size: bigint;
  volume: string;
  position: bigint;
  checksum: string;
}

/** Reads files for which an SQL condition is true. In the condition, `f` is the file and `v` is the volume. */
async function readFiles({ ctx }: World, condition: string): Promise<CatalogueFile[]> {
  const { rows } = await ctx.db.pool.query<CatalogueFile>(
    `SELECT f.path, f.size, f.position, f.checksum, v.name AS volume FROM tape_file f LEFT JOIN volume v ON v.id = f.volume_id
     WHERE ${condition} ORDER BY f.id`,
  );
  return rows;
}

const KILL_MS = { low: 200, high: 2500 };

/** Archives one more tree. Half of the `archive` commands are killed. */
export async function archiveLate(world: World, random: Random): Promise<void> {
  const tree = world.lateTrees.find(({ isArchived }) => !isArchived);
  const isKilled = random.chance(0.5);
  const afterMs = random.integer(KILL_MS.low, KILL_MS.high);
  if (!tree) return;
  const kill = async (child: ChildProcess) => {
    await sleep(afterMs);
    if (child.exitCode === null && child.signalCode === null && child.kill('SIGKILL')) world.counts.kills++;
  };
  await archive(world, tree, (child) => void (isKilled && kill(child)));
}

/** Archives the remaining trees. @returns the number of trees that are still not archived */
export async function archiveRest(world: World, signal?: AbortSignal): Promise<number> {
  for (const tree of world.lateTrees) if (!tree.isArchived && !signal?.aborted) await archive(world, tree);
  return world.lateTrees.filter((tree) => !tree.isArchived).length;
}

async function archive(world: World, tree: LateTree, onStart: (child: ChildProcess) => void = () => {}): Promise<void> {
  const args = [
    ...movedServer,
    cliFile,
    'archive',
    tree.dir,
    '--prefix',
    tree.prefix,
    '--volume-size',
    String(VOLUME_BYTES),
  ];
  const env = () => ({ DATA_DIR: world.dataDir });
  const code = await runProcess({ name: 'archive', args, env, logDir: world.logDir }, onStart);
  if (code === 0) tree.isArchived = true;
}

/**
 * Returns whether a file may move to another position, because no other catalogue row has the file's position.
 */
export const isMovable = (file: string): boolean => file.startsWith('/data/') && /[05]\.nc$/.test(file);

/**
 * Registers files of the archive under second paths, at stage UNVERIFIED. A quarter of the rows have a wrong checksum.
 */
export async function registerCopies(world: World, random: Random): Promise<void> {
  const { miswritten, sources } = world.observed;
  const files = (await readFiles(world, `f.path LIKE '/data/%' AND v.id IS NOT NULL`)).filter(
    (file) => !isMovable(file.path),
  );
  const isWrong = random.chance(0.25);
  const prefix = `/copies/${random.integer(0, 999_999)}`;
  const copies = random.sample(files, random.integer(1, 3)).map((file): Omit<CatalogueRow, 'line'> => {
    const copy = `${prefix}${file.path}`;
    const source = sources.get(file.path);
    if (isWrong) miswritten.add(copy);
    else if (source) sources.set(copy, source);
    const checksum = isWrong ? `sha256:${'0'.repeat(64)}` : file.checksum;
    return { ...file, path: copy, checksum, stage: 'UNVERIFIED', verified: null, spotName: null };
  });
  await importRows(world.ctx, numberRows(copies));
}

const IS_REGISTERED = `(f.path LIKE '/copies/%' OR f.path LIKE '/named/%')`;

/** Imports that registered files are no longer on their primary disk. */
export const takeFromDisk = (world: World, random: Random): Promise<void> =>
  inTurn(async () => {
    const files = await readFiles(world, `f.stage = 'ONDISK' AND ${IS_REGISTERED}`);
    await setOnTape(world, random.sample(files, random.integer(1, 3)));
  });

/** Imports that files are at stage ONTAPE, without other changes. */
export async function setOnTape(world: World, files: readonly { path: string; size: bigint }[]): Promise<void> {
  const rows = files.map(({ path: name, size }) => ({ ...unchanged, path: name, size, stage: 'ONTAPE' as const }));
  if (rows.length > 0) await importRows(world.ctx, numberRows(rows));
}

const readNamed = (world: World) =>
  readFiles(world, `${IS_REGISTERED} AND v.id IS NOT NULL AND f.position IS NOT NULL AND f.checksum IS NOT NULL`);

/** Renames a registered file or a directory. Often another file then gets the old name. */
export const renameSome = (world: World, random: Random): Promise<void> =>
  inTurn(async () => {
    const rows = await readNamed(world);
    const file = random.pick(rows);
    const from = file.path.split('/').slice(0, 3).join('/');
    const to = `/named/${random.integer(0, 999_999)}`;
    const isWhole = random.chance(0.4);
    const renamed = rows.filter((row) => (isWhole ? row.path.startsWith(`${from}/`) : row.path === file.path));
    for (const row of renamed) copyObserved(world, row.path, to + row.path.slice(from.length));
    const input = isWhole
      ? { from: `${from}/`, to: `${to}/` }
      : { from: file.path, to: to + file.path.slice(from.length) };
    await mutate(world, 'renameFiles', input);
    world.counts.renames += renamed.length;
    if (random.chance(0.6)) await importRows(world.ctx, [{ ...unchanged, ...file, line: 1 }]);
  });

/** Copies the facts about a file's old path to its new path. */
function copyObserved({ observed, disks }: World, from: string, to: string): void {
  const source = observed.sources.get(from);
  if (source) observed.sources.set(to, source);
  for (const known of [observed.miswritten, observed.withdrawn]) if (known.has(from)) known.add(to);
  for (const { mountpoint } of disks)
    if (observed.changedPaths.has(mountpoint + from)) observed.changedPaths.add(mountpoint + to);
}

/** Purges a withdrawn file or a directory. */
export const purgeSome = (world: World, random: Random): Promise<void> =>
  inTurn(async () => {
    const { path: file } = random.pick(await readNamed(world));
    const chosen = random.chance(0.5) ? file : `${path.dirname(file)}/`;
    if (random.chance(0.3)) {
      world.observed.withdrawn.add(file);
      await mutate(world, 'withdrawFiles', { path: file, reason: 'planned' });
    }
    await mutate(world, 'purgeFiles', { path: chosen });
    world.counts.purges++;
  });

async function pickDirectory(world: World, random: Random): Promise<{ directory: string; files: CatalogueFile[] }> {
  const files = await readFiles(world, `f.path LIKE '/data/%'`);
  const directory = `${path.dirname(random.pick(files).path)}/`;
  return { directory, files: files.filter((file) => file.path.startsWith(directory)) };
}

export async function withdrawSome(world: World, random: Random): Promise<void> {
  const { directory, files } = await pickDirectory(world, random);
  const isWhole = random.chance(0.2);
  const chosen = isWhole ? directory : random.pick(files).path;
  for (const file of files) if (isWhole || file.path === chosen) world.observed.withdrawn.add(file.path);
  await mutate(world, 'withdrawFiles', { path: chosen, reason: 'planned' });
  world.counts.withdrawals++;
}

export async function reinstateSome(world: World, random: Random): Promise<void> {
  const files = await readFiles(world, 'f.withdrawn_at IS NOT NULL AND f.purged_at IS NULL');
  if (files.length === 0) return;
  const { path: file } = random.pick(files);
  await mutate(world, 'reinstateFiles', { path: random.chance(0.5) ? file : `${path.dirname(file)}/` });
  world.counts.withdrawals++;
}

/** Imports a complete list of a directory without some files, which withdraws these files. */
export const importComplete = (world: World, random: Random): Promise<void> =>
  inTurn(async () => {
    const { directory, files } = await pickDirectory(world, random);
    const missing = new Set(random.sample(files, random.integer(0, 2)).map((file) => file.path));
    for (const file of missing) world.observed.withdrawn.add(file);
    const listed = files.filter((file) => !missing.has(file.path));
    const rows = numberRows(listed.map(({ path: name, size }) => ({ ...unchanged, path: name, size })));
    const { withdrawn, reinstated } = await importRows(world.ctx, rows, {
      complete: { prefix: directory, mostPercent: 100 },
    });
    if (withdrawn || reinstated) world.counts.withdrawals++;
  });

/**
 * Moves files from one staging library to the other with one import. The first library's system still has the bytes.
 */
export async function moveStaged(world: World, random: Random): Promise<void> {
  const { systems } = world.stagingSystems;
  const { versions, sources } = world.observed;
  const files = await readFiles(world, `f.path LIKE '${STAGED_PREFIX}/%' AND v.id IS NOT NULL`);
  const moves = random.sample(files, random.integer(1, 3)).flatMap(({ path: file, size, volume }) => {
    const bytes = systems.find(({ name }) => name === volume)?.system.tape.get(file);
    const to = systems.find(({ name }) => name !== volume);
    return to && bytes ? [{ file, size, bytes, to }] : [];
  });
  for (const { file, size, bytes, to } of moves) {
    if (!to.system.tape.has(file)) to.system.put(file, bytes);
    const version = { volume: to.name, position: 0n, size, sha256: sources.get(file)?.sha256 ?? '' }; // no positions
    versions.set(file, [...(versions.get(file) ?? []), version]);
  }
  const rows = moves.map(({ file, size, to }) => ({ ...unchanged, path: file, size, volume: to.name }));
  await importRows(world.ctx, numberRows(rows));
  world.counts.moves += moves.length;
}
