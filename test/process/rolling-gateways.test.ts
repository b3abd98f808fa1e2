/** Two gateways behind a balancer of connections that asks whether they are ready, stopped and started one after the other under load. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { type Balancer, startBalancer } from '../support/balancer.js';
import { addFiles, addQuota } from '../support/factories.js';
import { takePort } from '../support/ports.js';
import { cleanUp, type LocalServer, serveHere } from '../support/process.js';
import { makeRequest } from '../support/rest.js';
import { startLoad, watchToTheEnd } from '../support/rolling-load.js';

const CLIENTS = 8;
const WATCHERS = 4;
const ROUNDS = 1;
/** Of all clients together, before each stop and after each start. */
const CALLS = 40;

let app: TestApp;
let balancer: Balancer;
let gateways: { port: number; running: LocalServer }[];

// of each try its own
beforeEach(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addFiles(app.ctx, [{ path: '/tape/watched', volume: 'ROLL' }]);
  gateways = [];
  for (let n = 0; n < 2; n++) {
    const { port, letGo } = await takePort();
    await letGo();
    gateways.push({ port, running: await start(port) });
  }
  balancer = await startBalancer(gateways.map(({ port }) => port));
}, 120_000);
afterEach(async () => {
  await balancer?.close();
  await cleanUp();
  await app.close();
});

const start = (port: number) =>
  serveHere({ DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, PORT: String(port), LEAVE_SECONDS: '1' });

test('gateways that are restarted one after the other fail no call, double none, and end no watcher', async () => {
  const watched = await makeRequest(balancer, { quota: 'alice', files: ['/tape/watched'], label: 'watched' });
  const watchers = Array.from({ length: WATCHERS }, () => watchToTheEnd(balancer, watched));
  const load = startLoad(balancer, CLIENTS);
  for (let round = 0; round < ROUNDS; round++) {
    for (const gateway of gateways) {
      await load.more(CALLS);
      expect((await gateway.running.stop()).code).toBe(0);
      await load.more(CALLS); // of the other one
      gateway.running = await start(gateway.port);
    }
  }
  await load.more(CALLS);
  const labels = await load.end();
  const { rows } = await app.ctx.db.pool.query<{ label: string }>(
    `SELECT label FROM request WHERE label LIKE 'client %' ORDER BY label`,
  );
  expect(rows.map(({ label }) => label)).toEqual([...labels].sort());
  expect(Math.min(...balancer.taken)).toBeGreaterThan(0);
  await fetch(`${balancer.url}/graphql`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${app.token}` },
    body: JSON.stringify({ query: `mutation { cancelRequest(id: ${watched}) { __typename } }` }),
  });
  expect(await Promise.all(watchers)).toEqual(watchers.map(() => 'CANCELLED'));
}, 300_000);
