/** Volumes that are retired and then put back into use. */
import { expect, test } from 'vitest';
import { reservePositions } from '../../src/domain/catalogue/volumes.js';
import { reinstateFiles, withdrawFiles } from '../../src/domain/catalogue/withdrawals.js';
import { moveVolume } from '../../src/domain/catalogue-changes/volume-moves.js';
import { resume, suspend } from '../../src/domain/health/suspensions.js';
import { examine } from '../../src/engine/doctor/doctor.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData, type Connection } from '../support/graphql.js';
import { send } from '../support/http.js';
import { waitForBlocked } from '../support/locks.js';
import { retry } from '../support/mutations.js';
import { mutate } from '../support/payloads.js';
import { viewRequest } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { dumpTables } from '../support/tables.js';
import { STEP, useCatalogue } from '../support/use-app.js';
import { addPlaced, countByVolume, failAt, placesBelow, type Told } from '../support/volumes.js';

const app = useCatalogue({}, async () => {
  await addQuota(app.ctx, 'ann', 10n ** 9n);
});

async function findFaults(repair = false): Promise<object[]> {
  const faults: object[] = [];
  await examine(app.ctx, { repair, checksums: false, adopt: false }, (fault) => faults.push(fault));
  return faults;
}

const RETIRED = 'retired { __typename fileCount bytes filesElsewhere filesWithdrawn requestCount }';
const retire = (name: string, more: object = {}) => mutate<Told>(app, 'retireVolume', { name, ...more }, RETIRED);

const REINSTATED = 'volume { __typename name retiredAt retiredReason }';
const reinstate = (name: string) => mutate(app, 'reinstateVolume', { name }, REINSTATED);

const placed = (prefix: string) => placesBelow(app, prefix);
const sql = async (text: string, values: unknown[] = []) => (await app.ctx.db.pool.query(text, values)).rows;
const recallsBelow = (prefix: string) =>
  sql(
    `SELECT f.path, v.name AS volume, c.position::int, c.attempts FROM recall c JOIN tape_file f ON f.id = c.file_id
     LEFT JOIN volume v ON v.id = c.volume_id WHERE starts_with(f.path, $1) ORDER BY f.path`,
    [prefix],
  );

test('files of a retired volume are read from their other copies, and its second copies are removed', async () => {
  await addPlaced(app, '/one/first A1:3 B1:7', '/one/second B1:4 A1:8', '/one/other B1:5 C1:1');
  const id = await makeRequest(app, { quota: 'ann', patterns: '/one/' });
  await sql(`UPDATE recall SET attempts = 3 WHERE volume_id = (SELECT id FROM volume WHERE name = 'A1')`);
  const before = await dumpTables(app.ctx);
  const figures = { fileCount: 2, bytes: '2000', filesElsewhere: 2, filesWithdrawn: 0, requestCount: 1 };
  expect(await retire('A1', { reason: 'worn out', dryRun: true })).toEqual({ __typename: 'RetiredVolume', ...figures });
  expect(await dumpTables(app.ctx)).toEqual(before);
  expect(await retire('A1', { reason: 'worn out' })).toEqual({ __typename: 'RetiredVolume', ...figures });
  expect(await placed('/one/')).toEqual(['/one/first B1:7 -', '/one/other B1:5 C1:1', '/one/second B1:4 -']);
  expect(await recallsBelow('/one/')).toEqual([
    { path: '/one/first', volume: 'B1', position: 7, attempts: 0 },
    { path: '/one/other', volume: 'B1', position: 5, attempts: 0 },
    { path: '/one/second', volume: 'B1', position: 4, attempts: 0 },
  ]);
  expect((await viewRequest(app, id)).files.map(({ state }) => state)).toEqual(['WAITING', 'WAITING', 'WAITING']);
  expect(await retire('A1')).toEqual({ __typename: 'NotFound', message: 'volume "A1" is already retired' });
  expect(await retire('A1', { dryRun: true })).toMatchObject({ __typename: 'NotFound' });
});

