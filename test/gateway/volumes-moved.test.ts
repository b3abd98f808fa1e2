/** A cartridge was copied onto another one: its files are said to be there. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { stepSize } from '../../src/operations/catalogue/chosen-files.js';
import { importRows } from '../../src/operations/catalogue/import.js';

import { retireVolume } from '../../src/operations/catalogue/retirements.js';
import { placeFiles } from '../../src/operations/catalogue/volumes.js';
import { withdrawFiles } from '../../src/operations/catalogue/withdrawals.js';
import { addLibrary } from '../../src/operations/libraries/add.js';
import { suspend } from '../../src/operations/suspensions.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota, buildRow } from '../support/factories.js';
import { findFaults } from '../support/faults.js';
import { askData } from '../support/graphql.js';
import { viewRequest } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { dumpTables } from '../support/tables.js';
import { placesBelow, type Told } from '../support/volumes.js';

/** Files that an operation takes at a time here. */
const STEP = 100;

let app: TestApp;

beforeAll(async () => {
  stepSize.files = STEP;
  app = await startApp();
  await addQuota(app.ctx, 'ann', 10n ** 9n);
});
afterAll(() => {
  stepSize.files = 10_000;
});
afterAll(async () => {
  expect(await findFaults(app)).toEqual([]);
  await app.close();
});

async function move(from: string, to: string, more: object = {}): Promise<Told> {
  const query = `mutation ($input: MoveVolumeInput!) { result: moveVolume(input: $input) {
    __typename ... on MovedVolume { files bytes requests } ... on Failure { message } } }`;
  return (await askData<{ result: Told }>(app, query, { input: { from, to, ...more } })).result;
}

const placed = (prefix: string) => placesBelow(app, prefix);
const sql = async (text: string, values: unknown[] = []) => (await app.ctx.db.pool.query(text, values)).rows;

test('first and second copies are on the other volume, at the same positions, and other files stay', async () => {
  await addFiles(app.ctx, [
    { path: '/one/first', volume: 'A1', position: 3n },
    { path: '/one/both', volume: 'A1', position: 4n, copyVolume: 'A2', copyPosition: 9n },
    { path: '/one/second', volume: 'A3', position: 5n, copyVolume: 'A1', copyPosition: 6n },
    { path: '/one/other', volume: 'A3', position: 4n },
  ]);
  await sql(`UPDATE tape_file SET copy_error = 'torn' WHERE path IN ('/one/both', '/one/second')`);
  await sql(`UPDATE volume SET medium = 'lto-8', used = 4000, next_position = 7 WHERE name = 'A1'`);
  const before = await dumpTables(app.ctx);
  expect(await move('A1', 'B1', { dryRun: true })).toMatchObject({ files: 3, bytes: '3000', requests: 0 });
  expect(await dumpTables(app.ctx)).toEqual(before);
  expect(await move('A1', 'B1')).toMatchObject({ __typename: 'MovedVolume', files: 3, bytes: '3000', requests: 0 });
  expect(await placed('/one/')).toEqual([
    '/one/both B1:4 A2:9 torn',
    '/one/first B1:3 -',
    '/one/other A3:4 -',
    '/one/second A3:5 B1:6', // nobody has tried the new copy in vain
  ]);
  expect(
    await sql(
      `SELECT medium, used::int, next_position::int AS next, library_id AS library FROM volume WHERE name = 'B1'`,
    ),
  ).toEqual([{ medium: 'lto-8', used: 4000, next: 7, library: 1 }]);
  expect(await move('A1', 'B1')).toEqual({ __typename: 'NotFound', message: 'nothing is on volume "A1"' });
});

test('what archive gives out after a move is on no place that was given out before', async () => {
  const given = await placeFiles(app.ctx, { sizes: [10n, 10n, 10n], volumeSize: 1000n });
  const from = given[0]?.volume as string;
  await addFiles(
    app.ctx,
    given.map((place, n) => ({ path: `/two/${n}`, size: 10n, ...place })),
  );
  expect(await move(from, 'TG0077')).toMatchObject({ files: 3 });
  expect(await placeFiles(app.ctx, { sizes: [10n], volumeSize: 1000n })).toEqual([{ volume: 'TG0077', position: 4n }]);
  // one that is further already stays so
  await addFiles(app.ctx, [{ path: '/two/late', volume: from, position: 99n }]);
  expect(await move(from, 'TG0077')).toMatchObject({ files: 1 });
  expect(await placeFiles(app.ctx, { sizes: [10n], volumeSize: 1000n })).toEqual([{ volume: 'TG0077', position: 5n }]);
});

