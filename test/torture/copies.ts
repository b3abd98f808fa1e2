/** Tape copies that others have written: registered before anybody has read them back, confirmed by engines, taken from disk. */
import { importRows } from '../../src/operations/catalogue/import.js';
import type { CatalogueRow } from '../../src/operations/catalogue/import-rows.js';
import { inTurn } from './in-turn.js';
import type { Random } from './random.js';
import type { World } from './world.js';

/** Files of the archive whose places no other row has: renewals.ts moves them. */
export function isMovable(file: string): boolean {
  return file.startsWith('/data/') && /[05]\.nc$/.test(file);
}

/** What an import says nothing of. */
export const kept = {
  verified: undefined,
  spotName: undefined,
  volume: undefined,
  position: undefined,
  checksum: undefined,
};

interface Place {
  path: string;
  size: bigint;
  volume: string;
  position: bigint;
  checksum: string;
}

/** Registers files of the archive once more, under other paths; one time in four with a checksum that they do not have. */
export async function registerCopies(world: World, random: Random): Promise<void> {
  const { rows } = await world.ctx.db.pool.query<Place>(
    `SELECT f.path, f.size, f.position, f.checksum, v.name AS volume FROM tape_file f JOIN volume v ON v.id = f.volume_id
     WHERE f.path LIKE '/data/%' ORDER BY f.id`,
  );
  const staying = rows.filter((place) => !isMovable(place.path));
  const isWrong = random.chance(0.25);
  const prefix = `/copies/${random.integer(0, 999_999)}`;
  const copies = random.sample(staying, random.integer(1, 3)).map((place, index): CatalogueRow => {
    const path = `${prefix}${place.path}`;
    const source = world.sources.get(place.path);
    // before it is sent: the answer may be lost, and the change not
    if (isWrong) world.miswritten.add(path);
    else if (source) world.sources.set(path, source);
    const checksum = isWrong ? `sha256:${'0'.repeat(64)}` : place.checksum;
    return { ...place, line: index + 1, path, checksum, stage: 'UNVERIFIED', verified: null, spotName: null };
  });
  await importRows(world.ctx, copies);
}

/** An operator takes confirmed files from their primary disk. */
export const takeFromDisk = (world: World, random: Random): Promise<void> => inTurn(() => takeSome(world, random));

async function takeSome(world: World, random: Random): Promise<void> {
  const { rows } = await world.ctx.db.pool.query<{ path: string; size: bigint }>(
    `SELECT path, size FROM tape_file WHERE stage = 'ONDISK' AND (path LIKE '/copies/%' OR path LIKE '/named/%') ORDER BY id`,
  );
  await tellOnTape(world, random.sample(rows, random.integer(1, 3)));
}

/** Tells the catalogue that files are on tape only, and nothing else of them. */
export async function tellOnTape(world: World, files: readonly { path: string; size: bigint }[]): Promise<void> {
  if (files.length === 0) return;
  await importRows(
    world.ctx,
    files.map(({ path, size }, index) => ({ line: index + 1, path, size, stage: 'ONTAPE', ...kept })),
  );
}