test('files without another copy are reported, and withdrawn only if asked for', async () => {
  await addPlaced(app, '/two/a A2:1', '/two/b A2:2', '/two/c A2:3', '/two/bad A2:5 B2:5', '/two/before A2:6');
  await addPlaced(app, '/two/safe A2:7 B2:7', '/two/unplaced A2:8 B2:-');
  await addFiles(app.ctx, [{ path: '/two/d', volume: 'A2', position: 4n, stage: 'ONDISK' }]);
  await sql(`UPDATE tape_file SET copy_error = 'torn' WHERE path = '/two/bad'`);
  await withdrawFiles(app.ctx, { path: '/two/before', reason: 'wrong' });
  const id = await makeRequest(app, { quota: 'ann', files: ['/two/a', '/two/d', '/two/safe'] });
  const before = await dumpTables(app.ctx);
  const message =
    'volume "A2" has the only usable copy of 6 files (6.00 kB): "/two/a", "/two/b", "/two/bad" and 3 more; withdraw these files together with the volume, or first import their positions on other volumes';
  for (const more of [{}, { dryRun: true }]) {
    expect(await retire('A2', more)).toEqual({ __typename: 'InUse', message });
  }
  expect(await dumpTables(app.ctx)).toEqual(before);
  const told = { fileCount: 8, bytes: '8000', filesElsewhere: 1, filesWithdrawn: 6, requestCount: 1 };
  expect(await retire('A2', { withdraw: true, reason: 'worn out', dryRun: true })).toMatchObject(told);
  expect(await dumpTables(app.ctx)).toEqual(before);
  expect(await retire('A2', { withdraw: true, reason: 'worn out' })).toMatchObject(told);
  expect(await placed('/two/')).toEqual([
    '/two/a - -',
    '/two/b - -',
    '/two/bad B2:5 -', // unreadable at B2, but the only known copy
    '/two/before - -',
    '/two/c - -',
    '/two/d - -',
    '/two/safe B2:7 -',
    '/two/unplaced B2:- -',
  ]);
  const withdrawn = await sql(
    `SELECT path, withdrawn_reason AS reason FROM tape_file WHERE path LIKE '/two/%' AND withdrawn_at IS NOT NULL ORDER BY path`,
  );
  const reason = 'volume A2 was retired: worn out';
  expect(withdrawn.map((row) => [row.path.slice('/two/'.length), row.reason])).toEqual([
    ...['a', 'b', 'bad'].map((name) => [name, reason]),
    ['before', 'wrong'],
    ...['c', 'd', 'unplaced'].map((name) => [name, reason]),
  ]);
  const error = 'withdrawn from the archive: volume A2 was retired: worn out';
  expect((await viewRequest(app, id)).files).toMatchObject([
    { path: '/two/a', state: 'FAILED', errorClass: 'POLICY', error },
    { path: '/two/d', state: 'ON_DISK' },
    { path: '/two/safe', state: 'WAITING' },
  ]);
  // a restored file has no position until an import provides a position
  await reinstateFiles(app.ctx, { path: '/two/a' });
  await addFiles(app.ctx, [{ path: '/two/a', volume: 'B2', position: 50n }]);
  await retry(app, { requestId: id });
  expect(await recallsBelow('/two/')).toMatchObject([{ path: '/two/a', volume: 'B2' }, { path: '/two/safe' }]);
});

test('a copy that has failed does not count as another copy, until a retry', async () => {
  await addPlaced(app, '/both/a KB2:1 K1:1', '/both/b LB2:1 L1:1');
  const id = await makeRequest(app, { quota: 'ann', patterns: '/both/' });
  await sql(`UPDATE tape_file SET copy_error = 'torn', copy_failed_at = now() WHERE path LIKE '/both/%'`);
  await sql(`DELETE FROM recall c USING tape_file f WHERE f.id = c.file_id AND f.path LIKE '/both/%'`);
  await sql(`UPDATE request_file SET state = 'FAILED', error_class = 'MEDIA', error = 'torn' WHERE request_id = $1`, [
    id,
  ]);
  await sql(`UPDATE request SET files_failed = 2, state = 'PARTIAL' WHERE id = $1`, [id]);
  const message = expect.stringContaining('kB): "/both/a"');
  for (const volume of ['KB2', 'K1']) expect(await retire(volume)).toMatchObject({ __typename: 'InUse', message });
  const retry = await app.ctx.db.pool.connect();
  await retry.query('BEGIN');
  await retry.query(`UPDATE tape_file SET copy_error = NULL, copy_failed_at = NULL WHERE path = '/both/b'`);
  const retiring = retire('LB2', { withdraw: true });
  await waitForBlocked(app, 1);
  await retry.query('COMMIT');
  retry.release();
  expect(await retiring).toMatchObject({ fileCount: 1 });
  expect(await placed('/both/')).toEqual(['/both/a KB2:1 K1:1 torn', '/both/b L1:1 -']);
  const files = [{ state: 'FAILED' }, { path: '/both/b', state: 'WAITING' }];
  expect((await viewRequest(app, id)).files).toMatchObject(files);
});

