/** Files that are on tape twice, where things go wrong in more than one way: whose places they are, who is told what, and what is tried again. */
import { randomBytes } from 'node:crypto';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { TapeError } from '../../src/errors.js';
import { readLocalities } from '../../src/operations/bulks/localities.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { type CatalogueRow, checkRow } from '../../src/operations/catalogue/import-rows.js';
import { readVolumeFigures } from '../../src/operations/catalogue/volumes.js';
import { finishRecalls } from '../../src/operations/recalls/ends.js';
import { endLeftBehind, failUnplaced } from '../../src/operations/recalls/repair.js';
import { leaveUnreadable } from '../../src/operations/recalls/unreadable.js';
import { failStaged } from '../../src/operations/staging/failures.js';
import { resume, suspend } from '../../src/operations/suspensions.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import type { TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { claim, idOf, startByHand, startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { buildRow, checksumOf, putOnTape } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { retry } from '../support/mutations.js';
import { type RequestView, viewRequest, waitForState, waitThroughPauses } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { addStagingLibrary } from '../support/staging.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
const clock = createClock();
const backend = createMemoryBackend();
const { onRead } = backend;
const pool = () => app.ctx.db.pool;

beforeAll(async () => {
  app = await startIdleApp({ now: clock.now });
});
afterEach(() => {
  backend.onRead = onRead;
  backend.log.length = 0;
});
afterAll(async () => {
  await app.close();
});

interface Twice {
  path: string;
  volume: string;
  copyVolume: string;
  bytes: Uint8Array;
}
const rowOf = ({ path: file, volume, copyVolume, bytes }: Twice) =>
  buildRow({
    path: file,
    size: BigInt(bytes.length),
    volume,
    position: 1n,
    copyVolume,
    copyPosition: 2n,
    checksum: checksumOf(bytes),
  });
async function addTwice(file: string, volume: string, more: Partial<CatalogueRow> = {}): Promise<Twice> {
  const twice = { path: file, volume, copyVolume: `${volume}B`, bytes: randomBytes(1000) };
  putOnTape(backend, { volume, position: 1n, bytes: twice.bytes });
  putOnTape(backend, { volume: twice.copyVolume, position: 2n, bytes: twice.bytes });
  await importRows(app.ctx, [{ ...rowOf(twice), ...more }]);
  return twice;
}
/** Says nothing but this. */
const partial = (row: Partial<CatalogueRow> & { path: string }): CatalogueRow => ({
  ...{ line: 1, size: 1000n, stage: null, verified: undefined, spotName: undefined, volume: undefined },
  ...{ position: undefined, checksum: undefined },
  ...row,
});
interface Places {
  volume: { name: string } | null;
  position: string | null;
  copyVolume: { name: string } | null;
  copyPosition: string | null;
  copyError: string | null;
}

async function placesOf(file: string): Promise<string> {
  const query = `query ($path: String!) { tapeFile(path: $path) {
    volume { name } position copyVolume { name } copyPosition copyError } }`;
  const { tapeFile: f } = await askData<{ tapeFile: Places }>(app, query, { path: file });
  return `${f.volume?.name}:${f.position} ${f.copyVolume?.name}:${f.copyPosition} ${f.copyError ?? ''}`.trim();
}
const readsOf = (volume: string) => backend.log.filter((e) => e.what === 'read' && e.volume === volume).length;
const broken = (volume: string) => new TapeError('PERMANENT', `nothing can be read of ${volume}`);
const hold = (name: string) => suspend(app.ctx, { kind: 'VOLUME', name, mode: 'HELD', reason: 'planned' });
async function holdOf(id: number): Promise<RequestView['holds'][number]> {
  const [hold] = (await viewRequest(app, id)).holds;
  if (!hold) throw new Error(`request ${id} holds nothing`);
  return hold;
}
const recallOf = async (file: string) =>
  (
    await pool().query(
      'SELECT c.state, v.name AS volume FROM recall c JOIN tape_file f ON f.id = c.file_id JOIN volume v ON v.id = c.volume_id WHERE f.path = $1',
      [file],
    )
  ).rows[0];
