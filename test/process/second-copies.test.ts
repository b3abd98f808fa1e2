/**
 * Files with two tape copies: a recall reads the second copy if the first fails, also after errors and imports in
 * between.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { readVolumeFiguresOf } from '../../src/domain/catalogue/volumes.js';
import { retireVolume } from '../../src/domain/catalogue-changes/retirements.js';
import { listSuspensions, resume, suspend } from '../../src/domain/health/suspensions.js';
import { importRows } from '../../src/domain/import/import.js';
import { type CatalogueRow, checkRow } from '../../src/domain/import/import-rows.js';
import { endStaleFiles, failUnplaced, finishRecalls } from '../../src/domain/recalls/ends.js';
import { switchUnreadable } from '../../src/domain/recalls/queue.js';
import { readLocalities } from '../../src/domain/stage-requests/stage-requests.js';
import { failStaged } from '../../src/domain/staging/call-results.js';
import { claim, idOf, restoreByHand, startByHand, withEngine } from '../support/engine-by-hand.js';
import { readRestored, readStage, ring } from '../support/engine-watch.js';
import { buildRow, checksumOf, putOnTape } from '../support/factories.js';
import { useMemorySite } from '../support/memory-site.js';
import { cancel, retry } from '../support/mutations.js';
import { viewRequest, waitForState, waitForView, waitThroughPauses } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { addStagingLibrary } from '../support/staging.js';
import { makeTempDir } from '../support/temp-dir.js';
import { placesBelow } from '../support/volumes.js';
import { waitFor } from '../support/wait.js';

const { app, library, clock, countReads: readsOf, query: sql } = useMemorySite({ isIdle: true });

interface Copies {
  path: string;
  /**
   * The volume with the first copy, at position 1. The second copy is at position 2 of the volume with a B appended.
   */
  volume: string;
  bytes: Uint8Array;
}

const rowOf = ({ path, volume, bytes }: Copies): CatalogueRow =>
  buildRow({
    ...{ path, size: BigInt(bytes.length), checksum: checksumOf(bytes) },
    ...{ volume, position: 1n, copyVolume: `${volume}B`, copyPosition: 2n },
  });

/** Adds a file with two copies. @param first different bytes for the first copy @param more other fields of the row */
async function addTwice(volume: string, { first, ...more }: Partial<CatalogueRow> & { first?: Uint8Array } = {}) {
  const copies = { path: more.path ?? `/twice/${volume}`, volume, bytes: randomBytes(1000) };
  putOnTape(library, { volume, position: 1n, bytes: first ?? copies.bytes });
  putOnTape(library, { volume: `${volume}B`, position: 2n, bytes: copies.bytes });
  await importRows(app.ctx, [{ ...rowOf(copies), ...more }]);
  return copies;
}

/** Returns an import row that contains only the given fields. */
const partial = (row: Partial<CatalogueRow> & { path: string }): CatalogueRow => ({
  ...{ line: 1, size: 1000n, stage: null, verified: undefined, spotName: undefined, volume: undefined },
  ...{ position: undefined, checksum: undefined },
  ...row,
});

const request = (...files: string[]) => makeRequest(app, { quota: 'alice', files });
const takeOut = (name: string, kind: 'VOLUME' | 'DRIVE' = 'VOLUME') =>
  suspend(app.ctx, { kind, name, mode: 'IMMEDIATE', reason: 'planned' });
const release = (name: string) => resume(app.ctx, { kind: 'VOLUME', name });

/** Returns both positions of a file, as `A1:1 A1B:2`, and the error of the second copy. */
const placesOf = async (file: string) => (await placesBelow(app, file))[0]?.slice(file.length + 1);
const failReads = (isBad: (volume: string) => boolean, errorClass: 'PERMANENT' | 'POLICY' = 'PERMANENT') => {
  library.onRead = async (volume) => {
    if (isBad(volume)) throw new TapeError(errorClass, `nothing can be read of ${volume}`);
  };
};
const complete = (id: number) => withEngine(app, library, () => waitThroughPauses(app, clock, id, 'COMPLETED'));
const waitForEnd = (id: number) => waitForView(app, id, 'to end', ({ state }) => /PARTIAL|COMPLETED/.test(state));
const readRequestFile = async (id: number) => (await viewRequest(app, id)).files[0];

