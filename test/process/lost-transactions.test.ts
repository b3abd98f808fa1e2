/**
 * Copies that the database has forgotten after a failover or a restored backup, and users' files at the paths of
 * copies.
 */
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { removeUnheld } from '../../src/restore-area/copies/removal.js';
import type { TestApp } from '../support/app.js';
import { prepareIdle, withEngine } from '../support/engine-by-hand.js';
import { findIllegalMoves, listTree, readDisks, readMoves, readRestored, readStage } from '../support/engine-watch.js';
import { addTaped, checksumOf } from '../support/factories.js';
import { findFaults } from '../support/faults.js';
import { createFreshApp } from '../support/fresh-app.js';
import { askData } from '../support/graphql.js';
import { createMemoryLibrary, type MemoryLibrary } from '../support/memory-library.js';
import { cancel } from '../support/mutations.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { keepTables } from '../support/tables.js';

const files = ['/lost/a', '/lost/b', '/lost/deep/c'];
let app: TestApp;
let library: MemoryLibrary;

const start = createFreshApp();
beforeEach(async () => {
  app = await prepareIdle(await start());
  library = createMemoryLibrary();
});
afterEach(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
});

const place = (file: string) => path.join(app.restoreDir, file);
const inodes = () => files.map((file) => statSync(place(file)).ino);
const stages = () => Promise.all(files.map((file) => readStage(app, file)));
const removeAll = () => removeUnheld(app.ctx, new AbortController().signal);

/** Restores files for a request. Then resets the database to the moment before the restore. */
async function restoreAndForget() {
  const contents = await addTaped(
    app.ctx,
    library,
    files.map((file) => ({ path: file })),
  );
  const id = await makeRequest(app, { quota: 'alice', files, retention: '2099-01-01' });
  const putBack = await keepTables(app.ctx);
  await withEngine(app, library, () => waitForState(app, id, 'COMPLETED'));
  await putBack();
  expect([(await viewRequest(app, id)).state, await stages()]).toEqual(['QUEUED', ['T', 'T', 'T']]);
  return { id, contents };
}

const doctor = async (options = {}) => (await findFaults(app, options)).sort();

test('a request completes with the copies that the database has forgotten, and they stay as they are', async () => {
  const { id, contents } = await restoreAndForget();
  const before = inodes();
  await withEngine(app, library, async () => {
    const view = await waitForState(app, id, 'COMPLETED');
    expect(view).toMatchObject({ filesOnDisk: 3, filesFailed: 0 });
    for (const [file, bytes] of contents) expect(readRestored(app, file)).toEqual(bytes);
    expect([inodes(), await stages()]).toEqual([before, ['U', 'U', 'U']]);
    expect(await readDisks(app)).toEqual({ used: 0n, reserved: 0n }); // Tapegate does not regard the copies as its own
    const asked = `{ request(requestId: ${id}) { restoredBelow } tapeFile(path: "/lost/a") { restoredPath } }`;
    const told = { request: { restoredBelow: [app.restoreDir] }, tapeFile: { restoredPath: place('/lost/a') } };
    expect(await askData(app, asked)).toEqual(told);
    await cancel(app, id);
    library.log.length = 0;
    const again = await makeRequest(app, { quota: 'alice', files: ['/lost/a'] });
    await waitForState(app, again, 'COMPLETED');
    expect(library.log).toEqual([]);
    rmSync(place('/lost/b'));
    const gone = await makeRequest(app, { quota: 'alice', files: ['/lost/b'] });
    await waitForState(app, gone, 'COMPLETED');
    expect(readRestored(app, '/lost/b')).toEqual(contents.get('/lost/b'));
  });
  expect((await readMoves(app, '/lost/b')).map(({ move }) => move)).toEqual(['TA', 'AU', 'UT', 'TA', 'AR']);
  expect(await removeAll()).toBe(0);
  expect(listTree(app.restoreDir).filter((name) => name.endsWith('.part'))).toEqual([]);
  expect([inodes()[0], inodes()[2]]).toEqual([before[0], before[2]]);
});

test('the doctor finds forgotten copies of requested files, and an operator may adopt them', async () => {
  const { id } = await restoreAndForget();
  await withEngine(app, library, () => waitForState(app, id, 'COMPLETED'));
  const before = inodes();
  const faults = files.map((file) => `copy-not-ours: ${place(file)}`);
  expect(await doctor()).toEqual(faults);
  expect(await doctor({ repair: true })).toEqual(faults);
  writeFileSync(place('/lost/b'), Buffer.alloc(1000)); // from now on the file belongs to a user
  const [a, b, c] = faults;
  expect(await doctor({ repair: true, adopt: true })).toEqual([`${a} (repaired)`, b, `${c} (repaired)`]);
  expect([await stages(), inodes(), await readDisks(app)]).toEqual([
    ['R', 'U', 'R'],
    before,
    { used: 2000n, reserved: 0n },
  ]);
  expect(await viewRequest(app, id)).toMatchObject({ state: 'COMPLETED', filesOnDisk: 3 });
  await cancel(app, id);
  expect(await removeAll()).toBe(2);
  expect(listTree(app.restoreDir)).toEqual(['lost', 'lost/b']);
  expect(await readDisks(app)).toEqual({ used: 0n, reserved: 0n });
});