async function addDriveLibrary(name: string, volumes: string[]) {
  await pool().query(
    `WITH l AS (INSERT INTO library (name, kind, contract, drives, added_at) VALUES ($1, 'directory', 'DRIVE', 1, now()) RETURNING id),
     d AS (INSERT INTO drive (name, library_id) SELECT $1 || '-1', id FROM l)
     INSERT INTO volume (name, library_id) SELECT v, id FROM l, unnest($2::text[]) v`,
    [name, volumes],
  );
}

test('an engine whose drive was taken over changes nothing by its failure', async () => {
  const twice = await addTwice('/s/stale', 'S1');
  await makeRequest(app, { quota: 'alice', files: [twice.path] });
  const stale = await claim(app);
  await startByHand(app, stale, [twice.path]);
  const fileId = await idOf(app, twice.path);
  const lease = await claim(app);
  await endLeftBehind(app.ctx, lease, [{ epoch: stale.epoch, outcome: { fileId, kind: 'returned' } }]);
  expect((await startByHand(app, lease, [twice.path])).length).toBe(1);
  await finishRecalls(app.ctx, stale, [
    { fileId, kind: 'failed', errorClass: 'MEDIA', error: 'of the process that slept' },
  ]);
  const places = await placesOf(twice.path);
  await finishRecalls(app.ctx, lease, [{ fileId, kind: 'returned' }]);
  expect(places).toBe('S1:1 S1B:2');
});

test('both copies in one staging library: the second is asked for', async () => {
  const libraryId = await addStagingLibrary(app.ctx, { name: 'silo' });
  await pool().query(`INSERT INTO volume (name, library_id) VALUES ('silo2', $1)`, [libraryId]);
  await importRows(app.ctx, [
    buildRow({ path: '/s/silo', volume: 'silo', position: null, copyVolume: 'silo2', copyPosition: null }),
  ]);
  const id = await makeRequest(app, { quota: 'alice', files: ['/s/silo'] });
  const fileId = await idOf(app, '/s/silo');
  const batch = '00000000-0000-4000-8000-000000000001';
  await pool().query(
    `INSERT INTO staging (file_id, library_id, state, batch, asked_at, since, due_at, size) VALUES ($1, $2, 'ASKED', $3, now(), now(), now(), 1000)`,
    [fileId, libraryId, batch],
  );
  await failStaged(app.ctx, libraryId, [
    { fileId, batch, errorClass: 'PERMANENT', error: 'no such file in silo', isTry: true, notBefore: null },
  ]);
  const seen = [
    (await holdOf(id)).state,
    (await holdOf(id)).error,
    await recallOf('/s/silo'),
    await placesOf('/s/silo'),
  ];
  await app.ctx.db.pool.query(`DELETE FROM staging`);
  expect(seen).toEqual([
    'WAITING',
    null,
    { state: 'WAITING', volume: 'silo2' },
    'silo2:null silo:null no such file in silo',
  ]);
});

test('a second copy of which no drive knows the place does not fail the file when the first one is held for a while', async () => {
  const twice = await addTwice('/s/nowhere', 'S3', { copyPosition: null });
  await hold('S3');
  const id = await makeRequest(app, { quota: 'alice', files: [twice.path] });
  await leaveUnreadable(app.ctx);
  await failUnplaced(app.ctx);
  const seen = [(await holdOf(id)).state, (await holdOf(id)).error, await placesOf(twice.path)];
  await resume(app.ctx, { kind: 'VOLUME', name: 'S3' });
  await retry(app, { id });
  await failUnplaced(app.ctx);
  expect([...seen, 'after resume and retry', (await holdOf(id)).state]).toEqual([
    ...['WAITING', null, 'S3:1 S3B:null', 'after resume and retry', 'WAITING'],
  ]);
});

test('the reason of the first place is told, and a retry asks it again', async () => {
  const twice = await addTwice('/s/nowhere2', 'S3C', { copyPosition: null });
  let isMended = false;
  backend.onRead = async (volume, _p, bytes) => {
    if (volume === 'S3C' && !isMended) throw broken(volume);
    return bytes;
  };
  const id = await makeRequest(app, { quota: 'alice', files: [twice.path] });
  await withEngine(app, backend, async () => {
    await waitForState(app, id, 'PARTIAL');
    const { error } = await holdOf(id);
    isMended = true;
    await retry(app, { id });
    await waitFor('an end', async () => ['PARTIAL', 'COMPLETED'].includes((await viewRequest(app, id)).state));
    expect([error, (await viewRequest(app, id)).state, readsOf('S3C')]).toEqual([
      expect.stringContaining('nothing can be read of S3C'),
      ...['COMPLETED', 2],
    ]);
  });
});