/** Adds a library with one drive. */
const addLibrary = (name: string, volumes: string[] = []) =>
  sql(
    `WITH l AS (INSERT INTO library (name, kind, contract, drives, added_at) VALUES ($1, 'directory', 'DRIVE', 1, now()) RETURNING id),
     d AS (INSERT INTO drive (name, library_id) SELECT $1 || '-1', id FROM l)
     INSERT INTO volume (name, library_id) SELECT v, id FROM l, unnest($2::text[]) v`,
    [name, volumes],
  );

test('a file whose first copy has other bytes is restored from the second, and says why', async () => {
  const twice = await addTwice('A1', { first: randomBytes(1000) });
  const id = await request(twice.path);
  await complete(id);
  expect(readRestored(app, twice.path)).toEqual(twice.bytes);
  expect(await placesOf(twice.path)).toMatch(/^A1B:2 A1:1 .*checksum/);
  // a list with the copies in the old order changes nothing
  expect(await importRows(app.ctx, [rowOf(twice)])).toMatchObject({ added: 0, updated: 0 });
  const plain = { ...rowOf(twice), copyVolume: undefined, copyPosition: undefined };
  expect(await importRows(app.ctx, [plain])).toMatchObject({ added: 0, updated: 0 });
  expect(await placesOf(twice.path)).toMatch(/^A1B:2 A1:1 .*checksum/);
  expect(readRestored(app, twice.path)).toEqual(twice.bytes);
});

test.each<[string, string, Partial<CatalogueRow>, number]>([
  ['has no known position', 'A2', { position: null }, 0],
  ['may not be read', 'A3', {}, 1],
])('a file whose first copy %s is restored from the second', async (_what, volume, more, reads) => {
  const twice = await addTwice(volume, more);
  failReads((name) => name === 'A3', 'POLICY');
  const id = await request(twice.path);
  const { state, files } = await withEngine(app, library, () => waitForEnd(id));
  expect([state, files[0]?.error]).toEqual(['COMPLETED', null]);
  expect([readsOf(volume), readsOf(`${volume}B`)]).toEqual([reads, 1]);
});

test('a file that can be read from neither copy fails with both reasons, and a retry tries both again', async () => {
  const twice = await addTwice('B1');
  let isMended = false;
  failReads(() => !isMended);
  const id = await request(twice.path);
  await withEngine(app, library, async () => {
    const { files } = await waitForState(app, id, 'PARTIAL');
    expect(files[0]?.error).toMatch(
      /nothing can be read of B1B.*; its other copy, on volume B1, failed before: .*nothing can be read of B1$/,
    );
    expect([readsOf('B1'), readsOf('B1B')]).toEqual([1, 1]);
    await retry(app, { requestId: id });
    await waitForState(app, id, 'PARTIAL');
    expect([readsOf('B1'), readsOf('B1B')]).toEqual([2, 2]);
    isMended = true;
    await retry(app, { requestId: id });
    await waitForState(app, id, 'COMPLETED');
  });
  expect(readRestored(app, twice.path)).toEqual(twice.bytes);
  expect(await placesOf(twice.path)).toMatch(/^B1B?:\d B1B?:\d$/);
});

test('if the second copy has no position, the error of the first is reported, and a retry reads the first again', async () => {
  const twice = await addTwice('B2', { copyPosition: null });
  let isMended = false;
  failReads((volume) => volume === 'B2' && !isMended);
  const id = await request(twice.path);
  await withEngine(app, library, async () => {
    const { files } = await waitForState(app, id, 'PARTIAL');
    expect(files[0]?.error).toContain('nothing can be read of B2');
    isMended = true;
    await retry(app, { requestId: id });
    await waitForState(app, id, 'COMPLETED');
  });
  expect(readsOf('B2')).toBe(2);
});

test('a copy that failed before is tried again while the other one is away', async () => {
  const twice = await addTwice('B3');
  let isMended = false;
  failReads((volume) => volume === 'B3' && !isMended);
  await takeOut('B3B');
  const id = await request(twice.path);
  await withEngine(app, library, async () => {
    await waitFor('the file to wait for its second copy', async () => (await placesOf(twice.path))?.startsWith('B3B'));
    isMended = true;
    await retry(app, { requestId: id });
    await switchUnreadable(app.ctx);
    await waitThroughPauses(app, clock, id, 'COMPLETED');
  });
  expect(readsOf('B3')).toBe(2);
});