test('a checksum that was taken is void at another place, and one that was told is not', async () => {
  await addFiles(app.ctx, [
    { path: '/three/told', volume: 'A4', checksum: 'adler32:00000001' },
    { path: '/three/taken', volume: 'A4' },
    { path: '/three/elsewhere', volume: 'A5', copyVolume: 'A4', copyPosition: 7n },
  ]);
  await sql(
    `UPDATE tape_file SET checksum = 'adler32:00000002', checksum_taken = true WHERE path IN ('/three/taken', '/three/elsewhere')`,
  );
  await move('A4', 'B4');
  expect(
    await sql(`SELECT path, checksum, checksum_taken AS taken FROM tape_file WHERE path LIKE '/three/%' ORDER BY path`),
  ).toEqual([
    { path: '/three/elsewhere', checksum: 'adler32:00000002', taken: true },
    { path: '/three/taken', checksum: null, taken: false },
    { path: '/three/told', checksum: 'adler32:00000001', taken: false },
  ]);
});

test('what cannot be meant is refused by name, with both values, and changes nothing', async () => {
  await addFiles(app.ctx, [
    { path: '/four/a', volume: 'A6', position: 1n },
    { path: '/four/b', volume: 'A6', position: 2n },
    { path: '/four/there', volume: 'B6', position: 2n },
    { path: '/four/c', volume: 'A7', position: 5n },
    { path: '/four/second', volume: 'A8', position: 5n, copyVolume: 'B7', copyPosition: 5n },
    { path: '/four/twice', volume: 'A9', position: 1n, copyVolume: 'B9', copyPosition: 2n },
    { path: '/four/unplaced', volume: 'A10', position: null },
  ]);
  await sql(`INSERT INTO volume (name) VALUES ('GONE1'), ('GONE2')`);
  await retireVolume(app.ctx, { name: 'GONE1', why: 'worn out' });
  await retireVolume(app.ctx, { name: 'GONE2' });
  const before = await dumpTables(app.ctx);
  const refused: [Told, type: string, message: string][] = [
    [await move('NONE', 'B6'), 'NotFound', 'there is no volume "NONE"'],
    [await move('', 'B6'), 'InvalidInput', 'from must be a name of 1 to 255 characters, not ""'],
    [await move('A6', ''), 'InvalidInput', 'to must be a name of 1 to 255 characters, not ""'],
    [await move('A6', 'A\n6'), 'InvalidInput', 'to must not hold control characters: "A\\n6"'],
    [await move('A6', 'A6'), 'InvalidInput', 'to must be another volume than from, and both are "A6"'],
    [await move('A6', 'GONE1'), 'InvalidInput', 'to must not be retired: volume "GONE1" was retired: worn out'],
    [
      await move('A6', 'GONE2'),
      'InvalidInput',
      'to must not be retired: volume "GONE2" was retired: nothing is put there any more',
    ],
    [await move('GONE2', 'B6'), 'NotFound', 'nothing is on volume "GONE2"'],
    [
      await move('A6', 'B6'),
      'InUse',
      'position 2 of volume "B6" has file "/four/there", and would have "/four/b" of volume "A6" as well',
    ],
    [
      await move('A7', 'B7'),
      'InUse',
      'position 5 of volume "B7" has file "/four/second", and would have "/four/c" of volume "A7" as well',
    ],
    [
      await move('A9', 'B9'),
      'InUse',
      'file "/four/twice" has one copy on volume "A9" and the other on "B9": both would be on "B9"',
    ],
    [
      await move('B9', 'A9'),
      'InUse',
      'file "/four/twice" has one copy on volume "B9" and the other on "A9": both would be on "A9"',
    ],
  ];
  for (const [told, __typename, message] of refused) expect(told).toEqual({ __typename, message });
  for (const [from, to] of [
    ['A6', 'B6'],
    ['A9', 'B9'],
  ] as const) {
    expect((await move(from, to, { dryRun: true })).__typename).toBe('InUse');
  }
  expect(await dumpTables(app.ctx)).toEqual(before);
});

test('a cartridge is copied within its library: a volume of another one is refused, with what it has', async () => {
  await addLibrary(app.ctx, { name: 'site', kind: 'command', settings: { read: ['/bin/cat'] } });
  await importRows(app.ctx, [
    buildRow({ path: '/five/a', volume: 'S1', library: 'site', position: null }),
    buildRow({ line: 2, path: '/five/b', volume: 'D1', position: 8n }),
  ]);
  for (const [from, to] of [
    ['S1', 'D1'],
    ['D1', 'S1'],
  ] as const) {
    const refused = await move(from, to);
    expect([refused.__typename, refused.message]).toEqual([
      'InvalidInput',
      `to must be of the library of "${from}", where cartridges are copied, and "${to}" is of another one: import says where files are there`,
    ]);
    expect(await move(from, to, { dryRun: true })).toEqual(refused);
  }
  expect(await move('S1', 'S2')).toMatchObject({ files: 1 });
  expect(await sql(`SELECT b.name FROM volume v JOIN library b ON b.id = v.library_id WHERE v.name = 'S2'`)).toEqual([
    { name: 'site' },
  ]);
  expect(await placed('/five/')).toEqual(['/five/a S2:- -', '/five/b D1:8 -']);
});

