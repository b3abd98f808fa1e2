/**
 * An operator who moves files to other volumes, replaces files by new versions, copies volumes, and retires volumes.
 * Files may be read at the same time. Old positions are often overwritten, as on a reused volume.
 * Only this operator writes to these volumes.
 */
import { createHash, randomBytes } from 'node:crypto';
import { cp, readdir, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { importRows } from '../../src/domain/import/import.js';
import { createFirstLibrary } from '../../src/tape/kinds.js';
import { isMovable, numberRows, unchanged } from './catalogue-changes.js';
import type { Version } from './facts.js';
import { mutate } from './gateway.js';
import type { Random } from './random.js';
import { inTurn, type World } from './world.js';

const VERSION_BYTES = { low: 1000, high: 200_000 };
/** Volumes of this operator: MV… for first copies, CP… for second copies. */
const OWN_VOLUMES = '^(MV|CP)[0-9]{6}$';

/** Position of a file. Volume and position are null if the file's volume was retired. */
interface Positioned<Absent = never> {
  path: string;
  size: bigint;
  volume: string | Absent;
  position: bigint | Absent;
}

const isPositioned = (file: Positioned<null>): file is Positioned => file.volume !== null && file.position !== null;
const withNumber = (prefix: string, random: Random) =>
  `${prefix}${String(random.integer(0, 999_999)).padStart(6, '0')}`;
const libraryOf = ({ dataDir }: World) => path.join(dataDir, 'library');

/** Moves one to three files, or replaces their bytes, with one import. */
export const moveFiles = (world: World, random: Random): Promise<void> =>
  inTurn(async () => {
    const { versions, withdrawn } = world.observed;
    const { rows } = await world.ctx.db.pool.query<Positioned<null>>(
      `SELECT f.path, f.size, f.position, v.name AS volume FROM tape_file f LEFT JOIN volume v ON v.id = f.volume_id
       WHERE f.withdrawn_at IS NULL AND f.path LIKE '/data/%' ORDER BY f.id`,
    );
    const movable = rows.filter((file) => isMovable(file.path) && (isPositioned(file) || versions.has(file.path)));
    const files = random.sample(movable, random.integer(1, 3));
    const { volume, written } = chooseVolume(world, random);
    // the volume may be retired at the same time, which withdraws its files
    if (written > 0n) for (const { path: file } of files) withdrawn.add(file);
    const moves: { from: Positioned<null>; to: Version; copy: Version | undefined; hasChecksum: boolean }[] = [];
    for (const from of files) {
      const position = written + BigInt(moves.length + 1);
      const isKept = isPositioned(from) && !random.chance(0.4);
      const size = random.chance(0.5) ? Number(from.size) : random.integer(VERSION_BYTES.low, VERSION_BYTES.high);
      const bytes = isKept ? await readTape(world, from) : randomBytes(size);
      const to = await writeTape(world, volume, position, bytes);
      const copy = random.chance(0.4) ? await writeTape(world, `CP${volume.slice(2)}`, position, bytes) : undefined;
      moves.push({ from, to, copy, hasChecksum: !random.chance(0.2) });
    }
    for (const { from, to, copy } of moves) {
      versions.set(from.path, [...(versions.get(from.path) ?? []), to, ...(copy ? [copy] : [])]);
    }
    const imported = moves.map(({ from, to: { size, position, sha256 }, copy, hasChecksum }) => {
      const checksum = hasChecksum ? `sha256:${sha256}` : null;
      const second = copy && { copyVolume: copy.volume, copyPosition: copy.position };
      return { ...unchanged, ...second, path: from.path, size, volume, position, checksum };
    });
    const { staysWithdrawn } = await importRows(world.ctx, numberRows(imported));
    world.counts.moves += moves.length;
    if (staysWithdrawn !== undefined) return; // some files were not moved
    for (const { from, to, copy, hasChecksum } of moves) {
      if (isPositioned(from) && random.chance(0.5)) await overwrite(world, from);
      // the first copy may be lost if a checksum shows the loss and a second copy exists
      if (copy && hasChecksum && random.chance(0.5)) await overwrite(world, to);
    }
  });

/**
 * Picks a new volume, or a used one that may have been retired.
 * @returns the volume, and the last position that was ever written on the volume
 */
function chooseVolume({ observed }: World, random: Random): { volume: string; written: bigint } {
  const volume = withNumber('MV', random);
  const isAgain = random.chance(0.3);
  const versions = [...observed.versions.values()].flat().filter((version) => version.volume.startsWith('MV'));
  if (!isAgain || versions.length === 0) return { volume, written: 0n };
  const { volume: again } = random.pick(versions);
  const positions = versions.filter((version) => version.volume === again).map(({ position }) => Number(position));
  return { volume: again, written: BigInt(Math.max(...positions)) };
}

const never = new AbortController().signal;

async function writeTape({ dataDir }: World, volume: string, position: bigint, bytes: Buffer): Promise<Version> {
  const library = createFirstLibrary({ dataDir });
  const chunks = async function* () {
    yield bytes;
  };
  await library.write(volume, position, chunks(), never);
  await library.sync?.(volume, never);
  return { volume, position, size: BigInt(bytes.length), sha256: createHash('sha256').update(bytes).digest('hex') };
}

async function readTape({ dataDir }: World, { volume, ...file }: Positioned): Promise<Buffer> {
  const mounted = await createFirstLibrary({ dataDir }).mount(volume, 'operator', never);
  const chunks: Uint8Array[] = [];
  for await (const chunk of mounted.read(file, never)) chunks.push(chunk.slice());
  await mounted.unmount();
  return Buffer.concat(chunks);
}

/** Replaces the bytes at a position by the same number of random bytes. */
async function overwrite(world: World, { volume, position, size }: Omit<Positioned, 'path'>): Promise<void> {
  const file = path.join(libraryOf(world), volume, String(position).padStart(8, '0'));
  await writeFile(file, randomBytes(Number(size)));
}

/** Copies a volume to another one, and often overwrites the old volume. */
export const moveVolume = (world: World, random: Random): Promise<void> =>
  inTurn(async () => {
    const { rows } = await world.ctx.db.pool.query<Positioned>(
      `SELECT f.path, f.size, v.name AS volume, p.position
       FROM tape_file f CROSS JOIN LATERAL (VALUES (f.volume_id, f.position), (f.copy_volume_id, f.copy_position)) AS p (volume_id, position)
       JOIN volume v ON v.id = p.volume_id WHERE v.name ~ '${OWN_VOLUMES}' AND p.position IS NOT NULL ORDER BY v.id, f.id`,
    );
    if (rows.length === 0) return;
    const { volume: from } = random.pick(rows);
    const to = withNumber(from.slice(0, 2), random);
    const [source, target] = [from, to].map((volume) => path.join(libraryOf(world), volume)) as [string, string];
    await cp(source, target, { recursive: true, errorOnExist: true, force: false });
    const { versions } = world.observed;
    for (const file of rows.filter(({ volume }) => volume === from)) {
      const known = versions.get(file.path) ?? [];
      const moved = known.find(({ volume, position }) => volume === from && position === file.position);
      if (moved) versions.set(file.path, [...known, { ...moved, volume: to }]);
    }
    if (!(await mutate(world, 'moveVolume', { from, to }))) return;
    world.counts.volumeMoves++;
    if (!random.chance(0.5)) return;
    for (const name of await readdir(source)) {
      const found = await stat(path.join(source, name));
      if (found.isFile()) await writeFile(path.join(source, name), randomBytes(found.size));
    }
  });

/** Retires a volume, or puts a retired volume back into use. Files without another copy get a new version later. */
export const retireVolume = (world: World, random: Random): Promise<void> =>
  inTurn(async () => {
    const { rows } = await world.ctx.db.pool.query<{ name: string; isRetired: boolean; isUsed: boolean }>(
      `SELECT v.name, v.retired_at IS NOT NULL AS "isRetired",
         EXISTS (SELECT FROM tape_file f WHERE f.volume_id = v.id OR f.copy_volume_id = v.id) AS "isUsed"
       FROM volume v WHERE v.name ~ '${OWN_VOLUMES}' ORDER BY v.id`,
    );
    const takesEmpty = random.chance(0.2);
    const volumes = rows.filter(({ isUsed, isRetired }) => takesEmpty || isUsed || isRetired);
    if (volumes.length === 0) return;
    const { name, isRetired } = random.pick(volumes);
    if (!isRetired || random.chance(0.5)) return await retire(world, name, random.chance(0.3));
    await mutate(world, 'reinstateVolume', { name });
    world.counts.retirements++;
  });

/** Requests a retirement. Before its confirmation, the retirement may take effect late or in part. */
async function retire(world: World, name: string, withdraw: boolean): Promise<void> {
  const { openRetirements, withdrawn } = world.observed;
  const wasOpen = openRetirements.has(name);
  openRetirements.add(name);
  if (withdraw) for (const file of (await readVolume(world, name)).files) withdrawn.add(file);
  const isDone = await mutate(world, 'retireVolume', { name, withdraw, reason: 'planned' });
  if (isDone) world.counts.retirements++;
  if (!wasOpen && (isDone || !(await readVolume(world, name)).isRetired)) openRetirements.delete(name);
}

async function readVolume({ ctx }: World, name: string): Promise<{ isRetired: boolean; files: string[] }> {
  const { rows } = await ctx.db.pool.query<{ isRetired: boolean; path: string | null }>(
    `SELECT v.retired_at IS NOT NULL AS "isRetired", f.path
     FROM volume v LEFT JOIN tape_file f ON v.id IN (f.volume_id, f.copy_volume_id) WHERE v.name = $1`,
    [name],
  );
  return { isRetired: rows[0]?.isRetired ?? false, files: rows.flatMap(({ path: file }) => file ?? []) };
}

/** Repeats interrupted retirements. @returns the number of volumes that remain to retire */
export async function retireRest(world: World): Promise<number> {
  let remaining = 0;
  for (const name of world.observed.openRetirements) {
    const { isRetired, files } = await readVolume(world, name);
    if (!isRetired || files.length === 0) continue;
    await retire(world, name, true);
    if ((await readVolume(world, name)).files.length > 0) remaining++;
  }
  return remaining;
}
