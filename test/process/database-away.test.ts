/** What is told, and what goes on, while the database hangs or is not there. */
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import type { Duplex } from 'node:stream';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, expect, inject, test } from 'vitest';
import { startEmbedded } from '../../src/database/embedded.js';
import { readPidFile } from '../../src/database/postmaster.js';
import { startEngine } from '../../src/engine/runner.js';
import { importRows } from '../../src/operations/catalogue/import.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { type DatabaseRelay, startDatabaseRelay } from '../support/database-relay.js';
import { addQuota, addTaped, buildRow } from '../support/factories.js';
import { sendGraphql } from '../support/graphql.js';
import { type Gateway, send } from '../support/http.js';
import { whileLocked } from '../support/locks.js';
import { cleanUp, makeDataDir, runCli, startServer, stop } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { errorBody, get, makeRequest, post, readRequest } from '../support/rest.js';
import { isReady } from '../support/server.js';
import { createGate, waitFor } from '../support/wait.js';

let app: TestApp;
let relay: DatabaseRelay;
const backend = createMemoryBackend();
const hooks = { onRead: backend.onRead };
/** What the app has logged, a line each. */
const lines: string[] = [];
const tell = (figures: object, text: string) => void lines.push(`${text} ${JSON.stringify(figures)}`);