test('a volume of more files than a step moves is moved whole, and a call that was broken off is repeated', async () => {
  const paths = Array.from({ length: STEP + 4 }, (_, n) => `/many/f${100_000 + n}`);
  // the first and the last one share a place, and go together
  await addFiles(
    app.ctx,
    paths.map((path, n) => ({ path, size: 1n, volume: 'M1', position: BigInt(n % (STEP + 3)) })),
  );
  // the second step fails, as where its process is killed
  await sql(`CREATE FUNCTION refuse_last() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken off'; END $$`);
  await sql(
    `CREATE TRIGGER refuse_last BEFORE UPDATE ON tape_file FOR EACH ROW WHEN (NEW.path = '/many/f100101') EXECUTE FUNCTION refuse_last()`,
  );
  const query = `mutation { moveVolume(input: { from: "M1", to: "M2" }) { __typename } }`;
  await expect(askData(app, query)).rejects.toThrow();
  await sql('DROP TRIGGER refuse_last ON tape_file');
  await sql('DROP FUNCTION refuse_last');
  const count = `SELECT v.name, count(*)::int AS files FROM tape_file f JOIN volume v ON v.id = f.volume_id WHERE f.path LIKE '/many/%' GROUP BY 1 ORDER BY 1`;
  expect(await sql(count)).toEqual([
    { name: 'M1', files: 3 },
    { name: 'M2', files: STEP + 1 },
  ]);
  expect(await move('M1', 'M2', { dryRun: true })).toMatchObject({ files: 3, bytes: '3' });
  expect(await move('M1', 'M2')).toMatchObject({ files: 3, bytes: '3' });
  expect(await sql(count)).toEqual([{ name: 'M2', files: STEP + 4 }]);
  expect(await move('M2', 'M1')).toMatchObject({ files: STEP + 4 });
  expect(await sql(`SELECT count(*)::int AS rows FROM audit WHERE operation = 'moveVolume' AND object = 'M2'`)).toEqual(
    [
      { rows: 2 }, // one a step
    ],
  );
});

test('who waits follows to the other volume, with the tries forgotten, and what had failed is tried again there', async () => {
  await addFiles(app.ctx, [
    { path: '/six/waits', volume: 'A11', position: 1n },
    { path: '/six/failed', volume: 'A11', position: 2n },
    { path: '/six/gone', volume: 'A11', position: 3n },
    { path: '/six/disk', volume: 'A11', position: 4n, stage: 'ONDISK' },
  ]);
  const id = await makeRequest(app, { quota: 'ann', patterns: '/six/' });
  await withdrawFiles(app.ctx, { path: '/six/gone', why: 'wrong' });
  await sql(
    `UPDATE recall c SET attempts = 3, earlier_tries = 4, not_before = 'infinity', error_class = 'MEDIA', error = 'torn' FROM tape_file f WHERE f.id = c.file_id AND f.path = '/six/waits'`,
  );
  await sql(`DELETE FROM recall c USING tape_file f WHERE f.id = c.file_id AND f.path = '/six/failed'`);
  await sql(
    `UPDATE hold h SET state = 'FAILED', error_class = 'MEDIA', error = 'torn' FROM tape_file f WHERE f.id = h.file_id AND f.path = '/six/failed'`,
  );
  await sql('UPDATE request SET files_failed = files_failed + 1 WHERE id = $1', [id]);
  await suspend(app.ctx, { kind: 'VOLUME', name: 'A11', mode: 'HELD', reason: 'torn' });
  expect(await move('A11', 'B11')).toMatchObject({ files: 4, requests: 1 });
  const { holds, filesFailed } = await viewRequest(app, id);
  expect(holds).toMatchObject([
    { path: '/six/disk', state: 'ON_DISK' },
    { path: '/six/failed', state: 'WAITING', error: null },
    { path: '/six/gone', state: 'FAILED', error: 'withdrawn from the archive: wrong' },
    { path: '/six/waits', state: 'WAITING', error: null },
  ]);
  expect(filesFailed).toBe(1);
  expect(
    await sql(
      `SELECT f.path, v.name AS volume, c.position::int, c.attempts, c.earlier_tries AS earlier, c.not_before AS "notBefore", c.error
       FROM recall c JOIN tape_file f ON f.id = c.file_id JOIN volume v ON v.id = c.volume_id WHERE f.path LIKE '/six/%' ORDER BY f.path`,
    ),
  ).toEqual([
    { path: '/six/failed', volume: 'B11', position: 2, attempts: 0, earlier: 0, notBefore: null, error: null },
    { path: '/six/waits', volume: 'B11', position: 1, attempts: 0, earlier: 0, notBefore: null, error: null },
  ]);
});
