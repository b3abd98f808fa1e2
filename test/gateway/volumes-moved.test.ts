/** Volumes whose cartridges were copied: their files move to the new volume. */
import { expect, test } from 'vitest';
import { reservePositions } from '../../src/domain/catalogue/volumes.js';
import { withdrawFiles } from '../../src/domain/catalogue/withdrawals.js';
import { retireVolume } from '../../src/domain/catalogue-changes/retirements.js';
import { suspend } from '../../src/domain/health/suspensions.js';
import { importRows } from '../../src/domain/import/import.js';
import { addLibrary } from '../../src/domain/libraries/changes.js';
import { addFiles, addQuota, buildRow } from '../support/factories.js';
import { mutate } from '../support/payloads.js';
import { viewRequest } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { dumpTables } from '../support/tables.js';
import { STEP, useCatalogue } from '../support/use-app.js';
import { addPlaced, countByVolume, failAt, placesBelow, type Told } from '../support/volumes.js';

const app = useCatalogue({}, async () => {
  await addQuota(app.ctx, 'ann', 10n ** 9n);
});

const AFFECTED = 'affected { __typename fileCount bytes requestCount }';
const move = (from: string, to: string, more: object = {}) =>
  mutate<Told>(app, 'moveVolume', { from, to, ...more }, AFFECTED);

const placed = (prefix: string) => placesBelow(app, prefix);
const sql = async (text: string, values: unknown[] = []) => (await app.ctx.db.pool.query(text, values)).rows;

test('first and second copies move to the same positions of the other volume, and other files stay', async () => {
  await addPlaced(app, '/one/first A1:3', '/one/both A1:4 A2:9', '/one/second A3:5 A1:6', '/one/other A3:4');
  await sql(`UPDATE tape_file SET copy_error = 'torn' WHERE path IN ('/one/both', '/one/second')`);
  await sql(`UPDATE volume SET medium = 'lto-8', used = 4000, next_position = 7 WHERE name = 'A1'`);
  const before = await dumpTables(app.ctx);
  expect(await move('A1', 'B1', { dryRun: true })).toMatchObject({ fileCount: 3, bytes: '3000', requestCount: 0 });
  expect(await dumpTables(app.ctx)).toEqual(before);
  expect(await move('A1', 'B1')).toMatchObject({
    __typename: 'AffectedFiles',
    fileCount: 3,
    bytes: '3000',
    requestCount: 0,
  });
  expect(await placed('/one/')).toEqual([
    '/one/both B1:4 A2:9 torn',
    '/one/first B1:3 -',
    '/one/other A3:4 -',
    '/one/second A3:5 B1:6',
  ]);
  const volume = `SELECT medium, used::int, next_position::int AS next, library_id AS library FROM volume WHERE name = 'B1'`;
  expect(await sql(volume)).toEqual([{ medium: 'lto-8', used: 4000, next: 7, library: 1 }]);
  expect(await move('A1', 'B1')).toEqual({ __typename: 'NotFound', message: 'volume "A1" contains no files' });
});

test('archive never assigns a position twice after a move', async () => {
  const given = await reservePositions(app.ctx, { sizes: [10n, 10n, 10n], volumeSize: 1000n });
  const from = given[0]?.volume as string;
  await addFiles(
    app.ctx,
    given.map((place, n) => ({ path: `/two/${n}`, size: 10n, ...place })),
  );
  expect(await move(from, 'TG0077')).toMatchObject({ fileCount: 3 });
  expect(await reservePositions(app.ctx, { sizes: [10n], volumeSize: 1000n })).toEqual([
    { volume: 'TG0077', position: 4n },
  ]);
  await addFiles(app.ctx, [{ path: '/two/late', volume: from, position: 99n }]);
  expect(await move(from, 'TG0077')).toMatchObject({ fileCount: 1 });
  expect(await reservePositions(app.ctx, { sizes: [10n], volumeSize: 1000n })).toEqual([
    { volume: 'TG0077', position: 5n },
  ]);
});