beforeAll(async () => {
  relay = await startDatabaseRelay(inject('postgres').connection);
  app = await startApp({
    through: relay.through,
    database: { lostMs: 2000, statementMs: 2000, log: { warn: tell, error: tell } },
    config: { drives: 1 },
  });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(() => {
  Object.assign(backend, hooks);
  backend.log.length = 0;
  lines.length = 0;
});
afterAll(async () => {
  await app.close();
  await relay.close();
  await cleanUp();
});

const AWAY = 'the database does not answer: try again later';

const ready = (gateway: Gateway) => waitFor('the gateway to be ready', () => isReady(gateway));
const notReady = (gateway: Gateway) => waitFor('the gateway to say so', async () => !(await isReady(gateway)));

/** Each protocol says what is the matter, and when to come again. */
async function expectUnavailable(gateway: Gateway): Promise<void> {
  const answers = [await get(gateway, '/requests/1'), await get(gateway, '/files'), await get(gateway, '/requests')];
  for (const { status, headers, body } of [...answers, await post(gateway, { quota: 'alice', patterns: '/x' })]) {
    expect([status, headers.get('retry-after'), headers.get('content-type')]).toEqual([503, '5', 'application/json']);
    expect(body).toEqual(errorBody(AWAY));
  }
  const queries = ['{ quota(user: "alice") { user } }', '{ requests(first: 1) { totalCount } }'];
  const mutation = 'mutation { cancelRequest(id: 1) { __typename } }';
  for (const query of [...queries, mutation]) {
    const { body } = await sendGraphql(gateway, { query });
    expect(body.errors?.map(({ message, extensions }) => [message, extensions])).toEqual([
      [AWAY, { code: 'UNAVAILABLE', retryAfterSeconds: 5 }],
    ]);
  }
  expect((await send(gateway, '/health/live')).status).toBe(200);
  expect((await send(gateway, '/health/ready')).status).toBe(503);
}

test('R142 a database that hangs is told of once, and everybody is answered 503 with Retry-After', async () => {
  relay.freeze();
  const waiting = get(app, '/quota/alice');
  await notReady(app);
  expect(await waiting).toMatchObject({ status: 503, body: errorBody(AWAY) });
  await expectUnavailable(app);
  relay.thaw();
  await ready(app);
  expect((await get(app, '/quota/alice')).status).toBe(200);
  expect(lines).toEqual([
    'database lost {"reason":"no answer in 2 seconds"}',
    expect.stringMatching(/^database back \{"seconds":\d+\}$/),
  ]);
});

const UNCONFIRMED = 'the database has not confirmed the change, which may be stored: look before you repeat it';

test('R143 a change that the database does not confirm is told to look for, and not to be repeated', async () => {
  const whileUnconfirmed = async <T>(path: string, last: 'commit' | 'answer', make: () => Promise<T>): Promise<T> => {
    relay.freezeAfter(last);
    const answer = await make();
    relay.thaw();
    await ready(app);
    const stored = { text: 'SELECT FROM request WHERE label = $1', values: [path] };
    expect((await app.ctx.db.pool.query(stored)).rowCount).toBe(1);
    return answer;
  };
  const rest = await whileUnconfirmed('/rest/a', 'commit', () => post(app, { quota: 'alice', files: ['/rest/a'] }));
  expect([rest.status, rest.headers.get('retry-after'), rest.body]).toEqual([500, null, errorBody(UNCONFIRMED)]);
  for (const last of ['commit', 'answer'] as const) {
    const path = `/graphql/${last}`;
    const query = `mutation { createRequest(input: { quota: "alice", files: ["${path}"] }) { __typename } }`;
    const { body } = await whileUnconfirmed(path, last, () => sendGraphql(app, { query }));
    expect(body.errors?.map(({ message, extensions }) => [message, extensions])).toEqual([
      [UNCONFIRMED, { code: 'UNCONFIRMED' }],
    ]);
  }
  const args = ['request', '--quota', 'alice', '--pattern', '/command/a'];
  const client = { env: { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token } };
  const command = await whileUnconfirmed('/command/a', 'commit', () => runCli(args, client));
  expect(command).toEqual({ code: 1, stdout: '', stderr: `tapegate: ${UNCONFIRMED}\n` });
  expect(lines.filter((line) => !line.startsWith('database '))).toEqual([]);
});

test('a database that has gone is told of once, and everybody is answered', async () => {
  await relay.refuse();
  await notReady(app);
  await expectUnavailable(app);
  await relay.accept();
  await ready(app);
  expect((await get(app, '/quota/alice')).status).toBe(200);
  expect(lines).toEqual([
    expect.stringMatching(/^database lost \{"reason":"connect ECONNREFUSED 127\.0\.0\.1:\d+"\}$/),
    expect.stringMatching(/^database back/),
  ]);
});

test('connections that break are made anew, and a database that is there is not told to be lost', async () => {
  await app.ctx.db.pool.query(
    `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()`,
  );
  await waitFor('an answer', async () => (await get(app, '/quota/alice')).status === 200);
  await ready(app);
  expect(lines).toEqual([]);
});

test('a connection that breaks while a statement is sent says no more than that the database does not answer', async () => {
  const { pool } = app.ctx.db;
  const broken = () => Object.assign(new Error('write EPIPE'), { code: 'EPIPE', syscall: 'write' });
  pool.once('acquire', (client) => {
    const { stream } = (client as unknown as { connection: { stream: Duplex } }).connection;
    process.nextTick(() => stream.destroy(broken()));
  });
  await expect(pool.query('SELECT pg_sleep(1)')).rejects.toThrow(AWAY);
});

test('a lease ends by its time while the database hangs, and the file is brought back afterwards', async () => {
  await addTaped(app.ctx, backend, [{ path: '/hangs/a', volume: 'HANGS' }]);
  const [begun, gate] = [createGate(), createGate()];
  backend.onRead = async (_volume, _position, bytes) => {
    begun.open();
    await gate.opened;
    return bytes;
  };
  const engine = await startEngine(app.ctx, backend, { drainMs: 0, leaseSeconds: 1 });
  const id = await makeRequest(app, { quota: 'alice', patterns: '/hangs/' });
  await begun.opened;
  relay.freeze();
  await waitFor('the volume to be left', async () => backend.log.some(({ what }) => what === 'unmount'));
  relay.thaw();
  gate.open();
  expect(await waitForState(app, id, 'COMPLETED')).toMatchObject({ filesOnDisk: 1, filesFailed: 0 });
  await engine.stop();
});

test('what cannot be put in place for want of the database is no failure of its file', async () => {
  await addTaped(app.ctx, backend, [{ path: '/gone/a', volume: 'GONE' }]);
  const [begun, gate] = [createGate(), createGate()];
  backend.onRead = async (_volume, _position, bytes) => {
    begun.open();
    await gate.opened;
    return bytes;
  };
  const log = pino({ level: 'warn' }, { write: (line: string) => void lines.push(JSON.parse(line).msg) });
  const engine = await startEngine({ ...app.ctx, log }, backend, { drainMs: 0, leaseSeconds: 30 });
  await makeRequest(app, { quota: 'alice', patterns: '/gone/' });
  await begun.opened;
  relay.freeze();
  await waitFor('the database to be lost', async () => lines.some((line) => line.startsWith('database lost')));
  gate.open();
  await waitFor('the volume to be left', async () => backend.log.some(({ what }) => what === 'unmount'));
  relay.thaw();
  await ready(app);
  await engine.stop();
  expect(lines.filter((line) => line.startsWith('recall failed'))).toEqual([]);
});

test('a statement that waits too long is given up and says so', async () => {
  const statement = { text: 'SELECT pg_sleep(60)', values: [] };
  await expect(app.ctx.db.pool.query(statement)).rejects.toMatchObject({ name: 'Error', kind: 'busy' });
  await whileLocked(app, 'SELECT FROM quota FOR UPDATE', async () => {
    const { status, headers, body } = await post(app, { quota: 'alice', files: ['/hangs/a'] });
    expect([status, headers.get('retry-after')]).toEqual([503, '5']);
    expect(body).toEqual(errorBody('the database is too busy: try again later'));
  });
});

test('an import has the time that it takes, however slow its source is', async () => {
  async function* slowly() {
    for (const second of [1, 2, 3]) {
      await app.ctx.db.pool.query('SELECT pg_sleep(1)'); // all of them are more than a statement may take
      yield buildRow({ line: second, path: `/slow/${second}` });
    }
  }
  expect(await importRows(app.ctx, slowly())).toMatchObject({ added: 3, updated: 0 });
});

test('a process ends in good order while the database hangs', async () => {
  const other = await startApp({ through: relay.through, backend, database: { lostMs: 2000 } });
  expect((await get(other, '/files')).status).toBe(200);
  relay.freeze();
  try {
    await other.close();
  } finally {
    relay.thaw();
  }
  await ready(app);
});

/** Every process of a server. */
function processesOf(cluster: string): number[] {
  const postmaster = readPidFile(cluster)?.pid ?? 0;
  const listing = execFileSync('ps', ['-eo', 'pid=,ppid='], { encoding: 'utf8' });
  const rows = listing.split('\n').map((line) => line.trim().split(/\s+/).map(Number));
  return [postmaster, ...rows.flatMap(([pid = 0, ppid]) => (ppid === postmaster ? [pid] : []))];
}

test('while PostgreSQL is stopped a gateway with an engine answers, and its log has two lines', async () => {
  const dataDir = makeDataDir();
  const cluster = path.join(dataDir, 'postgres');
  const embedded = await startEmbedded({ dataDir: cluster });
  await embedded.ensureDatabase('site');
  const { host, port, user } = embedded.config('site');
  const env = {
    DATABASE_URL: `postgresql://${user}@localhost:${port}/site?host=${encodeURIComponent(String(host))}`,
    DATA_DIR: dataDir,
    DRIVES: '1',
  };
  const server = await startServer('start', { env });
  let stopped: number[] = [];
  try {
    expect((await runCli(['quota', 'set', 'alice', '--size', '1G'], { env })).code).toBe(0);
    const id = await makeRequest(server, { quota: 'alice', patterns: '/none/' });
    stopped = processesOf(cluster);
    for (const pid of stopped) process.kill(pid, 'SIGSTOP');
    await notReady(server);
    await waitFor('an answer', async () => (await get(server, '/quota/alice')).status === 503);
    await expectUnavailable(server);
    const client = { env: { TAPEGATE_URL: server.url } };
    expect(await runCli(['requests'], client)).toEqual({ code: 4, stdout: '', stderr: `tapegate: ${AWAY}\n` });
    for (const pid of stopped.splice(0)) process.kill(pid, 'SIGCONT');
    await ready(server);
    expect((await readRequest(server, id)).quota).toBe('alice');
  } finally {
    for (const pid of stopped) process.kill(pid, 'SIGCONT');
    const { stderr } = await stop(server);
    await embedded.close();
    const told = stderr.split('\n').filter((line) => line !== '');
    expect(told.map((line) => JSON.parse(line).msg)).toEqual(['database lost', 'database back']);
  }
});