test('a file whose first place is not known is read at its second', async () => {
  const twice = await addTwice('/s/first-unknown', 'S3D', { position: null });
  const id = await makeRequest(app, { quota: 'alice', files: [twice.path] });
  await withEngine(app, backend, () =>
    waitFor('an end', async () => ['PARTIAL', 'COMPLETED'].includes((await viewRequest(app, id)).state)),
  );
  expect([(await viewRequest(app, id)).state, (await holdOf(id)).error]).toEqual(['COMPLETED', null]);
});

test('a file goes to no library where nothing can be read', async () => {
  await addDriveLibrary('far', ['S4B']);
  const twice = await addTwice('/s/far', 'S4');
  await suspend(app.ctx, { kind: 'DRIVE', name: 'far-1', mode: 'HELD', reason: 'broken' });
  await hold('S4');
  const id = await makeRequest(app, { quota: 'alice', files: [twice.path] });
  const turned = await leaveUnreadable(app.ctx);
  await resume(app.ctx, { kind: 'VOLUME', name: 'S4' });
  await withEngine(app, backend, async () => {
    await waitFor('it to come', async () => (await viewRequest(app, id)).state === 'COMPLETED', 20_000).catch(() => {});
  });
  expect([turned, (await viewRequest(app, id)).state, await placesOf(twice.path)]).toEqual([
    0,
    'COMPLETED',
    'S4:1 S4B:2',
  ]);
});

test('a list of second copies alone does not make both copies one after they have changed places', async () => {
  const twice = await addTwice('/s/same', 'S5');
  await hold('S5');
  await makeRequest(app, { quota: 'alice', files: [twice.path] });
  expect(await leaveUnreadable(app.ctx)).toBe(1);
  await importRows(app.ctx, [partial({ path: twice.path, copyVolume: 'S5B', copyPosition: 2n })]);
  expect(await placesOf(twice.path)).toBe('S5B:2 S5:1');
});

test('a row that leaves out the volume is refused a second copy on it', async () => {
  const twice = await addTwice('/s/same2', 'S5C');
  await importRows(app.ctx, [partial({ path: twice.path, copyVolume: 'S5C', copyPosition: 7n })]).catch(() => {});
  expect(await placesOf(twice.path)).toBe('S5C:1 S5CB:2');
});

test('the scan of the second cartridge, on which files are found by their paths, does not lose the first place', async () => {
  const twice = await addTwice('/s/ltfs', 'S6', { position: null, copyPosition: null });
  await importRows(app.ctx, [partial({ path: twice.path, volume: 'S6B', position: 17n })]);
  expect(await placesOf(twice.path)).toBe('S6:null S6B:17');
});

test('a list of first places that moves the bad copy does not lose the good one', async () => {
  const twice = await addTwice('/s/repack', 'S7');
  backend.onRead = async (volume, _p, bytes) => {
    if (volume === 'S7') throw broken(volume);
    return bytes;
  };
  const id = await makeRequest(app, { quota: 'alice', files: [twice.path] });
  await withEngine(app, backend, () => waitThroughPauses(app, clock, id, 'COMPLETED'));
  expect(await placesOf(twice.path)).toMatch(/^S7B:2 S7:1 /);
  await importRows(app.ctx, [partial({ path: twice.path, volume: 'S7NEW', position: 1n })]);
  expect(await placesOf(twice.path)).toContain('S7B:2');
});

test('a list that brings the checksums for the first time takes no second copy away', async () => {
  const twice = await addTwice('/s/sums', 'S8', { checksum: null });
  await importRows(app.ctx, [partial({ path: twice.path, checksum: checksumOf(twice.bytes) })]);
  expect(await placesOf(twice.path)).toBe('S8:1 S8B:2');
});