test('a volume in use is refused with the name of the drive, and nothing is stored', async () => {
  await addPlaced(app, '/four/a A4:1 B4:1', '/four/b A4:2 B4:2');
  await makeRequest(app, { quota: 'ann', patterns: '/four/' });
  await sql(
    `INSERT INTO drive (name, volume_id, lease_until) SELECT 'drive-7', id, timezone('utc', now()) + interval '10 minutes' FROM volume WHERE name = 'A4'`,
  );
  const refusal = (does: string, way = 'suspend or drain the volume, and try again when no drive uses it') => ({
    __typename: 'InUse',
    message: `volume "A4" is in use: drive-7 ${does}; ${way}`,
  });
  const before = await dumpTables(app.ctx);
  expect(await retire('A4')).toEqual(refusal('has it mounted'));
  expect(await retire('A4', { dryRun: true })).toEqual(refusal('has it mounted'));
  expect(await dumpTables(app.ctx)).toEqual(before);
  const recall = `recall c SET state = $1::"RecallState", drive_id = $2 FROM tape_file f WHERE f.id = c.file_id AND f.path = '/four/a'`;
  const [drive] = await sql(`SELECT id FROM drive WHERE name = 'drive-7'`);
  await sql(`UPDATE ${recall}`, ['RUNNING', drive.id]);
  expect(await retire('A4')).toEqual(refusal('has it mounted and reads 1 file from it'));
  await sql(`UPDATE drive SET volume_id = NULL WHERE name = 'drive-7'`);
  expect(await retire('A4')).toEqual(refusal('reads 1 file from it'));
  await sql(`UPDATE drive SET lease_until = now() - interval '1 day' WHERE name = 'drive-7'`);
  const abandoned = "the drive's engine has stopped: try again when another engine has recovered the drive";
  expect(await retire('A4')).toEqual(refusal('reads 1 file from it', abandoned));
  await sql(`UPDATE ${recall}`, ['WAITING', null]);
  expect(await retire('A4')).toMatchObject({ fileCount: 2 });
  await sql(`DELETE FROM drive WHERE name = 'drive-7'`);
});

test('imports, archive and moves put no file on a retired volume', async () => {
  const [place] = await reservePositions(app.ctx, { sizes: [10n], volumeSize: 1000n });
  const volume = place?.volume as string;
  await retire(volume, { reason: 'torn' });
  expect((await reservePositions(app.ctx, { sizes: [10n], volumeSize: 1000n }))[0]?.volume).not.toBe(volume);
  await sql(`INSERT INTO volume (name) VALUES ('A5')`);
  await retire('A5');
  const rows = [
    '/five/a,1,T,V1,1,,',
    `/five/b,1,T,${volume},1,,`,
    '/five/c,1,T,V1,2,A5,2',
    `/five/d,1,T,${volume},2,,`,
  ];
  const { status, body } = await send(app, '/import', {
    method: 'PUT',
    body: `path,size,stage,volume,position,copy_volume,copy_position\n${rows.join('\n')}\n`,
    headers: { Authorization: `Bearer ${app.token}` },
  });
  expect([status, (body as { faults: string[] }).faults]).toEqual([
    400,
    [`line 3: volume "${volume}" was retired: torn`, 'line 4: volume "A5" was retired: it does not accept new files'],
  ]);
  expect(await placed('/five/')).toEqual([]);
  await addFiles(app.ctx, [{ path: '/five/e', volume: 'V5' }]);
  await expect(moveVolume(app.ctx, { from: 'V5', to: 'A5' })).rejects.toThrow('to must not be retired');
});