test('a move keeps imported checksums and checksums that Tapegate computed', async () => {
  await addFiles(app.ctx, [
    { path: '/three/told', volume: 'A4', checksum: 'adler32:00000001' },
    { path: '/three/taken', volume: 'A4' },
    { path: '/three/elsewhere', volume: 'A5', copyVolume: 'A4', copyPosition: 7n },
  ]);
  await sql(
    `UPDATE tape_file SET checksum = 'md5:00000002', checksum_taken = true WHERE path IN ('/three/taken', '/three/elsewhere')`,
  );
  await sql(`UPDATE tape_file SET adler32 = '0000000a' WHERE path IN ('/three/taken', '/three/elsewhere')`);
  await move('A4', 'B4');
  expect(
    await sql(
      `SELECT path, checksum, checksum_taken AS taken, adler32 FROM tape_file WHERE path LIKE '/three/%' ORDER BY path`,
    ),
  ).toEqual([
    { path: '/three/elsewhere', checksum: 'md5:00000002', taken: true, adler32: '0000000a' },
    { path: '/three/taken', checksum: 'md5:00000002', taken: true, adler32: '0000000a' },
    { path: '/three/told', checksum: 'adler32:00000001', taken: false, adler32: null },
  ]);
});

test('an impossible move is refused by name, and changes nothing', async () => {
  await addPlaced(app, '/four/a A6:1', '/four/b A6:2', '/four/there B6:2', '/four/c A7:5', '/four/second A8:5 B7:5');
  await addPlaced(app, '/four/twice A9:1 B9:2');
  await sql(`INSERT INTO volume (name) VALUES ('GONE1'), ('GONE2')`);
  await retireVolume(app.ctx, { name: 'GONE1', reason: 'worn out' });
  await retireVolume(app.ctx, { name: 'GONE2' });
  const before = await dumpTables(app.ctx);
  const gone = (reason: string) => `to must not be retired: ${reason}`;
  const taken = (at: string, by: string, other: string) =>
    `position ${at} already contains file "${by}": file ${other} has the same position`;
  const twice = 'file "/four/twice" has one copy on volume "A9" and the other on "B9": both would be on "B9"';
  const refused: [Told, type: string, message: string][] = [
    [await move('A6', 'GONE1'), 'InvalidInput', gone('volume "GONE1" was retired: worn out')],
    [await move('A6', 'GONE2'), 'InvalidInput', gone('volume "GONE2" was retired: it does not accept new files')],
    [await move('GONE2', 'B6'), 'NotFound', 'volume "GONE2" contains no files'],
    [await move('A6', 'B6'), 'InUse', taken('2 on volume "B6"', '/four/there', '"/four/b" on volume "A6"')],
    [await move('A7', 'B7'), 'InUse', taken('5 on volume "B7"', '/four/second', '"/four/c" on volume "A7"')],
    [await move('A9', 'B9'), 'InUse', twice],
  ];
  for (const [told, __typename, message] of refused) expect(told).toEqual({ __typename, message });
  expect((await move('A6', 'B6', { dryRun: true })).__typename).toBe('InUse');
  expect(await dumpTables(app.ctx)).toEqual(before);
});

test('a move to a volume of another library is refused', async () => {
  await addLibrary(app.ctx, { name: 'site', kind: 'command', settings: { read: ['cat'] } });
  await importRows(app.ctx, [
    buildRow({ path: '/five/a', volume: 'S1', library: 'site', position: null }),
    buildRow({ line: 2, path: '/five/b', volume: 'D1', position: 8n }),
  ]);
  const refused = await move('S1', 'D1');
  const message = expect.stringContaining('to must be in the same library as "S1"');
  expect(refused).toEqual({ __typename: 'InvalidInput', message });
  expect(await move('S1', 'D1', { dryRun: true })).toEqual(refused);
  expect(await move('S1', 'S2')).toMatchObject({ fileCount: 1 });
  const library = `SELECT b.name FROM volume v JOIN library b ON b.id = v.library_id WHERE v.name = 'S2'`;
  expect(await sql(library)).toEqual([{ name: 'site' }]);
  expect(await placed('/five/')).toEqual(['/five/a S2:- -', '/five/b D1:8 -']);
});

