/** The early release of single files, with an engine at work. What races with what: release-races.test.ts. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { TapeError } from '../../src/errors.js';
import { joinAwaited } from '../../src/operations/requests/awaited.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { findIllegalMoves, listTree, readDisks, readMoves, readRestored, readStage } from '../support/engine-watch.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { holdReads } from '../support/held-reads.js';
import { cancel, made, release, update } from '../support/mutations.js';
import { viewRequest, waitForState, waitForView } from '../support/request-view.js';
import { put, readRequest, readUsed } from '../support/rest.js';
import { take, transports } from '../support/streams.js';
import { dumpTables } from '../support/tables.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
const hooks = { onMount: backend.onMount, onRead: backend.onRead };
const later = '2999-01-01T00:00:00';

beforeAll(async () => {
  app = await startApp({ backend, config: { drives: 1 } });
  for (const user of ['alice', 'bob']) await addQuota(app.ctx, user, 100_000n);
});
afterEach(() => {
  Object.assign(backend, hooks);
  backend.log.length = 0;
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
});

const states = async (id: number) => (await viewRequest(app, id)).holds.map(({ path, state }) => `${path} ${state}`);

/** What a release could change. Not the drives and the drive time of users, which the engine writes when it likes. */
async function dump() {
  const { request, hold, awaited_path, event, tape_file, recall, notification } = await dumpTables(app.ctx);
  const used = [await readUsed(app, 'alice'), await readUsed(app, 'bob')];
  return { request, hold, awaited_path, event, tape_file, recall, notification, used };
}

const count = async (sql: string) => (await app.ctx.db.pool.query(sql)).rowCount;

/** Ends a request and waits until nothing is left of it. */
async function end(...ids: number[]): Promise<void> {
  for (const id of ids) await cancel(app, id);
  await waitFor('all copies to be gone', async () => (await readDisks(app)).used === 0n);
}

test('a released file leaves the disk and gives its charge back, again and again, and the others stay', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/leave/a', volume: 'LEAVE', position: 1n, size: 100 },
    { path: '/leave/b', volume: 'LEAVE', position: 2n, size: 20 },
    { path: '/leave/c', volume: 'LEAVE', position: 3n, size: 3 },
  ]);
  const id = await made(app, { quota: 'alice', pattern: '/leave/' });
  const whole = await waitForState(app, id, 'COMPLETED');
  expect(await readUsed(app, 'alice')).toBe(123);

  expect(await release(app, { id, paths: ['/leave/b'] })).toMatchObject({
    state: 'COMPLETED',
    filesTotal: 2,
    filesOnDisk: 2,
    filesReleased: 1,
    bytesTotal: '103',
  });
  expect(await readUsed(app, 'alice')).toBe(103);
  await waitFor('the copy to be gone', async () => (await readDisks(app)).used === 103n);
  expect(readRestored(app, '/leave/b')).toBeUndefined();
  expect(await readStage(app, '/leave/b')).toBe('T');

  await release(app, { id, paths: ['/leave/a', '/leave/b'] });
  expect(await readUsed(app, 'alice')).toBe(3);
  await waitFor('the next copy to be gone', async () => (await readDisks(app)).used === 3n);
  expect([readRestored(app, '/leave/a'), readRestored(app, '/leave/c')?.length]).toEqual([undefined, 3]);
  expect(await readStage(app, '/leave/c')).toBe('R');
  await waitFor('the request to need no more looks', async () => {
    return (await count('SELECT FROM request WHERE NOT is_released')) === 0;
  });

  const view = await viewRequest(app, id);
  expect(view).toMatchObject({ state: 'COMPLETED', filesTotal: 1, filesOnDisk: 1, bytesTotal: '3', bytesOnDisk: '3' });
  expect(view.lastFilesOnDisk).toBe(whole.lastFilesOnDisk);
  expect(await states(id)).toEqual(['/leave/a RELEASED', '/leave/b RELEASED', '/leave/c ON_DISK']);
  await end(id);
  expect(await readUsed(app, 'alice')).toBe(0);
});

