/**
 * A database that hangs, disappears or breaks connections, and a process without free descriptors: responses and log
 * lines.
 */
import net from 'node:net';
import { Duplex } from 'node:stream';
import type { Client, ClientConfig } from 'pg';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, expect, inject, test } from 'vitest';
import { destroy } from '../../src/db/line.js';
import { importRows } from '../../src/domain/import/import.js';
import { startEngine } from '../../src/engine/runner.js';
import { startApp, startBeside, type TestApp } from '../support/app.js';
import { createDatabase } from '../support/database.js';
import { addQuota, addTaped, buildRow } from '../support/factories.js';
import { sendGraphql } from '../support/graphql.js';
import { holdReads } from '../support/held-reads.js';
import { type Gateway, send } from '../support/http.js';
import { whileLocked } from '../support/locks.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { cleanUp, runCli, startServer, stop } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { errorBody, get, makeRequest, post, readRequest } from '../support/rest.js';
import { isReady } from '../support/server.js';
import { type DatabaseRelay, startDatabaseRelay } from '../support/tcp-relay.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let relay: DatabaseRelay;
/** Whether connections fail for lack of a free descriptor, and how many connections have failed. */
let isExhausted = false;
let refused = 0;
const library = createMemoryLibrary();
const hooks = { onRead: library.onRead };
/** Log lines of the app. */
const lines: string[] = [];
const log = (figures: object, text: string) => void lines.push(`${text} ${JSON.stringify(figures)}`);

/** Returns a socket whose connection fails with EMFILE, after the caller has added its listeners. */
function createFailingSocket(): net.Socket {
  refused++;
  const socket = new Duplex({ read: () => {}, write: (_chunk, _encoding, done) => done() });
  const none = () => {};
  const error = Object.assign(new Error('connect EMFILE'), { code: 'EMFILE', syscall: 'connect' });
  setImmediate(() => socket.destroy(error));
  return Object.assign(socket, {
    connect: none,
    setNoDelay: none,
    setKeepAlive: none,
    ref: none,
    unref: none,
  }) as never;
}

/** Runs in parallel with the other tests, because a gateway needs 10 s to notice that its database hangs. */
let hangingStart: ReturnType<typeof startOnHangingDatabase>;

beforeAll(async () => {
  hangingStart = startOnHangingDatabase();
  hangingStart.catch(() => {}); // the test that awaits this promise reports the error
  relay = await startDatabaseRelay(inject('postgres').connection);
  app = await startApp({
    through: (connection: ClientConfig) => ({
      ...relay.through(connection),
      stream: () => (isExhausted ? createFailingSocket() : new net.Socket()),
    }),
    database: { lostMs: 1000, log: { warn: log, error: log } },
    config: { drives: 1 },
  });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
});
afterEach(() => {
  Object.assign(library, hooks);
  library.log.length = 0;
  lines.length = 0;
});
afterAll(async () => {
  await app.close();
  await relay.close();
  await cleanUp();
});

const AWAY = 'the database does not answer: try again later';

const waitUntilReady = (gateway: Gateway) => waitFor('the gateway to be ready', () => isReady(gateway));
const waitUntilNotReady = (gateway: Gateway) =>
  waitFor('the gateway not to be ready', async () => !(await isReady(gateway)));
const breakConnections = () =>
  app.ctx.db.pool.query(
    `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()`,
  );
const statusOf = async (path: string) => (await get(app, path)).status;

/** Expects that each protocol returns the error and a time for the retry. */
async function expectUnavailable(gateway: Gateway): Promise<void> {
  const answers = [await get(gateway, '/requests/1'), await get(gateway, '/files'), await get(gateway, '/requests')];
  for (const { status, headers, body } of [...answers, await post(gateway, { quota: 'alice', patterns: '/x' })]) {
    expect([status, headers.get('retry-after'), headers.get('content-type')]).toEqual([503, '5', 'application/json']);
    expect(body).toEqual(errorBody(AWAY));
  }
  const queries = ['{ quota(user: "alice") { user } }', '{ requests(first: 1) { totalCount } }'];
  for (const query of [...queries, 'mutation { cancelRequest(input: { requestId: 1 }) { errors { message } } }']) {
    const { body } = await sendGraphql(gateway, { query });
    expect(body.errors?.map(({ message, extensions }) => [message, extensions])).toEqual([
      [AWAY, { code: 'UNAVAILABLE', retryAfterSeconds: 5 }],
    ]);
  }
  expect((await send(gateway, '/health/live')).status).toBe(200);
  expect((await send(gateway, '/health/ready')).status).toBe(503);
}

