/** Gateways that are restarted under load, behind a balancer and alone. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { cancelRequest } from '../../src/operations/requests/ends.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { startBalancer } from '../support/balancer.js';
import { addQuota, addTaped } from '../support/factories.js';
import { holdReads } from '../support/held-reads.js';
import { findFreePort } from '../support/ports.js';
import { cleanUp, serveHere } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { startLoad, watchToTheEnd } from '../support/rolling-load.js';
import { hasCaughtUp, hasLostNothing, restartUnderWatchers } from '../support/rolling-restart.js';

let app: TestApp;
const backend = createMemoryBackend();

beforeAll(async () => {
  app = await startApp({ backend, config: { drives: 6 } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

const serve = (port: number, env: Record<string, string> = {}) =>
  serveHere({ DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, PORT: String(port), ...env });

async function startAtFreePort() {
  const port = await findFreePort();
  return { port, running: await serve(port, { LEAVE_SECONDS: '1' }) };
}

test('a restart of one gateway after the other fails no call, repeats none, and ends no subscription', async () => {
  const [clients, watchers, calls] = [8, 4, 20];
  holdReads(backend);
  await addTaped(app.ctx, backend, [{ path: '/tape/watched' }]);
  const gateways = [await startAtFreePort(), await startAtFreePort()];
  const balancer = await startBalancer(gateways.map(({ port }) => port));
  const watched = await makeRequest(balancer, { quota: 'alice', files: ['/tape/watched'] });
  const watching = Array.from({ length: watchers }, () => watchToTheEnd(balancer, watched));
  const load = startLoad(balancer, clients);
  for (const gateway of gateways) {
    await load.more(calls);
    expect((await gateway.running.stop()).code).toBe(0);
    await load.more(calls);
    gateway.running = await serve(gateway.port, { LEAVE_SECONDS: '1' });
  }
  await load.more(calls);
  const labels = await load.end();
  const { rows } = await app.ctx.db.pool.query<{ label: string }>(
    `SELECT label FROM request WHERE label LIKE 'client %' ORDER BY label`,
  );
  expect(rows.map(({ label }) => label)).toEqual([...labels].sort());
  expect(Math.min(...balancer.taken)).toBeGreaterThan(0);
  await cancelRequest(app.ctx, watched);
  expect(await Promise.all(watching)).toEqual(watching.map(() => 'CANCELLED'));
  await balancer.close();
});

test('clients of a gateway that is restarted reconnect: they get each event once if they resume, else the current state', async () => {
  const restart = await restartUnderWatchers(
    { ctx: app.ctx, backend, serve },
    { ofEachKind: 1, awaySeconds: 0, patienceMs: 60_000 },
  );
  const { watchers, events, files } = restart;
  expect(restart.endedEarly).toBe(0);
  expect(events.at(-1)).toMatchObject({ state: 'COMPLETED', filesOnDisk: files });
  expect(watchers).toHaveLength(4);
  for (const watcher of watchers) {
    const isRight = watcher.resumes ? hasLostNothing(watcher, events) : hasCaughtUp(watcher, files);
    expect({ ...watcher, isRight }).toMatchObject({ end: 'complete', isRight: true });
    expect(watcher.connections.length).toBeGreaterThan(1);
  }
});
