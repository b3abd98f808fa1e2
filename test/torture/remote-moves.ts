/** An operator who moves files from one staging library to the other, whatever these have been asked for just then. */
import { importRows } from '../../src/operations/catalogue/import.js';
import { kept } from './copies.js';
import type { Random } from './random.js';
import { REMOTE_PREFIX } from './remote.js';
import type { World } from './world.js';

/** One to three files, in one import. The bytes stay where they were as well. */
export async function moveRemote(world: World, random: Random): Promise<void> {
  const { rows } = await world.ctx.db.pool.query<{ path: string; size: bigint; volume: string }>(
    `SELECT f.path, f.size, v.name AS volume FROM tape_file f JOIN volume v ON v.id = f.volume_id
     WHERE f.path LIKE '${REMOTE_PREFIX}/%' ORDER BY f.id`,
  );
  const moves = random.sample(rows, random.integer(1, 3)).flatMap(({ path, size, volume }) => {
    const from = world.remotes.systems.find(({ name }) => name === volume);
    const to = world.remotes.systems.find(({ name }) => name !== volume);
    const bytes = from?.system.tape.get(path);
    return to && bytes ? [{ path, size, bytes, to }] : [];
  });
  for (const { path, size, bytes, to } of moves) {
    if (!to.system.tape.has(path)) to.system.put(path, bytes);
    // before it is sent: the answer may be lost, and the change not; at this position there is nothing
    const place = { volume: to.name, position: 0n, size, sha256: world.sources.get(path)?.sha256 ?? '' };
    world.versions.set(path, [...(world.versions.get(path) ?? []), place]);
  }
  await importRows(
    world.ctx,
    moves.map(({ path, size, to }, index) => {
      return { ...kept, line: index + 1, path, size, stage: null, volume: to.name };
    }),
  );
  world.counts.moves += moves.length;
}
