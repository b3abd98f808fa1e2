/** A full restore disk costs what changes on it, and not what waits for it. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { setDisk } from '../../src/operations/disks/disks.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { readDisks, ring } from '../support/engine-watch.js';
import { addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';
import { countRows, type Work } from '../support/writes.js';

const MANY = 300;
const RETENTION = '2099-01-01';
const backend = createMemoryBackend();
const clock = createClock();
let app: TestApp;
let standing = 0;

beforeAll(async () => {
  app = await startApp({ backend, config: { drives: 1 }, now: clock.now });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 1000n });
  const files = Array.from({ length: MANY }, (_, n) => ({ path: `/large/${n}`, position: BigInt(n + 1), size: 600 }));
  await addTaped(
    app.ctx,
    backend,
    files.map((file) => ({ ...file, volume: 'ROOM' })),
  );
  standing = await makeRequest(app, { quota: 'alice', patterns: '/large/', retention: RETENTION });
  await waitFor('all but one to wait for room', async () => (await readWaiting()).length === MANY - 1);
});
afterAll(() => app.close());

/** The versions of the rows that wait for room: another one whenever a row was written. */
async function readWaiting(): Promise<string[]> {
  const { rows } = await app.ctx.db.pool.query<{ row: string }>(
    `SELECT file_id || ' ' || xmin AS row FROM recall WHERE state = 'WAITING' AND error_class = 'SPACE' ORDER BY file_id`,
  );
  return rows.map(({ row }) => row);
}

/** A small file of the same volume comes: the drive has looked at all that it takes for ready. */
async function restoreSmall(name: string): Promise<number> {
  await addTaped(app.ctx, backend, [{ path: `/small/${name}`, volume: 'ROOM', position: 5000n, size: 10 }]);
  const id = await makeRequest(app, { quota: 'alice', files: [`/small/${name}`], retention: RETENTION });
  await waitForState(app, id, 'COMPLETED');
  return id;
}

async function readParts(id: number) {
  const query = `{ request(id: ${id}) { waiting { parts { edges { node { reason files nextTry explanation } } } } } }`;
  type View = { request: { waiting: { parts: { edges: { node: Record<string, unknown> }[] } } | null } };
  return (await askData<View>(app, query)).request.waiting?.parts.edges.map(({ node }) => node);
}

const sum = (done: readonly Work[], table: string) => done.reduce((rows, { read }) => rows + (read[table] ?? 0), 0);

test('recalls that wait for room are neither read nor written while there is none, and say why', async () => {
  const before = await readWaiting();
  const done = await countRows(async () => {
    for (const name of ['a', 'b', 'c']) {
      clock.advance(31);
      await ring(app, 'recall');
      await restoreSmall(name);
    }
  });
  expect(await readWaiting()).toEqual(before);
  expect(
    sum(
      done.filter(({ transaction }) => transaction === 'startRecalls'),
      'recall',
    ),
  ).toBeLessThan(MANY / 3);
  const room = `${app.restoreDir} has 400 of its allocation of 1000 bytes left`;
  const explanation = `no restore disk has room for it: no restore disk has room for 600 bytes: ${room}`;
  expect(await readParts(standing)).toEqual([{ reason: 'SPACE', files: MANY - 1, nextTry: null, explanation }]);
});

test('room for some wakes so many of them, at once', async () => {
  const before = await readWaiting();
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 2000n });
  await waitFor('as many files as there is room for', async () => (await readDisks(app)).used > 1800n);
  await restoreSmall('d');
  const after = new Set(await readWaiting());
  expect(after.size).toBe(MANY - 3);
  // room that is looked at twice before a drive has taken it wakes as many again
  expect(before.filter((row) => !after.has(row)).length).toBeLessThanOrEqual(4);
});