test('R142 while the database hangs, every request gets 503 with Retry-After, and the log says so once', async () => {
  relay.freeze();
  const waiting = get(app, '/quota/alice');
  await waitUntilNotReady(app);
  expect(await waiting).toMatchObject({ status: 503, body: errorBody(AWAY) });
  await expectUnavailable(app);
  relay.thaw();
  await waitUntilReady(app);
  expect(await statusOf('/quota/alice')).toBe(200);
  expect(lines).toEqual([
    'database lost {"reason":"no answer in 1 seconds"}',
    expect.stringMatching(/^database back \{"seconds":\d+\}$/),
  ]);
});

const UNCONFIRMED = 'the database did not confirm the change: check whether the change was stored before you repeat it';

test('R143 a change that the database does not confirm is reported as perhaps stored, not as one to retry', async () => {
  const whileUnconfirmed = async <T>(
    label: string,
    last: 'commit' | 'answer',
    change: () => Promise<T>,
  ): Promise<T> => {
    relay.freezeAfter(last);
    const answer = await change();
    relay.thaw();
    await waitUntilReady(app);
    const stored = { text: 'SELECT FROM request WHERE label = $1', values: [label] };
    expect((await app.ctx.db.pool.query(stored)).rowCount).toBe(1);
    return answer;
  };
  const rest = await whileUnconfirmed('/rest/a', 'commit', () => post(app, { quota: 'alice', files: ['/rest/a'] }));
  expect([rest.status, rest.headers.get('retry-after'), rest.body]).toEqual([500, null, errorBody(UNCONFIRMED)]);
  const query = 'mutation { createRequest(input: { quota: "alice", files: ["/graphql/a"] }) { errors { message } } }';
  const { body } = await whileUnconfirmed('/graphql/a', 'answer', () => sendGraphql(app, { query }));
  expect(body.errors?.map(({ message, extensions }) => [message, extensions])).toEqual([
    [UNCONFIRMED, { code: 'UNCONFIRMED' }],
  ]);
  const args = ['request', '--quota', 'alice', '--pattern', '/command/a'];
  const client = { env: { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token } };
  const command = await whileUnconfirmed('/command/a', 'commit', () => runCli(args, client));
  expect(command).toEqual({ code: 1, stdout: '', stderr: `tapegate: ${UNCONFIRMED}\n` });
  expect(lines.filter((line) => !line.startsWith('database '))).toEqual([]);
});

test('while the database refuses connections, every request gets 503, and the log says so once', async () => {
  await relay.refuse();
  await waitUntilNotReady(app);
  await expectUnavailable(app);
  await relay.accept();
  await waitUntilReady(app);
  expect(await statusOf('/quota/alice')).toBe(200);
  expect(lines).toEqual([
    expect.stringMatching(/^database lost \{"reason":"connect ECONNREFUSED 127\.0\.0\.1:\d+"\}$/),
    expect.stringMatching(/^database back/),
  ]);
});

test('broken connections are replaced, and the database does not count as lost', async () => {
  await breakConnections();
  await waitFor('an answer', async () => (await statusOf('/quota/alice')) === 200);
  await waitUntilReady(app);
  expect(lines).toEqual([]);
});

test('a connection that breaks while it sends a statement reports only that the database does not answer', async () => {
  const { pool } = app.ctx.db;
  const broken = () => Object.assign(new Error('write EPIPE'), { code: 'EPIPE', syscall: 'write' });
  pool.once('acquire', (client) => process.nextTick(() => destroy(client as Client, broken())));
  await expect(pool.query('SELECT pg_sleep(1)')).rejects.toThrow(AWAY);
});

test('without a free descriptor, requests that need a new connection get 503, and the gateway stays ready', async () => {
  const { answers } = await whileLocked(app, 'LOCK TABLE quota IN ACCESS EXCLUSIVE MODE', async () => {
    isExhausted = true;
    const answers = Array.from({ length: 30 }, () => get(app, '/quota/alice'));
    await waitFor('a refused connection', async () => refused > 0);
    return { answers };
  });
  const bodies = new Map((await Promise.all(answers)).map(({ status, body }) => [status, body]));
  expect([...bodies.keys()].sort()).toEqual([200, 503]);
  expect(bodies.get(503)).toEqual(errorBody('too many open files: try again later'));
  // the gateway's check of the database needs a new connection as well
  const before = refused;
  await breakConnections();
  await waitFor('more refused connections', async () => refused > before + 3);
  expect(await isReady(app)).toBe(true);
  await waitFor('an answer', async () => (await statusOf('/quota/alice')) === 200);
  isExhausted = false;
  await waitFor('an answer to each request', async () => {
    const statuses = await Promise.all(Array.from({ length: 30 }, () => statusOf('/quota/alice')));
    return statuses.every((status) => status === 200);
  });
  expect(lines.filter((line) => line.startsWith('database '))).toEqual([]);
});