test('a copy that failed for an earlier request is tried again before the file fails', async () => {
  const twice = await addTwice('B4');
  let bad = 'B4';
  failReads((volume) => volume === bad);
  const first = await request(twice.path);
  await withEngine(app, library, async () => {
    await waitForState(app, first, 'COMPLETED');
    bad = 'B4B'; // the first copy is repaired, and the second copy is lost
    await cancel(app, first);
    await waitFor('the copy to leave', async () => {
      const rows = await sql('SELECT FROM tape_file WHERE path = $1 AND disk_id IS NULL', [twice.path]);
      return rows.length === 1 && (await readStage(app, twice.path)) === 'T';
    });
    const { state, files } = await waitForEnd(await request(twice.path));
    expect([state, files[0]?.error, readsOf('B4')]).toEqual(['COMPLETED', null, 2]);
  });
});

test('errors are forgotten when the archive names another second copy', async () => {
  const twice = await addTwice('B5');
  failReads((volume) => volume.startsWith('B5'));
  const id = await request(twice.path);
  await withEngine(app, library, async () => {
    await waitForState(app, id, 'PARTIAL');
    putOnTape(library, { volume: 'C5', position: 9n, bytes: twice.bytes });
    await importRows(app.ctx, [{ ...rowOf(twice), copyVolume: 'C5', copyPosition: 9n }]);
    expect(await placesOf(twice.path)).toBe('B5:1 C5:9');
    await retry(app, { requestId: id });
    await waitForState(app, id, 'COMPLETED');
  });
  expect(readRestored(app, twice.path)).toEqual(twice.bytes);
  expect(await readRequestFile(id)).toMatchObject({ state: 'ON_DISK', error: null });
});

/** Adds files at the same positions of two volumes. @param isGood false if neither volume has the right bytes */
async function addMany(volume: string, count: number, isGood: boolean): Promise<Map<string, Uint8Array>> {
  const files = Array.from({ length: count }, (_, n) => ({ path: `/many/${volume}/${n}`, bytes: randomBytes(100), n }));
  for (const { bytes, n } of files) {
    putOnTape(library, { volume, position: BigInt(n + 1), bytes: randomBytes(100) });
    putOnTape(library, { volume: `${volume}B`, position: BigInt(n + 1), bytes: isGood ? bytes : randomBytes(100) });
  }
  const placed = (n: number) => ({ line: n + 1, position: BigInt(n + 1), copyPosition: BigInt(n + 1) });
  await importRows(
    app.ctx,
    files.map(({ path: file, bytes, n }) => ({ ...rowOf({ path: file, volume, bytes }), ...placed(n) })),
  );
  return new Map(files.map(({ path: file, bytes }) => [file, bytes]));
}

test('a volume of which nothing can be read is suspended, even if all its files have a second copy', async () => {
  const contents = await addMany('D1', 8, true);
  const id = await request(...contents.keys());
  await complete(id);
  for (const [file, bytes] of contents) expect(readRestored(app, file)).toEqual(bytes);
  const held = (await listSuspensions(app.ctx)).map(({ kind, name, mode }) => [kind, name, mode]);
  expect(held).toContainEqual(['VOLUME', 'D1', 'IMMEDIATE']);
});

test('files of two bad volumes fail in the end, even if both volumes are resumed again and again', async () => {
  const contents = await addMany('D2', 4, false);
  const id = await request(...contents.keys());
  await withEngine(app, library, () =>
    waitFor('files to fail', async () => {
      await switchUnreadable(app.ctx);
      for (const name of ['D2', 'D2B']) await release(name).catch(() => {}); // the volume may not be suspended yet
      clock.advance(600);
      await ring(app, 'recall');
      return (await viewRequest(app, id)).filesFailed > 0;
    }),
  );
});

