/** The work for a full restore disk depends on the changes on the disk, not on the number of waiting recalls. */
import { beforeAll, expect, test } from 'vitest';
import { setDisk } from '../../src/domain/disks/disks.js';
import { readDisks, ring } from '../support/engine-watch.js';
import { addTaped } from '../support/factories.js';
import { askData, type Edges } from '../support/graphql.js';
import { useMemorySite } from '../support/memory-site.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';
import { countRows, type Work } from '../support/writes.js';

const MANY = 150;
const { app, library, clock, ask, query } = useMemorySite({ drives: 1 });
let standing = 0;

beforeAll(async () => {
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 1000n });
  const files = Array.from({ length: MANY }, (_, n) => ({ path: `/large/${n}`, position: BigInt(n + 1), size: 600 }));
  await addTaped(
    app.ctx,
    library,
    files.map((file) => ({ ...file, volume: 'ROOM' })),
  );
  standing = await makeRequest(app, { quota: 'alice', patterns: '/large/', retention: '2099-01-01' });
  await waitFor('all but one to wait for room', async () => (await readWaiting()).length === MANY - 1);
});

/** Returns the recalls that wait for room, with the versions of their rows. A write changes the version. */
async function readWaiting(): Promise<string[]> {
  const rows = await query<{ row: string }>(
    `SELECT file_id || ' ' || xmin AS row FROM recall WHERE state = 'WAITING' AND error_class = 'SPACE' ORDER BY file_id`,
  );
  return rows.map(({ row }) => row);
}

/** Restores a small file of the same volume. By then the drive has checked all files that it considers ready. */
async function restoreSmall(name: string): Promise<number> {
  await addTaped(app.ctx, library, [{ path: `/small/${name}`, volume: 'ROOM', position: 5000n, size: 10 }]);
  const id = await ask(`/small/${name}`);
  await waitForState(app, id, 'COMPLETED');
  return id;
}

async function readParts(id: number) {
  const text = `{ request(requestId: ${id}) { waiting { parts { edges { node { reason fileCount nextTryAt explanation } } } } } }`;
  type View = { request: { waiting: { parts: Edges<object> } | null } };
  return (await askData<View>(app, text)).request.waiting?.parts.edges.map(({ node }) => node);
}

const sum = (done: readonly Work[], table: string) => done.reduce((rows, { read }) => rows + (read[table] ?? 0), 0);

test('recalls that wait for room are neither read nor written while there is none, and report why', async () => {
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
  const room = `${app.restoreDir} has 400 bytes left of the 1.00 kB allocated to Tapegate`;
  const explanation = `no restore disk has room for 600 bytes: ${room}`;
  expect(await readParts(standing)).toEqual([{ reason: 'SPACE', fileCount: MANY - 1, nextTryAt: null, explanation }]);
});

test('room for some recalls wakes as many, at once', async () => {
  const before = await readWaiting();
  await setDisk(app.ctx, { mountpoint: app.restoreDir, size: 2000n });
  await waitFor('as many files as there is room for', async () => (await readDisks(app)).used > 1800n);
  await restoreSmall('d');
  const after = new Set(await readWaiting());
  expect(after.size).toBe(MANY - 3);
  // if the room is checked again before a drive has reserved it, as many recalls wake again
  expect(before.filter((row) => !after.has(row)).length).toBeLessThanOrEqual(4);
});