const waitForUnmount = () =>
  waitFor('the drive to unmount', async () => library.log.some(({ what }) => what === 'unmount'));

test('a lease expires while the database hangs, and the file is restored afterwards', async () => {
  await addTaped(app.ctx, library, [{ path: '/hangs/a', volume: 'HANGS' }]);
  const reads = holdReads(library);
  const engine = await startEngine(app.ctx, library, { drainMs: 0, leaseSeconds: 1 });
  const id = await makeRequest(app, { quota: 'alice', patterns: '/hangs/' });
  await reads.begun();
  relay.freeze();
  await waitForUnmount();
  relay.thaw();
  reads.open();
  await waitUntilReady(app);
  expect(await waitForState(app, id, 'COMPLETED')).toMatchObject({ filesOnDisk: 1, filesFailed: 0 });
  await engine.stop();
});

test('a file that cannot be put in place because the database is lost does not count as failed', async () => {
  await addTaped(app.ctx, library, [{ path: '/gone/a', volume: 'GONE' }]);
  const reads = holdReads(library);
  const log = pino({ level: 'warn' }, { write: (line: string) => void lines.push(JSON.parse(line).msg) });
  const engine = await startEngine({ ...app.ctx, log }, library, { drainMs: 0, leaseSeconds: 30 });
  await makeRequest(app, { quota: 'alice', patterns: '/gone/' });
  await reads.begun();
  relay.freeze();
  await waitFor('the database to be lost', async () => lines.some((line) => line.startsWith('database lost')));
  reads.open();
  await waitForUnmount();
  relay.thaw();
  await waitUntilReady(app);
  await engine.stop();
  expect(lines.filter((line) => line.startsWith('recall failed'))).toEqual([]);
});

test('an import may take longer than a statement', async () => {
  async function* readSlowly() {
    for (const line of [1, 2, 3]) {
      await app.ctx.db.pool.query('SELECT pg_sleep(0.4)');
      yield buildRow({ line, path: `/slow/${line}` });
    }
  }
  const strict = await startBeside(app, { database: { statementMs: 1000 } });
  expect(await importRows(strict.ctx, readSlowly())).toMatchObject({ added: 3, updated: 0 });
  await strict.close();
});

test('a process can be stopped while the database hangs', async () => {
  const other = await startApp({ through: relay.through, library, database: { lostMs: 1000 } });
  expect((await get(other, '/files')).status).toBe(200);
  relay.freeze();
  try {
    await other.close();
  } finally {
    relay.thaw();
  }
  await waitUntilReady(app);
});

test('while the database hangs, a start with its engine processes answers, and logs two lines altogether', async () => {
  const { rest, command, quota, logged } = await hangingStart;
  expect(rest).toMatchObject({ status: 503, body: errorBody(AWAY) });
  expect(command).toEqual({ code: 4, stdout: '', stderr: `tapegate: ${AWAY}\n` });
  expect([quota, logged]).toEqual(['alice', ['database lost', 'database back']]);
});

/**
 * Starts a gateway with engine processes, blocks the database until the gateway considers it lost, and stops the
 * gateway.
 */
async function startOnHangingDatabase() {
  const database = await createDatabase();
  const own = await startDatabaseRelay(database.connection);
  const { user, port } = own.through(database.connection);
  const env = {
    DATABASE_URL: `postgresql://${user}@127.0.0.1:${port}/${database.connection.database}`,
    ...{ DATA_DIR: makeTempDir(), DRIVES: '1', DEMO: 'off' },
  };
  const server = await startServer('start', { env });
  await runCli(['quota', 'set', 'alice', '--size', '1G'], { env });
  const id = await makeRequest(server, { quota: 'alice', patterns: '/none/' });
  own.freeze();
  await waitUntilNotReady(server);
  const rest = await waitFor('a refusal', async () => {
    const answer = await get(server, '/quota/alice');
    return answer.status === 503 && answer;
  });
  const command = await runCli(['requests'], { env: { TAPEGATE_URL: server.url } });
  own.thaw();
  await waitUntilReady(server);
  const { quota } = await readRequest(server, id);
  const lines = (await stop(server)).stderr.split('\n').filter((line) => line !== '');
  await own.close();
  await database.drop();
  return { rest, command, quota, logged: lines.map((line) => JSON.parse(line).msg) };
}
