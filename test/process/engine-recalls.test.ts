/** From a request to its copies, with one drive: the order of mounts and reads, progress, and files that join later. */
import { expect, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { returnOrphans } from '../../src/domain/disks/removals.js';
import { setQuota } from '../../src/domain/quotas/quotas.js';
import { isWithin } from '../support/clock.js';
import { readMoves, readRestored } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import { useMemorySite } from '../support/memory-site.js';
import { cancel } from '../support/mutations.js';
import { viewRequest, waitForState, waitForView } from '../support/request-view.js';
import { makeRequest, readUsed } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

const { app, library, clock, tape, ask, query } = useMemorySite({ drives: 1, users: ['alice', 'bob', 'busy'] });
const hooks = { onRead: library.onRead };

const requestAs = (quota: string, fields: object) => makeRequest(app, { quota, retention: '2099-01-01', ...fields });

const movesOf = async (file: string) => (await readMoves(app, file)).map(({ move }) => move);
const readsOf = (volume: string) =>
  library.log.filter((entry) => entry.what === 'read' && entry.volume === volume).map((entry) => entry.position);
const mountedVolumes = () => library.log.filter((entry) => entry.what === 'mount').map((entry) => entry.volume);

/** Keeps the drive busy, so that later requests wait together. @returns a function that frees the drive */
async function holdDrive(name: string): Promise<() => void> {
  const gate = createGate();
  await addTaped(app.ctx, library, [{ path: `/${name}/busy`, volume: `${name}-BUSY` }]);
  library.onRead = async () => {
    await gate.opened;
  };
  await requestAs('busy', { files: [`/${name}/busy`] });
  await waitFor('the read', async () => readsOf(`${name}-BUSY`).length > 0);
  library.log.length = 0;
  return gate.open;
}

/**
 * Runs `work` in a period of the test clock that overlaps no other period.
 * @returns the period, and the result of `work`
 */
async function during<T>(work: () => Promise<T>): Promise<[readonly [string, string], T]> {
  clock.advance(1000);
  const from = clock.now();
  const result = await work();
  const span = [from, clock.now()] as const;
  clock.advance(1000);
  return [span, result];
}

test('a file that many requests contain is read once, and each of them completes', async () => {
  const gate = holdReads(library);
  const contents = await addTaped(app.ctx, library, [
    { path: '/once/a', volume: 'ONCE', position: 1n },
    { path: '/once/b', volume: 'ONCE', position: 2n },
  ]);
  const ids = [
    await requestAs('alice', { patterns: '/once/' }),
    await requestAs('bob', { files: ['/once/b', '/once/a'] }),
  ];
  await gate.begun();
  const [making, running] = await during(() => requestAs('bob', { files: ['/once/a'] }));
  const view = await viewRequest(app, running);
  expect(view).toMatchObject({ state: 'RESTORING', recallsEndedAt: null, firstFileOnDiskAt: null });
  expect(isWithin(view.recallsStartedAt, making)).toBe(true);
  gate.open();
  for (const id of [...ids, running]) await waitForState(app, id, 'COMPLETED');
  await waitForState(app, await ask('/once/a', '/once/b'), 'COMPLETED');
  expect(readsOf('ONCE')).toEqual([1n, 2n]);
  for (const [path, bytes] of contents) expect(readRestored(app, path)).toEqual(bytes);
  expect(await movesOf('/once/a')).toEqual(['TA', 'AR']);
});

test('a volume is mounted once and read in order of position, whatever the order of the request', async () => {
  const positions = [40n, 7n, 1000n, 3n, 12n];
  const files = positions.map((position) => ({ path: `/order/${position}`, volume: 'ORDER', position }));
  await addTaped(app.ctx, library, files);
  await waitForState(app, await ask(...files.map((file) => file.path)), 'COMPLETED');
  await waitFor('the unmount', async () => library.log.some((entry) => entry.what === 'unmount'));
  const calls = library.log.filter((entry) => entry.volume === 'ORDER');
  expect(calls.map(({ what, position }) => position ?? what)).toEqual(['mount', 3n, 7n, 12n, 40n, 1000n, 'unmount']);
});

test('files that are requested while their volume is mounted are read without another mount', async () => {
  const gate = holdReads(library);
  const files = [5n, 2n, 9n].map((position) => ({ path: `/meanwhile/${position}`, volume: 'MEANWHILE', position }));
  await addTaped(app.ctx, library, files);
  const first = await ask('/meanwhile/5');
  await waitFor('the read', async () => readsOf('MEANWHILE').length > 0);
  const second = await requestAs('bob', { files: ['/meanwhile/2', '/meanwhile/9'] });
  gate.open();
  for (const id of [first, second]) await waitForState(app, id, 'COMPLETED');
  expect(mountedVolumes()).toEqual(['MEANWHILE']);
  expect(readsOf('MEANWHILE')).toEqual([5n, 9n, 2n]);
});

test('requests of higher priority are read first, and those of lower priority last', async () => {
  const goOn = await holdDrive('prio');
  const ids: number[] = [];
  for (const n of [1, 2, 3, 4]) {
    await addQuota(app.ctx, `user-${n}`, 10n ** 9n);
    await addTaped(app.ctx, library, [{ path: `/prio/${n}`, volume: `PRIO${n}` }]);
    ids.push(await requestAs(`user-${n}`, { files: [`/prio/${n}`] }));
  }
  const set = (id: number | undefined, priority: number) =>
    askData(
      app,
      `mutation { setRequestPriority(input: { requestId: ${id}, priority: ${priority} }) { errors { message } } }`,
    );
  await set(ids[0], -5);
  await set(ids[3], 5);
  goOn();
  for (const id of ids) await waitForState(app, id, 'COMPLETED');
  expect(mountedVolumes()).toEqual(['PRIO4', 'PRIO2', 'PRIO3', 'PRIO1']);
});

test('of two users with the same drive time, the one of greater weight is served first', async () => {
  const goOn = await holdDrive('weight');
  await setQuota(app.ctx, { user: 'light', size: 10n ** 9n });
  await setQuota(app.ctx, { user: 'heavy', size: 10n ** 9n, weight: 2 });
  await query(`UPDATE quota SET drive_seconds = 1000, drive_seconds_at = $1 WHERE "user" IN ('light', 'heavy')`, [
    app.ctx.now(),
  ]);
  await addTaped(app.ctx, library, [
    { path: '/weight/light', volume: 'LIGHT' },
    { path: '/weight/heavy', volume: 'HEAVY' },
  ]);
  const light = await requestAs('light', { files: ['/weight/light'] });
  const heavy = await requestAs('heavy', { files: ['/weight/heavy'] });
  goOn();
  for (const id of [light, heavy]) await waitForState(app, id, 'COMPLETED');
  expect(mountedVolumes()).toEqual(['HEAVY', 'LIGHT']);
});

// tests R43 to R52 of the REST contract check each timestamp
test('a request counts its files as they arrive, and records each change of its state', async () => {
  const gates = new Map(['COUNT-1', 'COUNT-2'].map((volume) => [volume, createGate()]));
  library.onMount = async (volume) => gates.get(volume)?.opened;
  await addTaped(app.ctx, library, [
    { path: '/count/a', volume: 'COUNT-1', size: 70_000 },
    { path: '/count/b', volume: 'COUNT-2', size: 300 },
  ]);
  const id = await ask('/count/b', '/count/a');
  const figures = {
    filesTotal: 2,
    filesFailed: 0,
    filesUnknown: 0,
    filesRefused: 0,
    bytesTotal: '70300',
    unresolved: [],
  };
  const none = { errorClass: null, error: null };
  expect(await viewRequest(app, id)).toMatchObject({ ...figures, filesOnDisk: 0, bytesOnDisk: '0' });
  await waitForState(app, id, 'RESTORING');
  expect(readRestored(app, '/count/a')).toBeUndefined();
  gates.get('COUNT-1')?.open();
  const first = await waitForView(app, id, 'to have a file', (view) => view.filesOnDisk > 0);
  expect(first).toEqual({
    ...figures,
    ...{ state: 'RESTORING', filesOnDisk: 1, bytesOnDisk: '70000', finishedAt: null, recallsEndedAt: null },
    recallsStartedAt: expect.any(String),
    firstFileOnDiskAt: expect.any(String),
    files: [
      { path: '/count/b', stage: expect.stringMatching('ONTAPE|RESTORING'), state: 'WAITING', ...none },
      { path: '/count/a', stage: 'RESTORED', state: 'ON_DISK', ...none },
    ],
  });
  gates.get('COUNT-2')?.open();
  const last = await waitForState(app, id, 'COMPLETED');
  expect(last).toMatchObject({ ...figures, filesOnDisk: 2, bytesOnDisk: '70300' });
  const events = await query<{ state: string; disk: number; bytes: number }>(
    `SELECT state, files_on_disk AS disk, bytes_on_disk::int AS bytes FROM event WHERE request_id = $1 ORDER BY id`,
    [id],
  );
  expect(events.map(({ state, disk, bytes }) => `${state} ${disk} ${bytes}`)).toEqual([
    'QUEUED 0 0',
    'RESTORING 0 0',
    'RESTORING 1 70000',
    'COMPLETED 2 70300',
  ]);
});

test('a request whose files all failed has an end and no file on disk, until another request restores them', async () => {
  await tape('/after-all/a');
  library.onRead = () => Promise.reject(new TapeError('PERMANENT', 'not today'));
  const first = await ask('/after-all/a');
  const view = await waitForState(app, first, 'PARTIAL');
  expect(view).toMatchObject({ filesOnDisk: 0, filesFailed: 1, firstFileOnDiskAt: null, finishedAt: null });
  expect([view.recallsStartedAt, view.recallsEndedAt]).not.toContain(null);
  Object.assign(library, hooks);
  await waitForState(app, await ask('/after-all/a'), 'COMPLETED');
  expect(await viewRequest(app, first)).toMatchObject({
    ...{ state: 'COMPLETED', filesOnDisk: 1, filesFailed: 0, bytesOnDisk: '1000' },
    files: [{ state: 'ON_DISK', errorClass: null, error: null }],
  });
});

test('a file that an import leaves at RESTORING, without a recall, is restored for its request', async () => {
  await addTaped(app.ctx, library, [{ path: '/orphan/a', volume: 'ORPHAN', stage: 'RESTORING' }]);
  const id = await ask('/orphan/a');
  await returnOrphans(app.ctx);
  await waitForState(app, id, 'COMPLETED');
  expect(await movesOf('/orphan/a')).toEqual(['AT', 'TA', 'AR']);
  expect(readRestored(app, '/orphan/a')).toHaveLength(1000);
});

const waitForFiles = (id: number, count: number) =>
  waitForView(app, id, `to have ${count} files`, (view) => view.filesOnDisk === count);

test('a file that appears later joins every live request whose pattern it matches, and no other', async () => {
  const patterns = { ann: '/glob/', ben: 'lob/a_b%c', cas: 'GLOB', dan: '/glob/' };
  const ids: Record<string, number> = {};
  for (const [user, pattern] of Object.entries(patterns)) {
    await addQuota(app.ctx, user, 10_000n);
    ids[user] = await requestAs(user, { patterns: pattern });
  }
  const { ann = 0, ben = 0, cas = 0, dan = 0 } = ids;
  await cancel(app, dan);
  await addTaped(app.ctx, library, [
    { path: '/glob/a_b%c*', volume: 'GLOB', position: 1n, size: 100 },
    { path: '/glob/axbyc', volume: 'GLOB', position: 2n, size: 10 },
  ]);
  await waitForFiles(ann, 2);
  await waitForFiles(ben, 1);
  const totals = await Promise.all([ben, cas, dan].map(async (id) => (await viewRequest(app, id)).filesTotal));
  expect(totals).toEqual([1, 0, 0]);
  expect(await Promise.all(Object.keys(patterns).map((user) => readUsed(app, user)))).toEqual([110, 100, 0, 0]);
  expect(readsOf('GLOB')).toHaveLength(2);
});