test('a volume is in the library of the row that has it as the first one', async () => {
  await addDriveLibrary('near', []);
  await addDriveLibrary('other', []);
  const of = { ...buildRow({ path: '/s/l1', volume: 'S9X', library: 'near' }) };
  const second = {
    ...buildRow({ path: '/s/l2', volume: 'S9Y', library: 'other', copyVolume: 'S9X', copyPosition: 9n }),
    line: 2,
  };
  const result = await importRows(app.ctx, [of, second]).then(
    () => 'imported',
    (error: Error) => error.message,
  );
  expect(result).toBe('imported');
});

test('what has failed at one place once can be asked again while the other one is away', async () => {
  const twice = await addTwice('/s/ever', 'SA');
  let isMended = false;
  backend.onRead = async (volume, _p, bytes) => {
    if (volume === 'SA' && !isMended) throw broken(volume);
    return bytes;
  };
  await hold('SAB');
  const id = await makeRequest(app, { quota: 'alice', files: [twice.path] });
  await withEngine(app, backend, async () => {
    await waitFor('it to be turned', async () => (await placesOf(twice.path)).startsWith('SAB'));
    isMended = true;
    await hold('SA');
    await resume(app.ctx, { kind: 'VOLUME', name: 'SA' });
    await retry(app, { id });
    await leaveUnreadable(app.ctx);
    await waitFor('it to come', async () => (await viewRequest(app, id)).state === 'COMPLETED', 20_000).catch(() => {});
    expect([(await viewRequest(app, id)).state, readsOf('SA')]).toEqual(['COMPLETED', 2]);
  });
});

test('a volume of second copies is not told as empty', async () => {
  await addTwice('/s/figures', 'SB');
  const figures = (await readVolumeFigures(app.ctx)).find(({ name }) => name === 'SBB');
  expect(figures?.files).toBe(1);
});

test('a file that can be read at its second place is not unavailable', async () => {
  const twice = await addTwice('/s/where', 'SC');
  await hold('SC');
  expect(await readLocalities(app.ctx, [twice.path])).toEqual([{ path: twice.path, locality: 'TAPE', problem: null }]);
});

test('what is wrong with the restore disk is not said of the tape', async () => {
  const twice = await addTwice('/blocked/f', 'SD');
  writeFileSync(path.join(app.restoreDir, 'blocked'), 'a file where a folder should be');
  const id = await makeRequest(app, { quota: 'alice', files: [twice.path] });
  await pool().query('UPDATE recall SET attempts = 7 WHERE file_id = $1', [await idOf(app, twice.path)]);
  await withEngine(app, backend, async () => {
    await waitFor(
      'an end',
      async () => (await viewRequest(app, id)).state === 'PARTIAL' || (await placesOf(twice.path)).startsWith('SDB'),
    );
  });
  expect([await placesOf(twice.path)]).toEqual(['SD:1 SDB:2']);
});

test('what a staging library has ready is read there while it drains', async () => {
  const libraryId = await addStagingLibrary(app.ctx, { name: 'pool' });
  await importRows(app.ctx, [
    buildRow({ path: '/s/pool', volume: 'pool', position: null, copyVolume: 'SEB', copyPosition: 1n }),
  ]);
  await makeRequest(app, { quota: 'alice', files: ['/s/pool'] });
  await pool().query(
    `INSERT INTO staging (file_id, library_id, state, batch, asked_at, since, due_at, size) VALUES ($1, $2, 'READY', '00000000-0000-4000-8000-000000000002', now(), now(), now(), 1000)`,
    [await idOf(app, '/s/pool'), libraryId],
  );
  await suspend(app.ctx, { kind: 'BACKEND', name: 'pool', mode: 'DRAINING', reason: 'planned' });
  const turned = await leaveUnreadable(app.ctx);
  await pool().query('DELETE FROM staging');
  expect(turned).toBe(0);
});

