/** A process that may open no further connection, and the database that it has. */
import net from 'node:net';
import { Duplex } from 'node:stream';
import type { ClientConfig } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { whileLocked } from '../support/locks.js';
import { errorBody, get } from '../support/rest.js';
import { isReady } from '../support/server.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let isExhausted = false;
let refused = 0;

/** As a socket is that cannot be had: the error comes after its caller listens. */
function noSocket(): Duplex {
  refused++;
  const socket = new Duplex({ read: () => {}, write: (_chunk, _encoding, done) => done() });
  const none = () => {};
  const error = Object.assign(new Error('connect EMFILE'), { code: 'EMFILE', syscall: 'connect' });
  setImmediate(() => socket.destroy(error));
  return Object.assign(socket, { connect: none, setNoDelay: none, setKeepAlive: none, ref: none, unref: none });
}

beforeAll(async () => {
  const through = (connection: ClientConfig) => ({
    ...connection,
    stream: () => (isExhausted ? noSocket() : new net.Socket()) as net.Socket,
  });
  app = await startApp({ through });
  await addQuota(app.ctx, 'alice', 1000n);
});
afterAll(() => app.close());

test('without a descriptor for a connection the database is there: what needs one is told why, and all else goes on', async () => {
  const { answers } = await whileLocked(app, 'LOCK TABLE quota IN ACCESS EXCLUSIVE MODE', async () => {
    isExhausted = true;
    const answers = Array.from({ length: 30 }, () => get(app, '/quota/alice'));
    await waitFor('one to be refused', async () => refused > 0);
    return { answers };
  });
  const statuses = new Map<number, unknown>();
  for (const { status, body } of await Promise.all(answers)) statuses.set(status, body);
  expect(statuses.get(503)).toEqual(errorBody('the server has too many files open: try again later'));
  expect([...statuses.keys()].sort()).toEqual([200, 503]);
  // its own sign of life as well has to find a new connection
  const before = refused;
  await app.ctx.db.pool.query(
    'SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()',
  );
  await waitFor('it to be looked for again and again', async () => refused > before + 3);
  expect(await isReady(app)).toBe(true);
  await waitFor('the one that is left to be used', async () => (await get(app, '/quota/alice')).status === 200);
  isExhausted = false;
  const answered = await waitFor('all to be answered', async () => {
    const all = await Promise.all(Array.from({ length: 30 }, () => get(app, '/quota/alice')));
    return all.every(({ status }) => status === 200);
  });
  expect(answered).toBe(true);
});