test('forgotten copies of files that no request contains are removed once they are adopted', async () => {
  const { id, contents } = await restoreAndForget();
  await cancel(app, id);
  const faults = files.map((file) => `orphan-copy: ${place(file)}`);
  expect(await doctor({ repair: true })).toEqual(faults);
  writeFileSync(place('/lost/a'), Buffer.alloc(1000));
  const [a, b, c] = faults;
  expect(await doctor({ repair: true, adopt: true })).toEqual([a, `${b} (repaired)`, `${c} (repaired)`]);
  expect([await stages(), await readDisks(app)]).toEqual([['T', 'T', 'T'], { used: 2000n, reserved: 0n }]);
  expect(await removeAll()).toBe(2);
  expect([listTree(app.restoreDir), await readDisks(app)]).toEqual([['lost', 'lost/a'], { used: 0n, reserved: 0n }]);
  const again = await makeRequest(app, { quota: 'alice', files: ['/lost/b'], retention: '2099-01-01' });
  await withEngine(app, library, () => waitForState(app, again, 'COMPLETED'));
  expect([readRestored(app, '/lost/b'), await readStage(app, '/lost/b')]).toEqual([contents.get('/lost/b'), 'R']);
});

test("a user's file counts as the copy if its bytes are those on tape, and always stays as it is", async () => {
  const bytes = Buffer.alloc(1000, 100);
  const adler32 = 'adler32:e46d86b0'; // the checksum of `bytes`
  const sameSums = Buffer.from(bytes);
  sameSums.set([101, 98, 101]); // other bytes with the same Adler-32 checksum, by RFC 1950, section 9
  const cases: { path: string; checksum: string | null; own: Buffer; isCopy: boolean }[] = [
    { path: '/own/sha256', checksum: checksumOf(bytes), own: bytes, isCopy: true },
    { path: '/own/no-checksum', checksum: null, own: bytes, isCopy: true },
    { path: '/own/adler32', checksum: adler32, own: bytes, isCopy: true },
    { path: '/own/sha256-other', checksum: checksumOf(bytes), own: Buffer.alloc(1000), isCopy: false },
    { path: '/own/no-checksum-other', checksum: null, own: Buffer.alloc(1000), isCopy: false },
    { path: '/own/adler32-other', checksum: adler32, own: sameSums, isCopy: false },
  ];
  await addTaped(
    app.ctx,
    library,
    cases.map((each) => ({ path: each.path, bytes })),
  );
  mkdirSync(place('/own'));
  for (const { path: file, checksum, own } of cases) {
    await app.ctx.db.pool.query('UPDATE tape_file SET checksum = $1 WHERE path = $2', [checksum, file]);
    writeFileSync(place(file), own);
  }
  const look = () =>
    cases.map(({ path: file }) => {
      const { ino, mode, uid, ctimeNs } = statSync(place(file), { bigint: true });
      return { file, ino, mode, uid, ctimeNs, bytes: readFileSync(place(file)) };
    });
  const before = look();
  const id = await makeRequest(app, { quota: 'alice', patterns: '/own/' });
  const { files } = await withEngine(app, library, () => waitForState(app, id, 'PARTIAL'));
  const taken = { state: 'ON_DISK', error: null };
  const refused = { state: 'FAILED', errorClass: 'POLICY', error: expect.stringContaining('another file exists at') };
  const sorted = cases.toSorted((a, b) => (a.path < b.path ? -1 : 1));
  expect(files).toMatchObject(sorted.map(({ path, isCopy }) => ({ path, ...(isCopy ? taken : refused) })));
  await cancel(app, id);
  expect(await removeAll()).toBe(0);
  expect(look()).toEqual(before);
  expect(listTree(app.restoreDir).length).toBe(1 + cases.length);
});

test('after a failover that lost transactions, no id of a request or event is used again', async () => {
  const query = async (text: string) => (await app.ctx.db.pool.query(text)).rows;
  const make = () => makeRequest(app, { quota: 'alice', patterns: '/none/' });
  const first = await make();
  const putBack = await keepTables(app.ctx);
  let last = first;
  for (let n = 0; n < 40; n++) last = await make();
  const [{ event }] = await query('SELECT max(id) AS event FROM event');
  await putBack();
  await query('UPDATE sequence_timeline SET timeline = timeline - 1'); // as after the promotion of a standby
  await query(`CREATE SEQUENCE of_another_program; SELECT nextval('of_another_program');
    ALTER SEQUENCE of_another_program OWNER TO pg_monitor`);
  const next = await make();
  expect(next).toBe(first + 1_000_001);
  expect([last, await make()]).toEqual([first + 40, next + 1]);
  const [{ lowest }] = await query(`SELECT min(id) AS lowest FROM event WHERE request_id = ${next}`);
  expect(lowest > event).toBe(true);
  const [other] = await query('SELECT last_value::int AS last FROM of_another_program');
  expect(other).toEqual({ last: 1 });
  await query('DROP SEQUENCE of_another_program');
});