test('a second copy of a file without a first place is refused, or read', async () => {
  const bytes = randomBytes(1000);
  putOnTape(backend, { volume: 'SFB', position: 1n, bytes });
  const result = await importRows(app.ctx, [
    partial({ path: '/s/only', stage: 'ONTAPE', copyVolume: 'SFB', copyPosition: 1n }),
  ]).then(
    () => 'imported',
    () => 'refused',
  );
  if (result === 'refused') return;
  const id = await makeRequest(app, { quota: 'alice', files: ['/s/only'] });
  await failUnplaced(app.ctx);
  expect([(await holdOf(id)).state, (await holdOf(id)).error]).toEqual(['WAITING', null]);
});

test('a second copy that is taken away leaves no position behind', async () => {
  const twice = await addTwice('/s/left', 'SG');
  const row = checkRow(1, { path: twice.path, size: '1000', copy_volume: null });
  await importRows(app.ctx, [row as CatalogueRow]);
  expect(await placesOf(twice.path)).toBe('SG:1 undefined:null');
});

test('a list in the old order that names another second place leaves the restored copy where it is', async () => {
  const twice = await addTwice('/s/stays', 'SH', { checksum: null });
  await hold('SH');
  const id = await makeRequest(app, { quota: 'alice', files: [twice.path] });
  await leaveUnreadable(app.ctx);
  await withEngine(app, backend, () => waitThroughPauses(app, clock, id, 'COMPLETED'));
  await importRows(app.ctx, [
    { ...rowOf(twice), checksum: undefined, stage: null, copyVolume: 'SHC', copyPosition: 5n },
  ]);
  expect([(await viewRequest(app, id)).state, (await holdOf(id)).state]).toEqual(['COMPLETED', 'ON_DISK']);
});

test('a link where a folder of the restore area should be is not said of the tape', async () => {
  const twice = await addTwice('/linked/f', 'SI');
  mkdirSync(path.join(app.restoreDir, '..', 'elsewhere'), { recursive: true });
  symlinkSync(path.join(app.restoreDir, '..', 'elsewhere'), path.join(app.restoreDir, 'linked'));
  const id = await makeRequest(app, { quota: 'alice', files: [twice.path] });
  await pool().query('UPDATE recall SET attempts = 7 WHERE file_id = $1', [await idOf(app, twice.path)]);
  await withEngine(app, backend, async () => {
    await waitFor(
      'an end',
      async () => (await viewRequest(app, id)).state === 'PARTIAL' || (await placesOf(twice.path)).startsWith('SIB'),
    );
  });
  expect([await placesOf(twice.path)]).toEqual(['SI:1 SIB:2']);
});

test('what has failed at one place long ago is asked again before a file is given up', async () => {
  const twice = await addTwice('/s/again', 'SJ');
  let bad = 'SJ';
  backend.onRead = async (volume, _p, bytes) => {
    if (volume === bad) throw broken(volume);
    return bytes;
  };
  const first = await makeRequest(app, { quota: 'alice', files: [twice.path] });
  await withEngine(app, backend, async () => {
    await waitForState(app, first, 'COMPLETED');
    bad = 'SJB'; // the first one is mended, and the second one is lost
    await askData(app, 'mutation ($id: Int!) { cancelRequest(input: { id: $id }) { __typename } }', {
      id: first,
    }).catch(() => askData(app, 'mutation ($id: Int!) { cancelRequest(id: $id) { __typename } }', { id: first }));
    await waitFor(
      'the copy to leave',
      async () =>
        (
          await pool().query('SELECT FROM tape_file WHERE path = $1 AND disk_id IS NULL AND stage = $2', [
            twice.path,
            'ONTAPE',
          ])
        ).rowCount === 1,
    );
    const id = await makeRequest(app, { quota: 'alice', files: [twice.path] });
    await waitFor('an end', async () => ['PARTIAL', 'COMPLETED'].includes((await viewRequest(app, id)).state));
    expect([(await viewRequest(app, id)).state, readsOf('SJ'), (await holdOf(id)).error]).toEqual([
      'COMPLETED',
      2,
      null,
    ]);
  });
});