test('files that wait for a suspended volume are read from their other copies, unless these are suspended too', async () => {
  const [one, other] = [await addTwice('E1'), await addTwice('E2')];
  for (const name of ['E1', 'E2', 'E2B']) await takeOut(name);
  const id = await request(one.path, other.path);
  expect(await switchUnreadable(app.ctx)).toBe(1);
  expect(await switchUnreadable(app.ctx)).toBe(0);
  expect([await placesOf(one.path), await placesOf(other.path)]).toEqual(['E1B:2 E1:1', 'E2:1 E2B:2']);
  await release('E2B');
  await complete(id);
  expect([readsOf('E1'), readsOf('E2'), readsOf('E1B')]).toEqual([0, 0, 1]);
  for (const { path: file, bytes } of [one, other]) expect(readRestored(app, file)).toEqual(bytes);
});

test('a file waits for its suspended first copy if its second has no position', async () => {
  const twice = await addTwice('E3', { copyPosition: null });
  await takeOut('E3');
  const id = await request(twice.path);
  await switchUnreadable(app.ctx);
  await failUnplaced(app.ctx);
  expect(await readRequestFile(id)).toMatchObject({ state: 'WAITING', error: null });
  expect(await placesOf(twice.path)).toBe('E3:1 E3B:-');
  await release('E3');
  await retry(app, { requestId: id });
  await failUnplaced(app.ctx);
  expect(await readRequestFile(id)).toMatchObject({ state: 'WAITING' });
});

test('a file leaves a library whose drives are all suspended, and does not enter one', async () => {
  for (const [library, volume] of Object.entries({ far: 'E4B', away: 'E5' })) {
    await addLibrary(library, [volume]);
    await takeOut(`${library}-1`, 'DRIVE');
  }
  const [entering, leaving] = [await addTwice('E4'), await addTwice('E5')];
  await takeOut('E4');
  await request(entering.path, leaving.path);
  expect(await switchUnreadable(app.ctx)).toBe(1);
  expect([await placesOf(entering.path), await placesOf(leaving.path)]).toEqual(['E4:1 E4B:2', 'E5B:2 E5:1']);
});

test('a file keeps its first copy while the volume rests after a failure', async () => {
  const twice = await addTwice('E6');
  await request(twice.path);
  await sql(
    `UPDATE volume SET failures = 1, failing_since = now(), problem = 'x', retry_at = timezone('utc', now()) + interval '1 s' WHERE name = 'E6'`,
  );
  expect(await switchUnreadable(app.ctx)).toBe(0);
  expect(await placesOf(twice.path)).toBe('E6:1 E6B:2');
});

test('an engine whose drive was taken over changes nothing when its read fails', async () => {
  const twice = await addTwice('F1');
  const fileId = await idOf(app, twice.path);
  await sql('DELETE FROM recall'); // recalls of other tests
  await request(twice.path);
  const stale = await claim(app);
  await startByHand(app, stale, [twice.path]);
  const lease = await claim(app);
  await endStaleFiles(app.ctx, lease, [{ epoch: stale.epoch, fileId }]);
  expect((await startByHand(app, lease, [twice.path])).length).toBe(1);
  await finishRecalls(app.ctx, stale, [{ fileId, kind: 'failed', errorClass: 'MEDIA', error: 'of a stalled process' }]);
  expect(await placesOf(twice.path)).toBe('F1:1 F1B:2');
  await finishRecalls(app.ctx, lease, [{ fileId, kind: 'returned' }]);
});

/**
 * Imports and requests a file whose first copy is in a new staging library, and records that the library was asked for
 * it.
 */
async function addStaged(name: string, state: 'ASKED' | 'READY', copy: Partial<CatalogueRow>) {
  const libraryId = await addStagingLibrary(app.ctx, { name });
  await sql(`INSERT INTO volume (name, library_id) VALUES ($1 || '-2', $2)`, [name, libraryId]);
  const file = `/staged/${name}`;
  await importRows(app.ctx, [buildRow({ path: file, volume: name, position: null, ...copy })]);
  const [id, fileId, batch] = [await request(file), await idOf(app, file), randomUUID()];
  await sql(
    `INSERT INTO staging (file_id, library_id, state, batch, asked_at, since, due_at, size) VALUES ($1, $2, $3, $4, now(), now(), now(), 1000)`,
    [fileId, libraryId, state, batch],
  );
  return { file, id, libraryId, staged: { fileId, batch } };
}

