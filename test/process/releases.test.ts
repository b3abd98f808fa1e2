/** Files that are released, or whose request ends, while an engine works. removals.test.ts tests races. */
import { execFileSync } from 'node:child_process';
import { readFileSync, rmSync, statSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { addSeconds } from '../../src/core/time.js';
import { joinUnresolved } from '../../src/domain/requests/joins.js';
import { listTree, readDisks, readMoves, readRestored, readStage, ring } from '../support/engine-watch.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { holdReads } from '../support/held-reads.js';
import { useMemorySite } from '../support/memory-site.js';
import { cancel, made, release, update } from '../support/mutations.js';
import { viewRequest, waitForState, waitForView } from '../support/request-view.js';
import { get, makeRequest, put, read, readRequest, readUsed } from '../support/rest.js';
import { take, transports } from '../support/streams.js';
import { dumpTables } from '../support/tables.js';
import { createGate, waitFor } from '../support/wait.js';

const { app, library, clock, tape, place, query } = useMemorySite({ drives: 1, users: ['alice', 'bob'] });

const states = async (id: number) => (await viewRequest(app, id)).files.map(({ path, state }) => `${path} ${state}`);

const countRecalls = async () => (await query('SELECT FROM recall')).length;

/**
 * Returns the rows that a release can change. Drives and drive time are omitted, because the engine writes them at any
 * time.
 */
async function dump() {
  const { request, request_file, unresolved_path, event, tape_file, recall, notification } = await dumpTables(app.ctx);
  const used = [await readUsed(app, 'alice'), await readUsed(app, 'bob')];
  return { request, request_file, unresolved_path, event, tape_file, recall, notification, used };
}

const waitUntilUsed = (bytes: bigint) =>
  waitFor(`${bytes} bytes on the disk`, async () => (await readDisks(app)).used === bytes);

/** Cancels requests and waits until all their copies are removed. */
async function end(...ids: number[]): Promise<void> {
  for (const id of ids) await cancel(app, id);
  await waitUntilUsed(0n);
}

const waitUntilCleared = () =>
  waitFor(
    'the request to be cleared',
    async () => (await query('SELECT FROM request WHERE NOT is_released')).length === 0,
  );

test('a released file leaves the disk and gives its charge back once, and the others stay', async () => {
  const sizes = { a: 100, b: 20, c: 3 };
  const files = Object.entries(sizes).map(([name, size], n) => ({
    path: `/leave/${name}`,
    position: BigInt(n + 1),
    size,
  }));
  await addTaped(
    app.ctx,
    library,
    files.map((file) => ({ ...file, volume: 'LEAVE' })),
  );
  const id = await made(app, { quota: 'alice', pattern: '/leave/' });
  const whole = await waitForState(app, id, 'COMPLETED');
  expect(await readUsed(app, 'alice')).toBe(123);

  expect(await release(app, { requestId: id, paths: ['/leave/b'] })).toMatchObject({
    ...{ state: 'COMPLETED', filesTotal: 2, filesOnDisk: 2, filesReleased: 1, bytesTotal: '103' },
  });
  expect(await readUsed(app, 'alice')).toBe(103);
  await waitUntilUsed(103n);
  expect([readRestored(app, '/leave/b'), await readStage(app, '/leave/b')]).toEqual([undefined, 'T']);

  await release(app, { requestId: id, paths: ['/leave/a', '/leave/b'] });
  await waitUntilUsed(3n);
  await waitUntilCleared();
  const before = await dump();
  for (const choice of [{ paths: ['/leave/a', '/leave/a'] }, { match: 'leave/a' }]) {
    expect(await release(app, { requestId: id, ...choice })).toMatchObject({ filesReleased: 2, filesTotal: 1 });
  }
  expect(await dump()).toEqual(before);

  expect([readRestored(app, '/leave/a'), await readStage(app, '/leave/c')]).toEqual([undefined, 'R']);
  expect(await viewRequest(app, id)).toMatchObject({
    ...{ state: 'COMPLETED', filesTotal: 1, filesOnDisk: 1, bytesTotal: '3', bytesOnDisk: '3' },
    finishedAt: whole.finishedAt,
  });
  expect(await states(id)).toEqual(['/leave/a RELEASED', '/leave/b RELEASED', '/leave/c ON_DISK']);
  await end(id);
  expect(await readUsed(app, 'alice')).toBe(0);
});

/** How a file leaves its request, and the state of the request afterwards. */
const ways: [way: string, leave: (id: number, path: string) => Promise<unknown>, state: string][] = [
  ['is released', (id, path) => release(app, { requestId: id, paths: [path] }), 'COMPLETED'],
  ['leaves with a cancelled request', (id) => cancel(app, id), 'CANCELLED'],
];

test.each(ways)('a waiting file that %s is never read, and its charge is given back', async (way, leave, state) => {
  const [busy, never] = [`/queue/${way}/busy`, `/queue/${way}/never`];
  await tape(busy);
  await addTaped(app.ctx, library, [{ path: never, volume: 'NEVER' }]);
  const reads = holdReads(library);
  const first = await made(app, { quota: 'bob', files: [busy] });
  await reads.begun();
  const id = await made(app, { quota: 'alice', files: [never] });
  expect(await readUsed(app, 'alice')).toBe(1000);
  for (let times = 0; times < 2; times++) {
    await leave(id, never); // the second call changes nothing
    expect(await viewRequest(app, id)).toMatchObject({ state, recallsStartedAt: null, finishedAt: null });
    expect(await readUsed(app, 'alice')).toBe(0);
  }
  expect(await countRecalls()).toBe(1);
  reads.open();
  await waitForState(app, first, 'COMPLETED');
  await waitFor('the unmount', async () => library.log.some((entry) => entry.what === 'unmount'));
  expect(library.log.map((entry) => entry.volume)).not.toContain('NEVER');
  expect(await readMoves(app, never)).toEqual([]);
  await end(id, first);
});

test.each(ways)('a running recall stops if its file %s and no request is left for it', async (way, leave, state) => {
  const file = `/stop/${way}/a`;
  await tape(file);
  const reads = holdReads(library); // never opened, so that only a stop ends the read
  const id = await made(app, { quota: 'alice', files: [file] });
  await reads.begun();
  await leave(id, file);
  expect(await viewRequest(app, id)).toMatchObject({ state, filesOnDisk: 0, firstFileOnDiskAt: null });
  expect(await readUsed(app, 'alice')).toBe(0);
  await waitFor('the end of the recall', async () => (await countRecalls()) === 0);
  expect((await readMoves(app, file)).map(({ move }) => move)).toEqual(['TA', 'AT']);
  expect(listTree(app.restoreDir).filter((name) => /\/a$|\.part$/.test(name))).toEqual([]);
  expect(await readDisks(app)).toEqual({ used: 0n, reserved: 0n });
  await end(id);
});

test.each(ways)(
  'a running recall continues if its file %s and another request waits for it',
  async (way, leave, state) => {
    const file = `/shared/${way}/a`;
    await tape(file);
    const reads = holdReads(library);
    const first = await made(app, { quota: 'alice', files: [file] });
    await reads.begun();
    const second = await made(app, { quota: 'bob', files: [file] });
    await leave(first, file);
    reads.open();
    await waitForState(app, second, 'COMPLETED');
    expect([readRestored(app, file)?.length, await readStage(app, file)]).toEqual([1000, 'R']);
    expect(await viewRequest(app, first)).toMatchObject({ state, firstFileOnDiskAt: null });
    expect(library.log.filter((entry) => entry.what === 'read')).toHaveLength(1);
    expect([await readUsed(app, 'alice'), await readUsed(app, 'bob')]).toEqual([0, 1000]);
    await end(first, second);
  },
);

test('files that were started ahead of their reading are not read after their request was cancelled', async () => {
  const files = Array.from({ length: 300 }, (_, n) => ({ path: `/ahead/${n}`, volume: 'AHEAD', size: 10 }));
  await addTaped(app.ctx, library, files);
  const reads = holdReads(library);
  const id = await made(app, { quota: 'alice', pattern: '/ahead/' });
  await reads.begun();
  await waitFor('a second batch to start', async () => (await readMoves(app, '/ahead/')).length > 128);
  await cancel(app, id);
  await waitFor('all recalls to end', async () => (await countRecalls()) === 0);
  expect(library.log.filter((entry) => entry.what === 'read').length).toBe(1);
  const moves = (await readMoves(app, '/ahead/')).map(({ move }) => move);
  expect(moves.sort()).toEqual([...Array(256).fill('AT'), ...Array(256).fill('TA')]);
  expect(await readDisks(app)).toEqual({ used: 0n, reserved: 0n });
});

test('a recall that fails after its request was cancelled is not retried', async () => {
  const gate = createGate();
  library.onRead = async () => {
    await gate.opened;
    throw new TapeError('TRANSIENT', 'try again');
  };
  await tape('/fails/a');
  const id = await made(app, { quota: 'alice', files: ['/fails/a'] });
  await waitFor('a read', async () => library.log.some((entry) => entry.what === 'read'));
  await cancel(app, id);
  gate.open();
  await waitFor('the end of the recall', async () => (await countRecalls()) === 0);
  expect(await readStage(app, '/fails/a')).toBe('T');
  expect((await readDisks(app)).reserved).toBe(0n);
});

test('the state of a request follows from the files that are left in it', async () => {
  await tape('/rest/bad', '/rest/good', '/rest/slow');
  const gate = createGate();
  library.onRead = async (_volume, position) => {
    if (position === 1n) throw new TapeError('PERMANENT', 'torn');
    if (position === 3n) await gate.opened;
  };
  const id = await made(app, { quota: 'alice', pattern: '/rest/' });
  const begun = await waitForView(app, id, 'to have what it can', (v) => v.filesOnDisk + v.filesFailed === 2);
  expect(begun).toMatchObject({ state: 'RESTORING', finishedAt: null, recallsEndedAt: null });
  expect(await release(app, { requestId: id, paths: ['/rest/slow'] })).toMatchObject({
    state: 'PARTIAL',
    filesTotal: 2,
  });
  const partial = await viewRequest(app, id);
  expect([partial.finishedAt, partial.recallsEndedAt]).not.toContain(null);
  expect(await release(app, { requestId: id, paths: ['/rest/bad'] })).toMatchObject({
    state: 'COMPLETED',
    filesTotal: 1,
  });
  const { files } = await viewRequest(app, id);
  expect(files[0]).toMatchObject({ path: '/rest/bad', state: 'RELEASED', errorClass: null, error: null });
  expect(await release(app, { requestId: id, match: '/rest/' })).toMatchObject({ state: 'COMPLETED', filesTotal: 0 });
  expect((await viewRequest(app, id)).finishedAt).toBe(partial.finishedAt);
  gate.open();
  await end(id);
});

test('a release of files that the request does not contain, or of an ended request, is rejected and changes nothing', async () => {
  await addFiles(
    app.ctx,
    ['/own/a', '/alien/b', '/alien/c'].map((path) => ({ path, stage: 'ONDISK' as const })),
  );
  const id = await made(app, { quota: 'alice', files: ['/own/a', '/own/unknown'] });
  const ended = await made(app, { quota: 'alice', pattern: '/own/' });
  await cancel(app, ended);
  await waitUntilCleared();
  const cases: [input: object, field: string, message: string][] = [
    [
      { paths: ['/own/a', '/alien/b'] },
      'paths',
      `paths must all be in request ${id}, which does not contain "/alien/b"`,
    ],
    [
      { paths: ['/nowhere', '/own/a', '/alien/c', '/alien/b'] },
      'paths',
      `paths must all be in request ${id}, which does not contain "/alien/b" and 2 more`,
    ],
    [{ match: '/alien/' }, 'match', `match does not match any path of request ${id}: "/alien/"`],
    [{ paths: ['own/a'] }, 'paths', 'paths has a path that does not begin with "/": "own/a"'],
    [{ match: 'a\0' }, 'match', 'match must not contain the character NUL: "a\\u0000"'],
    [{ match: 'a', paths: ['/own/a'] }, 'match', 'match and paths cannot be combined: give only one'],
    [{}, 'match', 'match or paths must be given'],
    [{ match: '', paths: [] }, 'match', 'match or paths must be given'],
    [
      { requestId: ended, paths: ['/own/a'] },
      'requestId',
      `requestId must identify a live request: request ${ended} has ended, and its files are already released`,
    ],
  ];
  const before = await dump();
  for (const [input, field, message] of cases) {
    expect(await release(app, { requestId: id, ...input })).toEqual({ __typename: 'InvalidInput', field, message });
  }
  const missing = { __typename: 'NotFound', message: 'there is no request 999999, or you are not allowed to see it' };
  expect(await release(app, { requestId: 999_999, match: 'a' })).toEqual(missing);
  expect(await dump()).toEqual(before);
  await update(app, { requestId: ended, retention: '2999-01-01T00:00:00' });
  expect(await states(ended)).toEqual(['/own/a ON_DISK']);
  await end(id, ended);
});

test('a released file does not join its request again: by its pattern, an import or a revival', async () => {
  await addQuota(app.ctx, 'carol', 2500n);
  await tape('/never/a', '/never/b');
  const id = await made(app, { quota: 'carol', pattern: '/never/' });
  await waitForState(app, id, 'COMPLETED');
  await tape('/never/c');
  expect((await viewRequest(app, id)).unresolved).toEqual([{ path: '/never/c', reason: 'QUOTA_FULL' }]);

  expect(await release(app, { requestId: id, paths: ['/never/c'] })).toMatchObject({
    filesRefused: 0,
    filesReleased: 1,
  });
  await release(app, { requestId: id, paths: ['/never/a'] });
  expect(await readUsed(app, 'carol')).toBe(1000);
  await joinUnresolved(app.ctx);
  await addFiles(
    app.ctx,
    ['/never/a', '/never/c'].map((path) => ({ path, stage: 'ONTAPE' as const, size: 1000n })),
  );
  await put(app, id, { quota: 'carol', retention: '2020-01-01' });
  expect(await readUsed(app, 'carol')).toBe(0);
  await put(app, id, { quota: 'carol', retention: '2999-01-01T00:00:00' });
  const view = await waitForState(app, id, 'COMPLETED');
  expect(view).toMatchObject({ filesTotal: 1, bytesTotal: '1000', unresolved: [] });
  expect(await states(id)).toEqual(['/never/a RELEASED', '/never/b ON_DISK', '/never/c RELEASED']);
  expect(await readUsed(app, 'carol')).toBe(1000);
  expect((await readRequest(app, id)).files).toEqual(['/never/b']);
  await end(id);
});

test('subscribers to a request get an event for a release, and none for later stage changes of the released file', async () => {
  await tape('/told/a', '/told/b');
  const id = await made(app, { quota: 'alice', pattern: '/told/' });
  await waitForState(app, id, 'COMPLETED');
  await release(app, { requestId: id, match: 'told/a' });
  await waitFor('the copy to be gone', async () => (await readMoves(app, '/told/a')).at(-1)?.move === 'RT');
  const told = await query(
    `SELECT state, files_total, files_on_disk, bytes_total::int, bytes_on_disk::int FROM event
     WHERE request_id = $1 ORDER BY id DESC LIMIT 1`,
    [id],
  );
  expect(told).toEqual([
    { state: 'COMPLETED', files_total: 1, files_on_disk: 1, bytes_total: 1000, bytes_on_disk: 1000 },
  ]);
  const left = await query(
    `SELECT request_ids FROM event e JOIN tape_file f ON f.id = e.file_id WHERE f.path = '/told/a' ORDER BY e.id DESC LIMIT 1`,
  );
  expect(left).toEqual([{ request_ids: [] }]);

  const subscription = 'subscription ($id: Int!) { stageChanges(requestId: $id) { path from to } }';
  const [, open] = transports[0] as (typeof transports)[number];
  const stream = open<{ stageChanges: object }>(app, { query: subscription, variables: { id } });
  // the stream reports files in the order of the catalogue, so /told/a would come first
  expect(await take(stream, 1)).toEqual([{ stageChanges: { path: '/told/b', from: null, to: 'RESTORED' } }]);
  stream.close();
  await end(id);
});

/** Requests files and waits for their copies. The request ends `seconds` seconds from now. */
async function restoreFor(quota: string, patterns: string, seconds: number): Promise<number> {
  const id = await makeRequest(app, { quota, patterns, retention: addSeconds(clock.now(), seconds) });
  await waitForState(app, id, 'COMPLETED');
  return id;
}

async function moveOn(seconds: number): Promise<void> {
  clock.advance(seconds);
  await ring(app, 'event');
}

test('an expired request frees its quota, and its copies and their directories are removed', async () => {
  await tape('/past/a/b/one', '/past/a/b/two', '/past/kept');
  const id = await restoreFor('alice', '/past/a/', 100);
  const kept = await restoreFor('bob', '/past/kept', 1000);
  writeFileSync(place('/past/a/own'), 'not of Tapegate');
  expect(await readDisks(app)).toEqual({ used: 3000n, reserved: 0n });
  await moveOn(101);
  await waitUntilUsed(1000n);
  expect(listTree(app.restoreDir)).toEqual(['past', 'past/a', 'past/a/own', 'past/kept']);
  expect((await readMoves(app, '/past/a/b/one')).map(({ move }) => move)).toEqual(['TA', 'AR', 'RT']);
  expect(await viewRequest(app, id)).toMatchObject({ state: 'EXPIRED', filesTotal: 2 });
  expect(await readUsed(app, 'alice')).toBe(0);
  const { requests } = await read<{ requests: { id: number }[] }>(app, '/requests');
  expect(requests.map((request) => request.id)).toEqual([kept]);
  expect((await get(app, `/requests/${id}`)).status).toBe(200);

  rmSync(place('/past/a'), { recursive: true });
  await moveOn(1000);
  await waitUntilUsed(0n);
  expect(listTree(app.restoreDir)).toEqual([]);
});

test('a file of two requests stays until the last of them expires', async () => {
  await tape('/two/a');
  await restoreFor('alice', '/two/', 100);
  const last = await restoreFor('bob', '/two/', 200);
  await tape('/two-only-first');
  await restoreFor('alice', '/two-only-first', 100); // the removal of this copy shows that the first expiry has ended
  await moveOn(101);
  await waitUntilUsed(1000n);
  expect([readRestored(app, '/two/a')?.length, await readStage(app, '/two/a')]).toEqual([1000, 'R']);
  expect(await viewRequest(app, last)).toMatchObject({ state: 'COMPLETED', filesOnDisk: 1 });
  await moveOn(100);
  await waitUntilUsed(0n);
  expect([readRestored(app, '/two/a'), await readStage(app, '/two/a')]).toEqual([undefined, 'T']);
});

test('copies that a user changed stay unchanged, and their files become UNVERIFIED', async () => {
  const names = ['longer', 'rewritten', 'touched', 'link', 'removed', 'untouched'];
  await tape(...names.map((name) => `/hand/${name}`));
  await restoreFor('alice', '/hand/', 100);
  execFileSync('touch', ['-r', place('/hand/longer'), place('/reference')]);
  writeFileSync(place('/hand/longer'), 'appended', { flag: 'a' });
  execFileSync('touch', ['-r', place('/reference'), place('/hand/longer')]); // only its size differs
  writeFileSync(place('/hand/rewritten'), Buffer.alloc(1000, 'x'));
  utimesSync(place('/hand/touched'), 1, 1);
  writeFileSync(place('/elsewhere'), readFileSync(place('/hand/link')));
  rmSync(place('/hand/link'));
  symlinkSync(place('/elsewhere'), place('/hand/link'));
  rmSync(place('/hand/removed'));
  const statAll = () => names.slice(0, 4).map((name) => statSync(place(`/hand/${name}`)));
  const before = statAll();
  await moveOn(101);
  await waitUntilUsed(0n);
  expect(await Promise.all(names.map((name) => readStage(app, `/hand/${name}`)))).toEqual([...'UUUUTT']);
  expect(listTree(place('/hand'))).toEqual(['link', 'longer', 'rewritten', 'touched']);
  expect(statAll()).toEqual(before);
  expect(readFileSync(place('/elsewhere'))).toHaveLength(1000);
});

test('a past retention ends a request at once, and a later one revives and restores it', async () => {
  const contents = await tape('/revive/1', '/revive/2');
  const id = await restoreFor('alice', '/revive/', 1000);
  const first = await viewRequest(app, id);
  expect((await put(app, id, { quota: 'alice', retention: '2020-01-01' })).status).toBe(200);
  expect((await viewRequest(app, id)).state).toBe('EXPIRED');
  await waitUntilUsed(0n);
  const later = addSeconds(clock.now(), 500);
  expect((await put(app, id, { quota: 'alice', retention: later })).status).toBe(200);
  const revived = await waitForState(app, id, 'COMPLETED');
  expect(revived).toMatchObject({ filesTotal: 2, filesOnDisk: 2, bytesOnDisk: '2000' });
  expect(revived.firstFileOnDiskAt).not.toBe(first.firstFileOnDiskAt);
  for (const [file, bytes] of contents) expect(readRestored(app, file)).toEqual(bytes);
  await moveOn(501);
  await waitUntilUsed(0n);
  expect((await viewRequest(app, id)).state).toBe('EXPIRED');
});