test('files that are released twice change nothing the second time', async () => {
  await addTaped(app.ctx, backend, [{ path: '/twice/a' }, { path: '/twice/b' }]);
  const id = await made(app, { quota: 'alice', pattern: '/twice/' });
  await waitForState(app, id, 'COMPLETED');
  await release(app, { id, match: 'twice/a' });
  await waitFor('the copy to be gone', async () => (await readDisks(app)).used === 1000n);
  await waitFor('the request to be looked through', async () => {
    return (await count('SELECT FROM request WHERE NOT is_released')) === 0;
  });
  const before = await dump();
  for (const choice of [{ paths: ['/twice/a', '/twice/a'] }, { match: 'twice/a' }]) {
    expect(await release(app, { id, ...choice })).toMatchObject({ filesReleased: 1, filesTotal: 1 });
  }
  expect(await dump()).toEqual(before);
  await end(id);
});

test('the match is a plain substring of the paths of this request', async () => {
  await addFiles(
    app.ctx,
    ['/plain/a_b%', '/plain/axbc', '/plain/A_B%', '/other/a_b%'].map((path) => ({ path, stage: 'ONDISK' as const })),
  );
  const id = await made(app, { quota: 'alice', pattern: '/plain/' });
  const other = await made(app, { quota: 'alice', pattern: '/other/' });
  await release(app, { id, match: 'a_b%' });
  expect(await states(id)).toEqual(['/plain/A_B% ON_DISK', '/plain/a_b% RELEASED', '/plain/axbc ON_DISK']);
  expect(await states(other)).toEqual(['/other/a_b% ON_DISK']);
  expect(await readStage(app, '/plain/a_b%')).toBe('D'); // its own copy, not a restored one
  await end(id, other);
});

test('a file that is waited for and released is never read, and without files the request is complete', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/queue/busy', volume: 'BUSY' },
    { path: '/queue/never', volume: 'NEVER' },
  ]);
  const reads = holdReads(backend);
  const busy = await made(app, { quota: 'bob', files: ['/queue/busy'] });
  await reads.begun();
  const id = await made(app, { quota: 'alice', files: ['/queue/never'] });
  expect(await release(app, { id, paths: ['/queue/never'] })).toMatchObject({
    state: 'COMPLETED',
    filesTotal: 0,
    filesReleased: 1,
    bytesTotal: '0',
  });
  expect(await readUsed(app, 'alice')).toBe(0);
  expect(await count('SELECT FROM recall')).toBe(1);
  expect(await viewRequest(app, id)).toMatchObject({ tapestoreRequestStart: null, lastFilesOnDisk: null });
  reads.open();
  await waitForState(app, busy, 'COMPLETED');
  await waitFor('the unmount', async () => backend.log.some((entry) => entry.what === 'unmount'));
  expect(backend.log.map((entry) => entry.volume)).not.toContain('NEVER');
  await end(id, busy);
  expect(await readUsed(app, 'alice')).toBe(0);
});

test('a recall that runs is stopped when its last hold is released, and the rest is restored', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/stop/a', volume: 'STOP', position: 1n },
    { path: '/stop/b', volume: 'STOP', position: 2n },
  ]);
  const gate = createGate();
  backend.onRead = async (_volume, position, bytes) => {
    if (position === 1n) await gate.opened;
    return bytes;
  };
  const id = await made(app, { quota: 'alice', pattern: '/stop/' });
  await waitFor('a read', async () => backend.log.some((entry) => entry.what === 'read'));
  await release(app, { id, paths: ['/stop/a'] });
  // the gate stays shut: only a stop ends the read
  const view = await waitForState(app, id, 'COMPLETED');
  expect(view).toMatchObject({ filesTotal: 1, filesOnDisk: 1 });
  await waitFor('the file to be back on tape', async () => (await readStage(app, '/stop/a')) === 'T');
  gate.open();
  expect(listTree(app.restoreDir).filter((name) => /\/a$|\.part$/.test(name))).toEqual([]);
  expect(await readDisks(app)).toEqual({ used: 1000n, reserved: 0n });
  expect(await count('SELECT FROM recall')).toBe(0);
  await end(id);
});

test('a recall goes on for the other request that waits for its file', async () => {
  await addTaped(app.ctx, backend, [{ path: '/shared/a', volume: 'SHARED' }]);
  const reads = holdReads(backend);
  const first = await made(app, { quota: 'alice', files: ['/shared/a'] });
  await reads.begun();
  const second = await made(app, { quota: 'bob', files: ['/shared/a'] });
  await release(app, { id: first, match: 'a' });
  reads.open();
  await waitForState(app, second, 'COMPLETED');
  expect(readRestored(app, '/shared/a')).toHaveLength(1000);
  expect(await viewRequest(app, first)).toMatchObject({ state: 'COMPLETED', filesTotal: 0, firstFilesOnDisk: null });
  expect(backend.log.filter((entry) => entry.what === 'read')).toHaveLength(1);
  expect([await readUsed(app, 'alice'), await readUsed(app, 'bob')]).toEqual([0, 1000]);
  await end(first, second);
});