test('a volume with more files than a step is retired completely, also after a failure in between', async () => {
  const paths = Array.from({ length: STEP + 3 }, (_, n) => `/many/f${100_000 + n}`);
  const places = paths.map((path, n) => `${path} M1:${n}${n < STEP + 2 ? ` M2:${n}` : ''}`);
  await addPlaced(app, ...places);
  await addQuota(app.ctx, 'eve', 10n ** 9n);
  const id = await makeRequest(app, { quota: 'eve', patterns: '/many/' });
  const goOn = await failAt(app, '/many/f100101');
  await expect(retire('M1', { withdraw: true, reason: 'first' })).rejects.toThrow('Internal error');
  await goOn();
  expect(await countByVolume(app, '/many/')).toEqual({ M1: 3, M2: STEP });
  expect((await readVolume('M1')).retiredReason).toBe('first');
  expect(await retire('M1')).toMatchObject({ __typename: 'InUse' });
  expect(await retire('M1', { withdraw: true, reason: 'second' })).toMatchObject({
    fileCount: 3,
    filesElsewhere: 2,
    filesWithdrawn: 1,
  });
  expect(await countByVolume(app, '/many/')).toEqual({ '-': 1, M2: STEP + 2 });
  expect(await viewRequest(app, id)).toMatchObject({ filesFailed: 1, filesTotal: STEP + 3 });
  const [last] = await sql(`SELECT withdrawn_reason AS reason FROM tape_file WHERE path = '/many/f100102'`);
  expect(last).toEqual({ reason: 'volume M1 was retired: first' });
});

type Listed = Record<'name' | 'retiredAt' | 'retiredReason', string | null>;

async function readVolume(name: string): Promise<Listed> {
  const { volumes } = await listVolumes('includeRetired: true');
  return volumes.find((volume) => volume.name === name) as Listed;
}

async function listVolumes(args: string): Promise<{ totalCount: number; volumes: Listed[] }> {
  const query = `{ volumes(first: 1000, ${args}) { totalCount edges { node { name retiredAt retiredReason } } } }`;
  const { volumes } = await askData<{ volumes: Connection<Listed> }>(app, query);
  return { totalCount: volumes.totalCount ?? -1, volumes: volumes.edges.map(({ node }) => node) };
}

test('retired volumes are listed on request, and can be used again after they are reinstated', async () => {
  await sql(`INSERT INTO volume (name) VALUES ('A6')`);
  const before = await listVolumes('includeRetired: false');
  const held = { kind: 'VOLUME', name: 'A6', mode: 'IMMEDIATE', reason: 'torn' } as const;
  await suspend(app.ctx, held);
  await retire('A6', { reason: 'worn out' });
  expect((await listVolumes('includeRetired: false')).totalCount).toBe(before.totalCount - 1);
  expect((await listVolumes('')).volumes.map(({ name }) => name)).not.toContain('A6');
  const retiredAt = expect.stringMatching(/^\d{4}-.*Z$/);
  expect(await readVolume('A6')).toEqual({ name: 'A6', retiredAt, retiredReason: 'worn out' });
  // retiring the volume has ended its suspension
  await expect(resume(app.ctx, held)).rejects.toThrow('not suspended');
  expect(await reinstate('A6')).toEqual({ __typename: 'Volume', name: 'A6', retiredAt: null, retiredReason: null });
  expect(await listVolumes('')).toEqual(before);
  expect(await reinstate('A6')).toEqual({ __typename: 'NotFound', message: 'volume "A6" is not retired' });
  expect(await reinstate('NONE')).toEqual({ __typename: 'NotFound', message: 'there is no volume "NONE"' });
  await addFiles(app.ctx, [{ path: '/six/a', volume: 'A6' }]);
  expect(await placed('/six/')).toEqual(['/six/a A6:1 -']);
});

test('the doctor reinstates a retired volume that has files, unless it is being retired', async () => {
  await addPlaced(app, '/seven/a A7:1', '/seven/b V7:2 A8:1');
  await sql(
    `UPDATE volume SET retired_at = timezone('utc', clock_timestamp()), retired_reason = 'torn' WHERE name IN ('A7', 'A8')`,
  );
  expect(await findFaults()).toEqual([]);
  await sql(`UPDATE volume SET retired_at = timestamp '2026-01-02 03:04:05' WHERE name IN ('A7', 'A8')`);
  const expected = 'no file on it, since it was retired at 2026-01-02T03:04:05';
  const fault = (volume: string, path: string) => ({
    ...{ kind: 'volume-retired', object: `volume ${volume}`, expected, found: `1 file: ${path}` },
  });
  const faults = [fault('A7', '/seven/a'), fault('A8', '/seven/b')];
  expect(await findFaults()).toEqual(faults.map((each) => ({ ...each, isRepaired: false })));
  expect(await findFaults(true)).toEqual(faults.map((each) => ({ ...each, isRepaired: true })));
  expect(await findFaults()).toEqual([]);
  expect(await placed('/seven/')).toEqual(['/seven/a A7:1 -', '/seven/b V7:2 A8:1']);
  expect(await readVolume('A7')).toMatchObject({ retiredAt: null, retiredReason: null });
});