test('if both copies are in one staging library, the second is requested when the first fails', async () => {
  const copy = { copyVolume: 'silo-2', copyPosition: null };
  const { file, id, libraryId, staged } = await addStaged('silo', 'ASKED', copy);
  const failure = { errorClass: 'PERMANENT', error: 'no such file in silo', isTry: true, notBefore: null } as const;
  await failStaged(app.ctx, libraryId, [{ ...staged, ...failure }]);
  expect(await readRequestFile(id)).toMatchObject({ state: 'WAITING', error: null });
  expect(await placesOf(file)).toBe('silo-2:- silo:- no such file in silo');
  const rows = await sql(
    'SELECT c.state, v.name FROM recall c JOIN volume v ON v.id = c.volume_id WHERE c.file_id = $1',
    [staged.fileId],
  );
  expect(rows).toEqual([{ state: 'WAITING', name: 'silo-2' }]);
});

test('a file that a staging library has ready is read there while the library drains', async () => {
  await addStaged('pool', 'READY', { copyVolume: 'F2B', copyPosition: 1n });
  await suspend(app.ctx, { kind: 'LIBRARY', name: 'pool', mode: 'DRAINING', reason: 'planned' });
  expect(await switchUnreadable(app.ctx)).toBe(0);
});

test.each<[string, string, (place: string) => void]>([
  ['file', 'G1', (place) => writeFileSync(place, 'a file where a directory should be')],
  ['link', 'G2', (place) => symlinkSync(makeTempDir(), place)],
])('a %s in the place of a directory of the restore area is no error of the tape copy', async (_what, volume, put) => {
  const copies = await addTwice(volume, { path: `/blocked-${volume}/f` });
  put(path.join(app.restoreDir, `blocked-${volume}`));
  const id = await request(copies.path);
  await sql('UPDATE recall SET attempts = 7 WHERE file_id = $1', [await idOf(app, copies.path)]);
  await withEngine(app, library, () => waitForState(app, id, 'PARTIAL'));
  expect(await placesOf(copies.path)).toBe(`${volume}:1 ${volume}B:2`);
});

test('a file whose second copy can be read is available, and counts as a file of both volumes', async () => {
  const { path: file } = await addTwice('H1');
  await takeOut('H1');
  expect(await readLocalities(app.ctx, [file])).toEqual([{ path: file, locality: 'TAPE', problem: null }]);
  const ids = (await app.ctx.db.prisma.volume.findMany({ where: { name: { in: ['H1', 'H1B'] } } })).map(({ id }) => id);
  const figures = await readVolumeFiguresOf(app.ctx, ids);
  expect([...figures.values()].map(({ files }) => files)).toEqual([1, 1]);
});

test.each<[string, string, Partial<CatalogueRow>, Partial<CatalogueRow>, string]>([
  ['the checksum for the first time', 'I1', { checksum: null }, { checksum: checksumOf('') }, 'I1:1 I1B:2'],
  [
    'a position of the second volume, as a scan does',
    'I2',
    { position: null, copyPosition: null },
    { volume: 'I2B', position: 17n },
    'I2:- I2B:17',
  ],
])('a list that brings %s keeps both copies', async (_what, volume, more, row, places) => {
  const { path: file } = await addTwice(volume, more);
  await importRows(app.ctx, [partial({ path: file, ...row })]);
  expect(await placesOf(file)).toBe(places);
});

test('a list cannot name the volume of the first copy as that of the second', async () => {
  const { path: file } = await addTwice('I3');
  const row = partial({ path: file, copyVolume: 'I3', copyPosition: 7n });
  await expect(importRows(app.ctx, [row])).rejects.toThrow();
  expect(await placesOf(file)).toBe('I3:1 I3B:2');
});

test('a list without a second copy removes it with its position', async () => {
  const { path: file } = await addTwice('I4');
  await importRows(app.ctx, [checkRow(1, { path: file, size: '1000', copy_volume: null }) as CatalogueRow]);
  expect(await placesOf(file)).toBe('I4:1 -');
});