test('a request whose remaining files are on disk is complete, and as complete as they are', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/rest/bad', volume: 'REST', position: 1n },
    { path: '/rest/good', volume: 'REST', position: 2n },
    { path: '/rest/slow', volume: 'REST', position: 3n },
  ]);
  const gate = createGate();
  backend.onRead = async (_volume, position, bytes) => {
    if (position === 1n) throw new TapeError('PERMANENT', 'torn');
    if (position === 3n) await gate.opened;
    return bytes;
  };
  const id = await made(app, { quota: 'alice', pattern: '/rest/' });
  const begun = await waitForView(app, id, 'to have what it can', (v) => v.filesOnDisk + v.filesFailed === 2);
  expect(begun).toMatchObject({ state: 'RESTORING', lastFilesOnDisk: null, tapestoreRequestEnd: null });
  expect(await release(app, { id, paths: ['/rest/slow'] })).toMatchObject({ state: 'PARTIAL', filesTotal: 2 });
  const partial = await viewRequest(app, id);
  expect(partial.lastFilesOnDisk).not.toBeNull();
  expect(partial.tapestoreRequestEnd).not.toBeNull();
  gate.open();
  expect(await release(app, { id, paths: ['/rest/bad'] })).toMatchObject({ state: 'COMPLETED', filesTotal: 1 });
  const { holds } = await viewRequest(app, id);
  expect(holds.find((hold) => hold.path === '/rest/bad')).toMatchObject({
    state: 'RELEASED',
    errorClass: null,
    error: null,
  });
  expect(await release(app, { id, match: '/rest/' })).toMatchObject({ state: 'COMPLETED', filesTotal: 0 });
  expect((await viewRequest(app, id)).lastFilesOnDisk).toBe(partial.lastFilesOnDisk);
  await end(id);
});

test('what the request never took is refused by its name, and nothing is changed', async () => {
  await addFiles(
    app.ctx,
    ['/own/a', '/alien/b', '/alien/c'].map((path) => ({ path, stage: 'ONDISK' as const })),
  );
  const id = await made(app, { quota: 'alice', files: ['/own/a', '/own/unknown'] });
  const refused = (field: string, message: string) => ({ __typename: 'InvalidInput', field, message });
  const cases: [object, object][] = [
    [{ paths: ['/own/a', '/alien/b'] }, refused('paths', `paths has what request ${id} does not hold: "/alien/b"`)],
    [
      { paths: ['/nowhere', '/own/a', '/alien/c', '/alien/b'] },
      refused('paths', `paths has what request ${id} does not hold: "/alien/b" and 2 more`),
    ],
    [{ match: '/alien/' }, refused('match', `match is in no path of request ${id}: "/alien/"`)],
    [{ paths: ['own/a'] }, refused('paths', 'paths has a path that does not begin with "/": "own/a"')],
    [{ match: 'a\0' }, refused('match', 'match must not hold the character NUL: "a\\u0000"')],
    [{ match: 'a', paths: ['/own/a'] }, refused('match', 'match and paths exclude each other: give one of them')],
    [{}, refused('match', 'match or paths must be given, and neither is')],
    [{ match: '', paths: [] }, refused('match', 'match or paths must be given, and neither is')],
    [
      { id: 999_999, match: 'a' },
      { __typename: 'NotFound', message: 'there is no request with id 999999' },
    ],
  ];
  const before = await dump();
  for (const [input, expected] of cases) expect(await release(app, { id, ...input })).toEqual(expected);
  expect(await dump()).toEqual(before);
  await end(id);
});

test('releasing files of a request that has ended is refused, and changes nothing', async () => {
  await addFiles(app.ctx, [{ path: '/ended/a', stage: 'ONDISK' }]);
  const id = await made(app, { quota: 'alice', pattern: '/ended/' });
  await cancel(app, id);
  expect(await release(app, { id, paths: ['/ended/a'] })).toEqual({
    __typename: 'InvalidInput',
    field: 'id',
    message: `id ${id} is a request that has ended: its files are let go already`,
  });
  await update(app, { id, retention: later });
  expect(await states(id)).toEqual(['/ended/a ON_DISK']);
  expect(await readUsed(app, 'alice')).toBe(1000);
  await end(id);
});