test('a volume with more files than a step is moved completely, also after a failure in between', async () => {
  const paths = Array.from({ length: STEP + 4 }, (_, n) => `/many/f${100_000 + n}`);
  // the first and the last file share a position, so they move together
  await addPlaced(app, ...paths.map((path, n) => `${path} M1:${n % (STEP + 3)}`));
  const goOn = await failAt(app, '/many/f100101');
  await expect(move('M1', 'M2')).rejects.toThrow('Internal error');
  await goOn();
  expect(await countByVolume(app, '/many/')).toEqual({ M1: 3, M2: STEP + 1 });
  expect(await move('M1', 'M2', { dryRun: true })).toMatchObject({ fileCount: 3, bytes: '3000' });
  expect(await move('M1', 'M2')).toMatchObject({ fileCount: 3, bytes: '3000' });
  expect(await countByVolume(app, '/many/')).toEqual({ M2: STEP + 4 });
  expect(await move('M2', 'M1')).toMatchObject({ fileCount: STEP + 4 });
  const perStep = `SELECT count(*)::int AS rows FROM audit WHERE operation = 'moveVolume' AND object = 'M2'`;
  expect(await sql(perStep)).toEqual([{ rows: 2 }]);
});

test('waiting and failed files of a request are tried anew on the other volume', async () => {
  await addPlaced(app, '/six/waits A11:1', '/six/failed A11:2', '/six/gone A11:3');
  await addFiles(app.ctx, [{ path: '/six/disk', volume: 'A11', position: 4n, stage: 'ONDISK' }]);
  const id = await makeRequest(app, { quota: 'ann', patterns: '/six/' });
  await withdrawFiles(app.ctx, { path: '/six/gone', reason: 'wrong' });
  await sql(
    `UPDATE recall c SET attempts = 3, earlier_tries = 4, not_before = 'infinity', error_class = 'MEDIA', error = 'torn' FROM tape_file f WHERE f.id = c.file_id AND f.path = '/six/waits'`,
  );
  await sql(`DELETE FROM recall c USING tape_file f WHERE f.id = c.file_id AND f.path = '/six/failed'`);
  await sql(
    `UPDATE request_file h SET state = 'FAILED', error_class = 'MEDIA', error = 'torn' FROM tape_file f WHERE f.id = h.file_id AND f.path = '/six/failed'`,
  );
  await sql('UPDATE request SET files_failed = files_failed + 1 WHERE id = $1', [id]);
  await suspend(app.ctx, { kind: 'VOLUME', name: 'A11', mode: 'IMMEDIATE', reason: 'torn' });
  expect(await move('A11', 'B11')).toMatchObject({ fileCount: 4, requestCount: 1 });
  const { files, filesFailed } = await viewRequest(app, id);
  expect(files).toMatchObject([
    { path: '/six/disk', state: 'ON_DISK' },
    { path: '/six/failed', state: 'WAITING', error: null },
    { path: '/six/gone', state: 'FAILED', error: 'withdrawn from the archive: wrong' },
    { path: '/six/waits', state: 'WAITING', error: null },
  ]);
  expect(filesFailed).toBe(1);
  const recalls = await sql(
    `SELECT f.path, v.name AS volume, c.position::int, c.attempts, c.earlier_tries AS earlier, c.not_before AS "notBefore", c.error
     FROM recall c JOIN tape_file f ON f.id = c.file_id JOIN volume v ON v.id = c.volume_id WHERE f.path LIKE '/six/%' ORDER BY f.path`,
  );
  const fresh = { volume: 'B11', attempts: 0, earlier: 0, notBefore: null, error: null };
  expect(recalls).toEqual([
    { path: '/six/failed', position: 2, ...fresh },
    { path: '/six/waits', position: 1, ...fresh },
  ]);
});
