/** Files that are read from their second copies, of which the archive then has other bytes: no place of the old ones stands for the new ones. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { importRows } from '../../src/operations/catalogue/import.js';
import type { CatalogueRow } from '../../src/operations/catalogue/import-rows.js';
import { retireVolume } from '../../src/operations/catalogue/retirements.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { buildRow, checksumOf, putOnTape } from '../support/factories.js';
import { waitThroughPauses } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { placesBelow } from '../support/volumes.js';

let app: TestApp;
const clock = createClock();
const backend = createMemoryBackend();
beforeAll(async () => {
  app = await startIdleApp({ now: clock.now });
});
afterAll(async () => {
  await app.close();
});

interface Placed {
  path: string;
  bytes: Uint8Array;
  volume: string;
  position: bigint;
}
const rowOf = ({ path, bytes, volume, position }: Placed, more: Partial<CatalogueRow> = {}): CatalogueRow =>
  buildRow({ path, size: BigInt(bytes.length), checksum: checksumOf(bytes), volume, position, ...more });

/** A file that has come from its second copy, at position 2 of the volume with a B, since its first one at position 1 has other bytes. */
async function addExchanged(path: string, volume: string): Promise<{ id: number; bytes: Uint8Array }> {
  const bytes = randomBytes(1000);
  putOnTape(backend, { volume, position: 1n, bytes: randomBytes(1000) });
  putOnTape(backend, { volume: `${volume}B`, position: 2n, bytes });
  await importRows(app.ctx, [
    rowOf({ path, bytes, volume, position: 1n }, { copyVolume: `${volume}B`, copyPosition: 2n }),
  ]);
  const id = await makeRequest(app, { quota: 'alice', files: [path] });
  await withEngine(app, backend, () => waitThroughPauses(app, clock, id, 'COMPLETED'));
  const [place] = await placesBelow(app, path);
  expect(place).toContain(`${path} ${volume}B:2 ${volume}:1 the tape copy has checksum`);
  return { id, bytes };
}

/** As a list of first copies tells them. */
async function bringOther(place: Omit<Placed, 'bytes'>): Promise<void> {
  const bytes = randomBytes(1000);
  putOnTape(backend, { ...place, bytes });
  await importRows(app.ctx, [rowOf({ ...place, bytes })]);
}

test.each([
  ['on another volume', 'K', 'KN', 7n],
  ['on the volume of the first copy', 'L', 'L', 9n],
  ['where the first copy was', 'M', 'M', 1n],
  ['on the volume that has the file', 'N', 'NB', 9n],
  ['where the file was', 'O', 'OB', 2n],
])('other bytes %s have no second copy, and are restored', async (_where, first, volume, position) => {
  const path = `/other/${first}`;
  const { id } = await addExchanged(path, first);
  await bringOther({ path, volume, position });
  expect(await placesBelow(app, path)).toEqual([`${path} ${volume}:${position} -`]);
  await expect(retireVolume(app.ctx, { name: volume })).rejects.toThrow(/can be read nowhere else/);
  await withEngine(app, backend, () => waitThroughPauses(app, clock, id, 'COMPLETED'));
});

test('other bytes of a file with two copies where its second one was have no second copy', async () => {
  const [path, bytes] = ['/other/second', randomBytes(1000)];
  await importRows(app.ctx, [
    rowOf({ path, bytes, volume: 'S', position: 1n }, { copyVolume: 'SB', copyPosition: 2n }),
  ]);
  await bringOther({ path, volume: 'SB', position: 2n });
  expect(await placesBelow(app, path)).toEqual([`${path} SB:2 -`]);
});

test('the same bytes at a new place on the volume of the bad copy keep the good one', async () => {
  const path = '/same/place';
  const { bytes } = await addExchanged(path, 'P');
  putOnTape(backend, { volume: 'P', position: 9n, bytes });
  await importRows(app.ctx, [rowOf({ path, bytes, volume: 'P', position: 9n })]);
  expect(await placesBelow(app, path)).toEqual([`${path} P:9 PB:2`]);
});