test('after copies were exchanged, a list of second copies does not make both the same', async () => {
  const { path: file } = await addTwice('I5');
  await takeOut('I5');
  await request(file);
  expect(await switchUnreadable(app.ctx)).toBe(1);
  await importRows(app.ctx, [partial({ path: file, copyVolume: 'I5B', copyPosition: 2n })]);
  expect(await placesOf(file)).toBe('I5B:2 I5:1');
});

test('a list in the old order that names another second copy leaves the restored file where it is', async () => {
  const twice = await addTwice('I6', { checksum: null });
  await takeOut('I6');
  const id = await request(twice.path);
  await switchUnreadable(app.ctx);
  await complete(id);
  const row = { ...rowOf(twice), checksum: undefined, stage: null, copyVolume: 'I6C', copyPosition: 5n };
  await importRows(app.ctx, [row]);
  expect(await viewRequest(app, id)).toMatchObject({ state: 'COMPLETED', files: [{ state: 'ON_DISK' }] });
});

test('a volume is in the library of the row that names it as the first one', async () => {
  for (const name of ['near', 'other']) await addLibrary(name);
  const second = { volume: 'I7B', library: 'other', copyVolume: 'I7', copyPosition: 9n, line: 2 };
  await importRows(app.ctx, [
    buildRow({ path: '/library/1', volume: 'I7', library: 'near' }),
    buildRow({ path: '/library/2', ...second }),
  ]);
  const rows = await sql(
    `SELECT v.name, l.name AS library FROM volume v JOIN library l ON l.id = v.library_id WHERE v.name LIKE 'I7%' ORDER BY 1`,
  );
  expect(rows).toEqual([
    { name: 'I7', library: 'near' },
    { name: 'I7B', library: 'other' },
  ]);
});

/** Restores a file from its second copy after the first copy has failed. */
async function exchange(volume: string): Promise<Copies & { id: number }> {
  const twice = await addTwice(volume);
  const id = await request(twice.path);
  const lease = await claim(app);
  const fileId = await idOf(app, twice.path);
  await startByHand(app, lease, [twice.path]);
  await finishRecalls(app.ctx, lease, [{ fileId, kind: 'failed', errorClass: 'MEDIA', error: 'other bytes' }]);
  clock.advance(5);
  await restoreByHand(app, twice.path, twice.bytes);
  expect(await placesOf(twice.path)).toBe(`${volume}B:2 ${volume}:1 other bytes`);
  return { ...twice, id };
}

/** Imports a row of a list of first copies, with new bytes. */
async function importCopy(place: { path: string; volume: string; position: bigint }): Promise<void> {
  const bytes = randomBytes(1000);
  putOnTape(library, { ...place, bytes });
  await importRows(app.ctx, [buildRow({ ...place, size: BigInt(bytes.length), checksum: checksumOf(bytes) })]);
}

test.each([
  ['on another volume', 'K', 'KN', 7n],
  ['on the volume of the first copy', 'L', 'L', 9n],
  ['where the first copy was', 'M', 'M', 1n],
  ['on the volume of the second copy', 'N', 'NB', 9n],
  ['where the second copy was', 'O', 'OB', 2n],
])('new bytes %s have no second copy, and are restored', async (_where, first, volume, position) => {
  const { path: file, id } = await exchange(first);
  await importCopy({ path: file, volume, position });
  expect(await placesOf(file)).toBe(`${volume}:${position} -`);
  await expect(retireVolume(app.ctx, { name: volume })).rejects.toThrow(/has the only usable copy/);
  await complete(id);
});

test.each([
  ['at another position of the volume', 'P', 'P', 9n],
  ['on another volume', 'R', 'RN', 1n],
])(
  'if a list has the bad copy %s, with the same bytes, the good copy is kept',
  async (_where, first, volume, position) => {
    const { path: file, bytes } = await exchange(first);
    putOnTape(library, { volume, position, bytes });
    const checksum = volume === 'P' ? checksumOf(bytes) : undefined; // the list with the other volume has no checksum
    await importRows(app.ctx, [partial({ path: file, volume, position, checksum })]);
    expect(await placesOf(file)).toContain(`${first}B:2`);
  },
);

test('new bytes where the second copy was have no second copy', async () => {
  const { path: file } = await addTwice('Q');
  await importCopy({ path: file, volume: 'QB', position: 2n });
  expect(await placesOf(file)).toBe('QB:2 -');
});