test('a released file never joins its request again: not by a pattern, not imported anew, not when it is revived', async () => {
  await addQuota(app.ctx, 'carol', 2500n);
  await addTaped(app.ctx, backend, [
    { path: '/never/a', volume: 'N1' },
    { path: '/never/b', volume: 'N2' },
  ]);
  const id = await made(app, { quota: 'carol', pattern: '/never/' });
  await waitForState(app, id, 'COMPLETED');
  await addTaped(app.ctx, backend, [{ path: '/never/c', volume: 'N3' }]);
  expect((await viewRequest(app, id)).awaited).toEqual([{ path: '/never/c', reason: 'QUOTA_FULL' }]);

  expect(await release(app, { id, paths: ['/never/c'] })).toMatchObject({ filesRefused: 0, filesReleased: 1 });
  await release(app, { id, paths: ['/never/a'] });
  expect(await readUsed(app, 'carol')).toBe(1000);
  await joinAwaited(app.ctx);
  await addFiles(
    app.ctx,
    ['/never/a', '/never/c'].map((path) => ({ path, stage: 'ONTAPE' as const, size: 1000n })),
  );
  await put(app, id, { quota: 'carol', retention: '2020-01-01' });
  expect(await readUsed(app, 'carol')).toBe(0);
  await put(app, id, { quota: 'carol', retention: later });
  const view = await waitForState(app, id, 'COMPLETED');
  expect(view).toMatchObject({ filesTotal: 1, bytesTotal: '1000', awaited: [] });
  expect(await states(id)).toEqual(['/never/a RELEASED', '/never/b ON_DISK', '/never/c RELEASED']);
  expect(await readUsed(app, 'carol')).toBe(1000);
  expect((await readRequest(app, id)).files).toEqual(['/never/b']);
  await end(id);
});

test('a path that the catalogue does not know can be released, and does not join when it appears', async () => {
  await addFiles(app.ctx, [{ path: '/unknown/a', stage: 'ONDISK' }]);
  const id = await made(app, { quota: 'alice', files: ['/unknown/b', '/unknown/a', '/unknown/c'] });
  await release(app, { id, paths: ['/unknown/b'] });
  await addFiles(app.ctx, [
    { path: '/unknown/b', stage: 'ONDISK' },
    { path: '/unknown/c', stage: 'ONDISK' },
  ]);
  expect(await states(id)).toEqual(['/unknown/a ON_DISK', '/unknown/c ON_DISK']);
  expect(await readUsed(app, 'alice')).toBe(2000);
  expect((await readRequest(app, id)).files).toEqual(['/unknown/a', '/unknown/c']);
  await end(id);
});

test('whoever watches the request is told, and a stage change of a released file is no longer its own', async () => {
  await addTaped(app.ctx, backend, [{ path: '/told/a' }, { path: '/told/b' }]);
  const id = await made(app, { quota: 'alice', pattern: '/told/' });
  await waitForState(app, id, 'COMPLETED');
  await release(app, { id, match: 'told/a' });
  await waitFor('the copy to be gone', async () => (await readMoves(app, '/told/a')).at(-1)?.move === 'RT');
  const { rows } = await app.ctx.db.pool.query(
    `SELECT state, files_total, files_on_disk, bytes_total::int, bytes_on_disk::int FROM event
     WHERE request_id = $1 ORDER BY id DESC LIMIT 1`,
    [id],
  );
  expect(rows).toEqual([
    { state: 'COMPLETED', files_total: 1, files_on_disk: 1, bytes_total: 1000, bytes_on_disk: 1000 },
  ]);
  const left = await app.ctx.db.pool.query(
    `SELECT request_ids FROM event e JOIN tape_file f ON f.id = e.file_id WHERE f.path = '/told/a' ORDER BY e.id DESC LIMIT 1`,
  );
  expect(left.rows).toEqual([{ request_ids: [] }]);

  const query = 'subscription ($id: Int!) { stageChanges(requestId: $id) { path from to } }';
  const [, open] = transports[0] as (typeof transports)[number];
  const stream = open<{ stageChanges: object }>(app, { query, variables: { id } });
  // in the order in which the catalogue got them: a would be the first
  expect(await take(stream, 1)).toEqual([{ stageChanges: { path: '/told/b', from: null, to: 'RESTORED' } }]);
  stream.close();
  await end(id);
});