test('a volume that rests for a second sends its files to the second copies for good', async () => {
  const twice = await addTwice('/s/pause', 'SK');
  await makeRequest(app, { quota: 'alice', files: [twice.path] });
  await pool().query(
    `UPDATE volume SET failures = 1, failing_since = now(), problem = 'x', retry_at = timezone('utc', now()) + interval '1 s' WHERE name = 'SK'`,
  );
  const turned = await leaveUnreadable(app.ctx);
  await pool().query(
    `UPDATE volume SET failures = 0, failing_since = NULL, problem = NULL, retry_at = NULL WHERE name = 'SK'`,
  );
  expect([turned, await placesOf(twice.path)]).toEqual([0, 'SK:1 SKB:2']);
});

test('a file is read at its other place while no drive of the library of the first one works', async () => {
  await addDriveLibrary('far2', ['SL']);
  const twice = await addTwice('/s/far2', 'SL');
  await suspend(app.ctx, { kind: 'DRIVE', name: 'far2-1', mode: 'HELD', reason: 'broken' });
  await makeRequest(app, { quota: 'alice', files: [twice.path] });
  expect(await leaveUnreadable(app.ctx)).toBe(1);
});

test('a list in the old order loses nothing', async () => {
  const twice = await addTwice('/s/older', 'SM');
  await hold('SM');
  await makeRequest(app, { quota: 'alice', files: [twice.path] });
  await leaveUnreadable(app.ctx);
  // what updateKnown of 420493d writes of the row SM:1
  await pool()
    .query(
      `UPDATE tape_file SET volume_id = (SELECT id FROM volume WHERE name = 'SM'), "position" = 1 WHERE path = $1`,
      [twice.path],
    )
    .catch(() => {}); // refused is as good
  expect(await placesOf(twice.path)).toContain('SMB:2');
});

test('a file that may not be read at its first place is read at its second', async () => {
  const twice = await addTwice('/s/denied', 'SN');
  backend.onRead = async (volume, _p, bytes) => {
    if (volume === 'SN') throw new TapeError('POLICY', 'EACCES: permission denied, open SN/00000001');
    return bytes;
  };
  const id = await makeRequest(app, { quota: 'alice', files: [twice.path] });
  await withEngine(app, backend, () =>
    waitFor('an end', async () => ['PARTIAL', 'COMPLETED'].includes((await viewRequest(app, id)).state)),
  );
  expect([(await viewRequest(app, id)).state, readsOf('SNB'), (await holdOf(id)).error]).toEqual([
    'COMPLETED',
    1,
    null,
  ]);
});

test('files of two bad volumes that are put back into service again and again are given up one day', async () => {
  const files = [1n, 2n, 3n, 4n].map((n) => ({ path: `/s/pong/${n}`, n }));
  for (const { n } of files)
    for (const volume of ['SO', 'SOB']) putOnTape(backend, { volume, position: n, bytes: randomBytes(100) });
  await importRows(
    app.ctx,
    files.map(({ path: file, n }) => ({
      ...buildRow({
        path: file,
        size: 100n,
        volume: 'SO',
        position: n,
        copyVolume: 'SOB',
        copyPosition: n,
        checksum: checksumOf('x'),
      }),
      line: Number(n),
    })),
  );
  const id = await makeRequest(app, { quota: 'alice', files: files.map(({ path: file }) => file) });
  const seen: unknown[] = [];
  await withEngine(app, backend, async () => {
    const until = Date.now() + 50_000;
    let resumed = 0;
    while (resumed < 30 && Date.now() < until && (await viewRequest(app, id)).filesFailed === 0) {
      await leaveUnreadable(app.ctx);
      for (const name of ['SO', 'SOB'])
        await resume(app.ctx, { kind: 'VOLUME', name }).then(
          () => resumed++,
          () => {},
        );
      await new Promise((done) => setTimeout(done, 300));
      if (resumed % 5 === 0) {
        const { rows } = await pool().query(
          `SELECT max(attempts) a, max(earlier_tries) e FROM recall c JOIN tape_file f ON f.id = c.file_id WHERE path LIKE '/s/pong/%'`,
        );
        seen.push([resumed, rows[0]?.a, rows[0]?.e]);
      }
    }
    console.log(
      'S24 resumed, attempts, earlier:',
      resumed,
      JSON.stringify(seen.slice(-6)),
      'reads',
      readsOf('SO'),
      readsOf('SOB'),
    );
  });
  expect((await viewRequest(app, id)).filesFailed).toBeGreaterThan(0);
}, 90_000);
