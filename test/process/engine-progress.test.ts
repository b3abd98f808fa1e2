import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { TapeError } from '../../src/errors.js';
import { returnOrphans } from '../../src/operations/disks/removals.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { createClock, isWithin } from '../support/clock.js';
import { findIllegalMoves, readMoves, readRestored } from '../support/engine-watch.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { holdReads } from '../support/held-reads.js';
import { viewRequest, waitForState, waitForView } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();
const hooks = { onMount: backend.onMount, onRead: backend.onRead };
const clock = createClock();

beforeAll(async () => {
  app = await startApp({ backend, config: { drives: 1 }, now: clock.now });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(() => {
  Object.assign(backend, hooks);
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
});

/** A stretch of time that lies apart from the one before and the one after it. */
async function during<T>(work: () => Promise<T>): Promise<[readonly [string, string], T]> {
  clock.advance(1000);
  const from = clock.now();
  const result = await work();
  const span = [from, clock.now()] as const;
  clock.advance(1000);
  return [span, result];
}

test('a request has each of its times from the moment on at which it is true', async () => {
  const gates = new Map(['BUSY', 'FIRST', 'LAST'].map((volume) => [volume, createGate()]));
  backend.onMount = async (volume) => gates.get(volume)?.opened;
  await addTaped(app.ctx, backend, [
    { path: '/times/busy', volume: 'BUSY' },
    { path: '/times/a', volume: 'FIRST', size: 70_000 },
    { path: '/times/b', volume: 'LAST', size: 300 },
  ]);
  await makeRequest(app, { quota: 'alice', files: ['/times/busy'] });
  await waitFor('the only drive to be busy', async () => backend.log.length > 0);
  const id = await makeRequest(app, { quota: 'alice', files: ['/times/b', '/times/a'] });
  const figures = { filesTotal: 2, filesFailed: 0, filesUnknown: 0, filesRefused: 0, bytesTotal: '70300', awaited: [] };
  const none = { errorClass: null, error: null };
  expect(await viewRequest(app, id)).toEqual({
    ...figures,
    state: 'QUEUED',
    filesOnDisk: 0,
    bytesOnDisk: '0',
    tapestoreRequestStart: null,
    tapestoreRequestEnd: null,
    firstFilesOnDisk: null,
    lastFilesOnDisk: null,
    holds: [
      { path: '/times/b', stage: 'ONTAPE', state: 'WAITING', ...none },
      { path: '/times/a', stage: 'ONTAPE', state: 'WAITING', ...none },
    ],
  });

  const [starting, started] = await during(async () => {
    gates.get('BUSY')?.open();
    return await waitForState(app, id, 'RESTORING');
  });
  expect(started).toMatchObject({ filesOnDisk: 0, firstFilesOnDisk: null, lastFilesOnDisk: null });
  expect(isWithin(started.tapestoreRequestStart, starting)).toBe(true);
  expect(readRestored(app, '/times/a')).toBeUndefined();

  const [arriving, first] = await during(async () => {
    gates.get('FIRST')?.open();
    return await waitForView(app, id, 'to have a file', (view) => view.filesOnDisk > 0);
  });
  expect(first).toEqual({
    ...figures,
    state: 'RESTORING',
    filesOnDisk: 1,
    bytesOnDisk: '70000',
    tapestoreRequestStart: started.tapestoreRequestStart,
    tapestoreRequestEnd: null,
    firstFilesOnDisk: first.firstFilesOnDisk,
    lastFilesOnDisk: null,
    holds: [
      { path: '/times/b', stage: expect.stringMatching('ONTAPE|RESTORING'), state: 'WAITING', ...none },
      { path: '/times/a', stage: 'RESTORED', state: 'ON_DISK', ...none },
    ],
  });
  expect(isWithin(first.firstFilesOnDisk, arriving)).toBe(true);
  expect(readRestored(app, '/times/a')).toHaveLength(70_000);

  const [ending, last] = await during(async () => {
    gates.get('LAST')?.open();
    return await waitForState(app, id, 'COMPLETED');
  });
  expect(last).toMatchObject({ ...figures, filesOnDisk: 2, bytesOnDisk: '70300' });
  expect(last.tapestoreRequestStart).toBe(started.tapestoreRequestStart);
  expect(last.firstFilesOnDisk).toBe(first.firstFilesOnDisk);
  expect(isWithin(last.lastFilesOnDisk, ending)).toBe(true);
  expect(isWithin(last.tapestoreRequestEnd, ending)).toBe(true);

  const { rows } = await app.ctx.db.pool.query(
    `SELECT state, files_total AS total, files_on_disk AS "onDisk", bytes_on_disk::int AS bytes
     FROM event WHERE request_id = $1 ORDER BY id`,
    [id],
  );
  expect(rows).toEqual([
    { state: 'QUEUED', total: 2, onDisk: 0, bytes: 0 },
    { state: 'RESTORING', total: 2, onDisk: 0, bytes: 0 },
    { state: 'RESTORING', total: 2, onDisk: 1, bytes: 70_000 },
    { state: 'COMPLETED', total: 2, onDisk: 2, bytes: 70_300 },
  ]);
});

test('a request whose recalls run already for another one has started', async () => {
  const gate = holdReads(backend);
  await addTaped(app.ctx, backend, [{ path: '/shared/a', volume: 'SHARED' }]);
  const first = await makeRequest(app, { quota: 'alice', files: ['/shared/a'] });
  await waitForState(app, first, 'RESTORING');
  const [making, second] = await during(() => makeRequest(app, { quota: 'alice', files: ['/shared/a'] }));
  const view = await viewRequest(app, second);
  expect(view).toMatchObject({ state: 'RESTORING', tapestoreRequestEnd: null, firstFilesOnDisk: null });
  expect(isWithin(view.tapestoreRequestStart, making)).toBe(true);
  gate.open();
  await waitForState(app, first, 'COMPLETED');
  await waitForState(app, second, 'COMPLETED');
});

test('a request with a file that failed for good ends as PARTIAL, and the file stays on tape', async () => {
  await addTaped(app.ctx, backend, [
    { path: '/partial/good', volume: 'PARTIAL', position: 1n },
    { path: '/partial/bad', volume: 'PARTIAL', position: 2n },
  ]);
  backend.onRead = async (_volume, position, bytes) => {
    if (position === 2n) throw new TapeError('PERMANENT', 'the tape is torn there');
    return bytes;
  };
  const id = await makeRequest(app, { quota: 'alice', patterns: '/partial/' });
  const view = await waitForState(app, id, 'PARTIAL');
  expect(view).toMatchObject({ filesTotal: 2, filesOnDisk: 1, filesFailed: 1, bytesOnDisk: '1000' });
  expect(view.holds).toEqual([
    {
      path: '/partial/bad',
      stage: 'ONTAPE',
      state: 'FAILED',
      errorClass: 'PERMANENT',
      error: 'the tape is torn there',
    },
    { path: '/partial/good', stage: 'RESTORED', state: 'ON_DISK', errorClass: null, error: null },
  ]);
  expect(view.tapestoreRequestEnd).not.toBeNull();
  expect(await readMoves(app, '/partial/bad')).toEqual(['TA', 'AT'].map((move) => ({ path: '/partial/bad', move })));
});

test('a request whose every file failed has an end and no file on disk', async () => {
  await addTaped(app.ctx, backend, [{ path: '/none/a', volume: 'NONE' }]);
  backend.onRead = () => Promise.reject(new TapeError('POLICY', 'not this one'));
  const id = await makeRequest(app, { quota: 'alice', patterns: '/none/' });
  const view = await waitForState(app, id, 'PARTIAL');
  expect(view).toMatchObject({ filesOnDisk: 0, filesFailed: 1, firstFilesOnDisk: null, lastFilesOnDisk: null });
  expect(view.tapestoreRequestStart).not.toBeNull();
  expect(view.tapestoreRequestEnd).not.toBeNull();
});

test('a file that failed for one request is there for it after all when another one brings it', async () => {
  await addTaped(app.ctx, backend, [{ path: '/after-all/a', volume: 'AFTER' }]);
  backend.onRead = () => Promise.reject(new TapeError('PERMANENT', 'not today'));
  const first = await makeRequest(app, { quota: 'alice', files: ['/after-all/a'] });
  await waitForState(app, first, 'PARTIAL');
  Object.assign(backend, hooks);
  const second = await makeRequest(app, { quota: 'alice', files: ['/after-all/a'] });
  await waitForState(app, second, 'COMPLETED');
  expect(await viewRequest(app, first)).toMatchObject({
    state: 'COMPLETED',
    filesOnDisk: 1,
    filesFailed: 0,
    bytesOnDisk: '1000',
    holds: [{ state: 'ON_DISK', errorClass: null, error: null }],
  });
});

test('files that are on disk already satisfy a request at once, without a recall', async () => {
  await addFiles(app.ctx, [
    { path: '/there/u', stage: 'UNVERIFIED', volume: 'THERE' },
    { path: '/there/d', stage: 'ONDISK', volume: 'THERE' },
  ]);
  const [making, id] = await during(() => makeRequest(app, { quota: 'alice', patterns: '/there/' }));
  const view = await viewRequest(app, id);
  expect(view).toMatchObject({
    state: 'COMPLETED',
    filesOnDisk: 2,
    bytesOnDisk: '2000',
    tapestoreRequestStart: null,
    tapestoreRequestEnd: null,
    holds: [
      { path: '/there/d', stage: 'ONDISK', state: 'ON_DISK' },
      { path: '/there/u', stage: 'UNVERIFIED', state: 'ON_DISK' },
    ],
  });
  expect(isWithin(view.firstFilesOnDisk, making)).toBe(true);
  expect(view.lastFilesOnDisk).toBe(view.firstFilesOnDisk);
  expect(await readMoves(app, '/there/')).toEqual([]);
});

test('a file that an import says is on its way, though no recall runs, is brought to whoever waits for it', async () => {
  await addTaped(app.ctx, backend, [{ path: '/orphan/a', volume: 'ORPHAN', stage: 'RESTORING' }]);
  const id = await makeRequest(app, { quota: 'alice', files: ['/orphan/a'] });
  await returnOrphans(app.ctx);
  await waitForState(app, id, 'COMPLETED');
  expect(await readMoves(app, '/orphan/a')).toEqual(['AT', 'TA', 'AR'].map((move) => ({ path: '/orphan/a', move })));
  expect(readRestored(app, '/orphan/a')).toHaveLength(1000);
});
