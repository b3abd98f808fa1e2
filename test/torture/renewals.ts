/**
 * An operator who moves files to other volumes and replaces some by new versions, whatever is recalled just then. What stood at
 * the place before is often overwritten, as on a volume that is used again.
 */
import { createHash, randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { importRows } from '../../src/operations/catalogue/import.js';
import { createBackend } from '../../src/tape/index.js';
import { isMovable, kept } from './copies.js';
import { inTurn } from './in-turn.js';
import type { Random } from './random.js';
import type { Version, World } from './world.js';

const VERSION_BYTES = { low: 1000, high: 200_000 };
const WRITTEN_AGAIN = 0.5;
const WITHOUT_CHECKSUM = 0.2;
const RENEWED = 0.4;
const TWICE = 0.4;
const SPOILED = 0.5;
const USED_AGAIN = 0.3;

interface Placed {
  path: string;
  size: bigint;
  volume: string;
  position: bigint;
}

/** A file that was on a volume that was retired may be nowhere. */
interface Known {
  path: string;
  size: bigint;
  volume: string | null;
  position: bigint | null;
}

/** Moves one to three files, or gives them new bytes of the same size or another one, in one import. */
export const moveFiles = (world: World, random: Random): Promise<void> => inTurn(() => moveSome(world, random));

async function moveSome(world: World, random: Random): Promise<void> {
  const { rows } = await world.ctx.db.pool.query<Known>(
    `SELECT f.path, f.size, f.position, v.name AS volume FROM tape_file f LEFT JOIN volume v ON v.id = f.volume_id
     WHERE f.withdrawn_at IS NULL AND f.path LIKE '/data/%' ORDER BY f.id`,
  );
  const files = random.sample(
    rows.filter((file) => isMovable(file.path) && (hasPlace(file) || world.versions.has(file.path))),
    random.integer(1, 3),
  );
  const { volume, written } = chooseVolume(world, random);
  // who is retiring it may withdraw what comes there meanwhile
  if (written > 0n) for (const { path: file } of files) world.withdrawn.add(file);
  const moves: { from: Known; to: Version; copy: Version | undefined; hasChecksum: boolean }[] = [];
  for (const from of files) {
    const position = written + BigInt(moves.length + 1);
    const to = await writeVersion(world, random, { from, volume, position });
    const copy = random.chance(TWICE) ? await writeCopy(world, { path: from.path, ...to }) : undefined;
    moves.push({ from, to, copy, hasChecksum: !random.chance(WITHOUT_CHECKSUM) });
  }
  // before it is sent: the answer may be lost, and the change not
  for (const { from, to, copy } of moves) {
    world.versions.set(from.path, [...(world.versions.get(from.path) ?? []), to, ...(copy ? [copy] : [])]);
  }
  const { staysWithdrawn } = await importRows(
    world.ctx,
    moves.map(({ from, to: { size, position, sha256 }, copy, hasChecksum }, index) => {
      const checksum = hasChecksum ? `sha256:${sha256}` : null;
      const second = copy && { copyVolume: copy.volume, copyPosition: copy.position };
      return { ...kept, ...second, line: index + 1, path: from.path, size, stage: null, volume, position, checksum };
    }),
  );
  world.counts.moves += moves.length;
  if (staysWithdrawn !== undefined) return; // some are where they were
  for (const { from, to, copy, hasChecksum } of moves) {
    if (hasPlace(from) && random.chance(WRITTEN_AGAIN)) await writeAgain(world, from);
    // what is there once more, and told from anything else, may be lost
    if (copy && hasChecksum && random.chance(SPOILED)) await writeAgain(world, to);
  }
}

const hasPlace = (file: Known): file is Placed => file.volume !== null && file.position !== null;

/** A new one, or one that was written before, which may be retired. @returns its name, and the last of its places that was ever given out */
function chooseVolume(world: World, random: Random): { volume: string; written: bigint } {
  const volume = `MV${String(random.integer(0, 999_999)).padStart(6, '0')}`;
  if (!random.chance(USED_AGAIN)) return { volume, written: 0n };
  const given = [...world.versions.values()].flat().filter((version) => version.volume.startsWith('MV'));
  if (given.length === 0) return { volume, written: 0n };
  const { volume: again } = random.pick(given);
  const positions = given.filter((version) => version.volume === again).map(({ position }) => Number(position));
  return { volume: again, written: BigInt(Math.max(...positions)) };
}

/** The bytes of the file as it is now, or new ones, at a place of their own. */
async function writeVersion(
  world: World,
  random: Random,
  { from, volume, position }: { from: Known; volume: string; position: bigint },
): Promise<Version> {
  const backend = createBackend('directory', { dataDir: world.dataDir });
  const signal = new AbortController().signal;
  const isSameSize = random.chance(0.5);
  const newSize = isSameSize ? Number(from.size) : random.integer(VERSION_BYTES.low, VERSION_BYTES.high);
  const bytes = hasPlace(from) && !random.chance(RENEWED) ? await readWhole(world, from) : randomBytes(newSize);
  await backend.write(volume, position, one(bytes), signal);
  await backend.sync?.(volume, signal);
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  return { volume, position, size: BigInt(bytes.length), sha256 };
}

/** The same bytes on a volume of their own. */
async function writeCopy(world: World, { path: file, ...version }: Version & { path: string }): Promise<Version> {
  const backend = createBackend('directory', { dataDir: world.dataDir });
  const signal = new AbortController().signal;
  const volume = `CP${version.volume.slice(2)}`;
  await backend.write(volume, version.position, one(await readWhole(world, { path: file, ...version })), signal);
  await backend.sync?.(volume, signal);
  return { ...version, volume };
}

async function readWhole(world: World, { volume, ...file }: Placed): Promise<Buffer> {
  const backend = createBackend('directory', { dataDir: world.dataDir });
  const signal = new AbortController().signal;
  const mounted = await backend.mount(volume, 'hand', signal);
  const chunks: Uint8Array[] = [];
  for await (const chunk of mounted.read(file, signal)) chunks.push(chunk.slice());
  await mounted.unmount();
  return Buffer.concat(chunks);
}

async function* one(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

/** As many bytes, and none of them right. */
async function writeAgain(world: World, { volume, position, size }: Omit<Placed, 'path'>): Promise<void> {
  await writeFile(
    path.join(world.dataDir, 'library', volume, String(position).padStart(8, '0')),
    randomBytes(Number(size)),
  );
}
