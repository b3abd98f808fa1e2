/** Two real gateways behind a balancer of connections that asks whether they are ready, stopped and started one after the other under load. */
import { createClient } from 'graphql-sse';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { type Balancer, startBalancer } from '../support/balancer.js';
import { addFiles, addQuota } from '../support/factories.js';
import { takePort } from '../support/ports.js';
import { cleanUp, type Running, startServer, stop } from '../support/process.js';
import { makeRequest, read } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

const CLIENTS = 8;
const WATCHERS = 4;
const ROUNDS = 2;
/** Of all clients together, before each stop and after each start. */
const CALLS = 60;

let app: TestApp;
let balancer: Balancer;
let gateways: { port: number; running: Running }[];

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
  startServer('serve', {
    env: { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, PORT: String(port), LEAVE_SECONDS: '2' },
  });

/** Asks, makes requests and asks for them, one after the other, until it is told to end. @returns the labels of what it has made */
async function work(client: number, signal: AbortSignal, onCall: () => void): Promise<string[]> {
  const labels: string[] = [];
  for (let n = 0; !signal.aborted; n++) {
    const label = `client ${client}, request ${n}`;
    const id = await makeRequest(balancer, { quota: 'alice', files: [`/rolling/${client}/${n}`], label });
    labels.push(label);
    onCall();
    expect(await read(balancer, `/requests/${id}`)).toMatchObject({ label });
    onCall();
  }
  return labels;
}

/** @returns what it was told last, when it was told that all is over */
async function watch(id: number): Promise<unknown> {
  const client = createClient({ url: `${balancer.url}/graphql/stream`, singleConnection: false, retryAttempts: 20 });
  const results = client.iterate<{ requestProgress: { state: string } }>({
    query: 'subscription ($id: Int!) { requestProgress(id: $id) { state } }',
    variables: { id },
  });
  let last: unknown;
  for await (const result of results) last = result.data?.requestProgress.state ?? result.errors;
  return last;
}

test('gateways that are restarted one after the other fail no call, double none, and end no watcher', async () => {
  const watched = await makeRequest(balancer, { quota: 'alice', files: ['/tape/watched'], label: 'watched' });
  const watchers = Array.from({ length: WATCHERS }, () => watch(watched));
  const end = new AbortController();
  let calls = 0;
  const clients = Promise.all(Array.from({ length: CLIENTS }, (_, n) => work(n, end.signal, () => void calls++)));
  clients.catch(() => end.abort());
  const waitForCalls = async () => {
    const from = calls;
    await waitFor('calls', async () => end.signal.aborted || calls >= from + CALLS);
  };
  for (let round = 0; round < ROUNDS; round++) {
    for (const gateway of gateways) {
      await waitForCalls();
      expect((await stop(gateway.running)).code).toBe(0);
      await waitForCalls(); // of the other one
      gateway.running = await start(gateway.port);
    }
  }
  await waitForCalls();
  end.abort();
  const labels = (await clients).flat();
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
