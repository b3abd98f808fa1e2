/** Who goes first: requests of a greater priority, and users of a greater weight. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { setQuota } from '../../src/operations/quotas/quotas.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { waitForState } from '../support/request-view.js';
import { makeRequest } from '../support/rest.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
const backend = createMemoryBackend();

beforeAll(async () => {
  app = await startApp({ backend, config: { drives: 1 } });
  await addQuota(app.ctx, 'busy', 10n ** 9n);
});
afterAll(() => app.close());

/** Keeps the one drive busy, so that what is asked for meanwhile waits together. */
async function holdDrive(name: string) {
  const gate = createGate();
  await addTaped(app.ctx, backend, [{ path: `/${name}/busy`, volume: `${name}-BUSY` }]);
  backend.onRead = async (_volume, _position, bytes) => {
    await gate.opened;
    return bytes;
  };
  await makeRequest(app, { quota: 'busy', files: [`/${name}/busy`] });
  await waitFor('the read', async () => backend.log.some((entry) => entry.volume === `${name}-BUSY`));
  backend.log.length = 0;
  return gate;
}

const mounts = () => backend.log.filter((entry) => entry.what === 'mount').map((entry) => entry.volume);

test('files of a request whose priority is set go before those of older requests, and those of a lower one last', async () => {
  const gate = await holdDrive('prio');
  const ids: number[] = [];
  for (const n of [1, 2, 3, 4]) {
    await addQuota(app.ctx, `user-${n}`, 10n ** 9n);
    await addTaped(app.ctx, backend, [{ path: `/prio/${n}`, volume: `PRIO${n}` }]);
    ids.push(await makeRequest(app, { quota: `user-${n}`, files: [`/prio/${n}`] }));
  }
  const set = (id: number | undefined, priority: number) =>
    askData(app, `mutation { setPriority(id: ${id}, priority: ${priority}) { __typename } }`);
  await set(ids[0], -5);
  await set(ids[3], 5);
  gate.open();
  for (const id of ids) await waitForState(app, id, 'COMPLETED');
  expect(mounts()).toEqual(['PRIO4', 'PRIO2', 'PRIO3', 'PRIO1']);
});

test('of two users who have had the same drive time, the one of greater weight goes first', async () => {
  const gate = await holdDrive('weight');
  await setQuota(app.ctx, { user: 'light', size: 10n ** 9n });
  await setQuota(app.ctx, { user: 'heavy', size: 10n ** 9n, weight: 2 });
  await app.ctx.db.pool.query(
    `UPDATE quota SET drive_seconds = 1000, drive_seconds_at = $1 WHERE "user" IN ('light', 'heavy')`,
    [app.ctx.now()],
  );
  await addTaped(app.ctx, backend, [
    { path: '/weight/light', volume: 'LIGHT' },
    { path: '/weight/heavy', volume: 'HEAVY' },
  ]);
  const light = await makeRequest(app, { quota: 'light', files: ['/weight/light'] });
  const heavy = await makeRequest(app, { quota: 'heavy', files: ['/weight/heavy'] });
  backend.log.length = 0;
  gate.open();
  for (const id of [light, heavy]) await waitForState(app, id, 'COMPLETED');
  expect(mounts()).toEqual(['HEAVY', 'LIGHT']);
});
