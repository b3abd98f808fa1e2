import { afterAll, beforeAll, expect, test } from 'vitest';
import { joinAwaited } from '../../src/operations/requests/awaited.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { findIllegalMoves, readRestored, readStage } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { cancel } from '../support/mutations.js';
import { viewRequest, waitForState, waitForView } from '../support/request-view.js';
import { makeRequest, readRequest, readUsed } from '../support/rest.js';

let app: TestApp;
const backend = createMemoryBackend();

beforeAll(async () => {
  app = await startApp({ backend });
});
afterAll(async () => {
  expect(await findIllegalMoves(app)).toEqual([]);
  await app.close();
});

const all = (files: number) => (view: { filesOnDisk: number }) => view.filesOnDisk === files;

test('a listed path that the catalogue does not know joins when it appears, is charged then and restored', async () => {
  await addQuota(app.ctx, 'lister', 10_000n);
  await addTaped(app.ctx, backend, [{ path: '/list/known', volume: 'LIST', position: 1n, size: 300 }]);
  const paths = ['/list/later', '/list/known', '/list/never'];
  const id = await makeRequest(app, { quota: 'lister', files: paths });
  const before = await waitForState(app, id, 'COMPLETED');
  expect(before).toMatchObject({ filesTotal: 1, filesOnDisk: 1, filesUnknown: 2, filesRefused: 0 });
  expect(before.awaited).toEqual([
    { path: '/list/later', reason: 'UNKNOWN' },
    { path: '/list/never', reason: 'UNKNOWN' },
  ]);
  expect(await readUsed(app, 'lister')).toBe(300);

  const later = await addTaped(app.ctx, backend, [{ path: '/list/later', volume: 'LIST', position: 2n, size: 500 }]);
  const after = await waitForView(app, id, 'to have both files', all(2));
  expect(after).toMatchObject({
    state: 'COMPLETED',
    filesTotal: 2,
    filesUnknown: 1,
    bytesTotal: '800',
    bytesOnDisk: '800',
  });
  expect(after.awaited).toEqual([{ path: '/list/never', reason: 'UNKNOWN' }]);
  expect(after.firstFilesOnDisk).toBe(before.firstFilesOnDisk);
  expect(after.lastFilesOnDisk).not.toBe(before.lastFilesOnDisk);
  expect(await readUsed(app, 'lister')).toBe(800);
  expect(readRestored(app, '/list/later')).toEqual(later.get('/list/later'));
  expect((await readRequest(app, id)).files).toEqual(paths);
});

test('a file that appears later joins every live request whose pattern it matches, and no other', async () => {
  for (const user of ['ann', 'ben', 'cas', 'dan']) await addQuota(app.ctx, user, 10_000n);
  const [ann, ben, cas, dan] = [
    await makeRequest(app, { quota: 'ann', patterns: '/glob/' }),
    await makeRequest(app, { quota: 'ben', patterns: 'lob/a_b%c' }),
    await makeRequest(app, { quota: 'cas', patterns: 'GLOB' }),
    await makeRequest(app, { quota: 'dan', patterns: '/glob/' }),
  ];
  await cancel(app, dan);
  await addTaped(app.ctx, backend, [
    { path: '/glob/a_b%c*', volume: 'GLOB', position: 1n, size: 100 },
    { path: '/glob/axbyc', volume: 'GLOB', position: 2n, size: 10 },
  ]);
  await waitForView(app, ann, 'to have both', all(2));
  await waitForView(app, ben, 'to have one', all(1));
  expect((await viewRequest(app, ben)).filesTotal).toBe(1);
  expect((await viewRequest(app, cas)).filesTotal).toBe(0);
  expect((await viewRequest(app, dan)).filesTotal).toBe(0);
  expect(await Promise.all(['ann', 'ben', 'cas', 'dan'].map((user) => readUsed(app, user)))).toEqual([110, 100, 0, 0]);
  expect(backend.log.filter((entry) => entry.volume === 'GLOB' && entry.what === 'read')).toHaveLength(2);
});

test('a file that finds no room in the quota stays out, visibly, and joins when there is room', async () => {
  await addQuota(app.ctx, 'full', 1500n);
  await addTaped(app.ctx, backend, [{ path: '/full/0', volume: 'FULL', position: 1n, size: 1000 }]);
  const id = await makeRequest(app, { quota: 'full', patterns: '/full/' });
  const listed = await makeRequest(app, { quota: 'full', files: ['/full/2'] });
  await addTaped(app.ctx, backend, [
    { path: '/full/1', volume: 'FULL', position: 2n, size: 400 },
    { path: '/full/2', volume: 'FULL', position: 3n, size: 101 },
    { path: '/full/3', volume: 'FULL', position: 4n, size: 1 },
  ]);
  const view = await waitForView(app, id, 'to have what fits', all(2));
  expect(view).toMatchObject({
    state: 'COMPLETED',
    filesTotal: 2,
    filesUnknown: 0,
    filesRefused: 2,
    bytesTotal: '1400',
  });
  // in order: after the first that does not fit, nothing joins
  expect(view.awaited).toEqual([
    { path: '/full/2', reason: 'QUOTA_FULL' },
    { path: '/full/3', reason: 'QUOTA_FULL' },
  ]);
  expect((await viewRequest(app, listed)).awaited).toEqual([{ path: '/full/2', reason: 'QUOTA_FULL' }]);
  expect(await readUsed(app, 'full')).toBe(1400);
  expect(await readStage(app, '/full/2')).toBe('T');
  await joinAwaited(app.ctx);
  expect((await viewRequest(app, id)).filesRefused).toBe(2);

  await addQuota(app.ctx, 'full', 1603n);
  await joinAwaited(app.ctx);
  expect(await waitForView(app, id, 'to have all', all(4))).toMatchObject({ state: 'COMPLETED', filesRefused: 0 });
  expect(await waitForView(app, listed, 'to have its own', all(1))).toMatchObject({ filesRefused: 0 });
  expect(await readUsed(app, 'full')).toBe(1603);
  expect(backend.log.filter((entry) => entry.volume === 'FULL' && entry.what === 'read')).toHaveLength(4);
});

test('room that another request gives back is taken by the files that wait for it', async () => {
  await addQuota(app.ctx, 'tight', 1000n);
  await addTaped(app.ctx, backend, [{ path: '/tight/0', volume: 'TIGHT', position: 1n, size: 900 }]);
  const holder = await makeRequest(app, { quota: 'tight', files: ['/tight/0'] });
  const id = await makeRequest(app, { quota: 'tight', files: ['/tight/1'] });
  await addTaped(app.ctx, backend, [{ path: '/tight/1', volume: 'TIGHT', position: 2n, size: 200 }]);
  expect((await viewRequest(app, id)).filesRefused).toBe(1);
  await cancel(app, holder);
  await joinAwaited(app.ctx);
  await waitForView(app, id, 'to have its file', all(1));
  expect(await readUsed(app, 'tight')).toBe(200);
});
