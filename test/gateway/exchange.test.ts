/** Transactions whose statements share round trips. */
import type { Socket } from 'node:net';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { prepared } from '../../src/database/prepared.js';
import { sql } from '../../src/database/sql.js';
import { transaction } from '../../src/database/transaction.js';
import { UnconfirmedError } from '../../src/errors.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { makeRequest } from '../support/rest.js';
import { recordStatements } from '../support/statements.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp({ database: { poolSize: 1 } }); // so that each request finds what the last one has prepared
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addFiles(app.ctx, [{ path: '/a/one.nc' }, { path: '/a/two.nc' }]);
  await app.ctx.db.pool.query('CREATE TABLE tried (n int PRIMARY KEY)');
});
afterAll(() => app.close());

const insert = (n: number) => sql`INSERT INTO tried VALUES (${n})`;

async function readTried(): Promise<number[]> {
  const { rows } = await app.ctx.db.pool.query<{ n: number }>('SELECT n FROM tried ORDER BY n');
  return rows.map(({ n }) => n);
}

const post = () => makeRequest(app, { quota: 'alice', files: ['/a/one.nc', '/a/two.nc', '/a/none.nc'] });

test('a request for listed files takes three round trips', async () => {
  await post();
  const exchanges = await recordStatements(post);
  expect(exchanges.map(({ text }) => text.split(';\n').length)).toEqual([3, 2, 8]);
});

test('sent statements run in order, and before the commit more may be sent', async () => {
  const seen = await transaction(app.ctx.db.pool, 'test', async (tx) => {
    tx.send(insert(1));
    tx.send(prepared(sql`UPDATE tried SET n = n + ${1}`));
    const rows = await tx.query<{ n: number }>(sql`SELECT n FROM tried`);
    tx.send(prepared(sql`UPDATE tried SET n = n + ${1}`));
    tx.beforeCommit('first', async () => {
      tx.send(insert(5));
      tx.beforeCommit('second', async () => tx.send(sql`INSERT INTO tried SELECT max(n) + 1 FROM tried`));
    });
    return rows;
  });
  expect(seen).toEqual([{ n: 2 }]);
  expect(await readTried()).toEqual([3, 5, 6]);
  await app.ctx.db.pool.query('TRUNCATE tried');
});

test('if a sent statement fails, the transaction fails with its error and stores nothing', async () => {
  for (const last of ['with a question', 'with the commit']) {
    const failing = transaction(app.ctx.db.pool, 'test', async (tx) => {
      tx.send(insert(1));
      tx.send(insert(1));
      tx.send(insert(2));
      if (last === 'with a question') await tx.query(sql`SELECT 1`);
    });
    await expect(failing).rejects.toMatchObject({ code: '23505' });
    expect(await readTried()).toEqual([]);
  }
});

function openPool(): pg.Pool {
  const pool = new pg.Pool({ ...app.ctx.db.config, max: 1, Client: app.ctx.db.Client });
  pool.on('error', () => {});
  return pool.on('connect', (client) => client.on('error', () => {}));
}

const socketsOf = (pool: pg.Pool) =>
  (pool as unknown as { _clients: { connection: { stream: Socket } }[] })._clients.map(
    ({ connection }) => connection.stream,
  );

test('a commit without a response is reported as unconfirmed, and not repeated', async () => {
  const own = openPool();
  let runs = 0;
  const broken = transaction(own, 'test', async (tx) => {
    runs++;
    await tx.query(sql`SELECT 1`);
    tx.send(insert(runs));
    tx.send(sql`SELECT pg_terminate_backend(pg_backend_pid())`);
  });
  // the server has reported its end before the commit
  await expect(broken).rejects.toSatisfy((error) => !(error instanceof UnconfirmedError));
  const cut = transaction(own, 'test', async (tx) => {
    runs++;
    await tx.query(sql`SELECT 1`);
    tx.send(sql`SELECT pg_sleep(30)`);
  });
  const ended = expect(cut).rejects.toBeInstanceOf(UnconfirmedError);
  const sleeping = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`;
  await waitFor('the commit to wait', async () => (await app.ctx.db.pool.query(sleeping)).rowCount === 1);
  for (const socket of socketsOf(own)) socket.destroy();
  await ended;
  expect(runs).toBe(2);
  expect(await readTried()).toEqual([]);
  await own.end();
});

test('a commit whose response a pooler has lost is reported as unconfirmed', async () => {
  const own = openPool();
  const done = transaction(own, 'test', async (tx) => {
    await tx.query(sql`SELECT 1`);
    tx.send(insert(1));
    tx.send(insert(2));
    socketsOf(own).forEach(loseAnswers);
  });
  await expect(done).rejects.toBeInstanceOf(UnconfirmedError);
  expect(await readTried()).toEqual([1, 2]);
  await own.end();
  await app.ctx.db.pool.query('TRUNCATE tried');
});

/** Replaces the next response with the error of a PgBouncer that has lost its server. */
function loseAnswers(stream: Socket): void {
  const [driver] = stream.listeners('data') as ((bytes: Buffer) => void)[];
  stream.removeAllListeners('data');
  stream.once('data', () => {
    const fields = Buffer.from('SFATAL\0VFATAL\0C08P01\0Mserver conn crashed?\0\0');
    const head = Buffer.from('E....');
    head.writeInt32BE(fields.length + 4, 1);
    driver?.call(stream, Buffer.concat([head, fields]));
    stream.destroy();
  });
}
