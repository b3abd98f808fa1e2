/** Several statements in one round trip, and the transactions that are made of them. */
import type { Socket } from 'node:net';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { prepared } from '../../src/database/prepared.js';
import { sql } from '../../src/database/sql.js';
import { transaction } from '../../src/database/transaction.js';
import { UnconfirmedError } from '../../src/errors.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { get, makeRequest } from '../support/rest.js';
import { recordStatements } from '../support/statements.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp({ database: { poolSize: 1 } }); // so that what one has prepared the next one meets
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

test('a request of listed files is made in three round trips', async () => {
  await post();
  const exchanges = await recordStatements(post);
  expect(exchanges.map(({ text }) => text.split(';\n').length)).toEqual([3, 2, 8]);
});

test('what is sent is run in its order, with what comes next, and what follows sees it', async () => {
  const seen = await transaction(app.ctx.db.pool, 'test', async (tx) => {
    tx.send(insert(1));
    tx.send(prepared(sql`UPDATE tried SET n = n + ${1}`));
    const rows = await tx.query<{ n: number }>(sql`SELECT n FROM tried`);
    tx.send(prepared(sql`UPDATE tried SET n = n + ${1}`));
    return rows;
  });
  expect(seen).toEqual([{ n: 2 }]);
  expect(await readTried()).toEqual([3]);
  await app.ctx.db.pool.query('TRUNCATE tried');
});

test('what is to come before the commit may have more come after it', async () => {
  await transaction(app.ctx.db.pool, 'test', async (tx) => {
    tx.beforeCommit('first', async () => {
      tx.send(insert(1));
      tx.beforeCommit('second', async () => tx.send(sql`INSERT INTO tried SELECT n + 1 FROM tried`));
    });
  });
  expect(await readTried()).toEqual([1, 2]);
  await app.ctx.db.pool.query('TRUNCATE tried');
});

test('of what is sent with the commit all is done or nothing, and the error is that of the statement', async () => {
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

test('a transaction that asks nothing does nothing', async () => {
  const statements = await recordStatements(() => transaction(app.ctx.db.pool, 'test', async () => {}));
  expect(statements).toEqual([]);
});

test('what is sent with a commit whose answer is missing is told as such, and is not done again', async () => {
  const own = new pg.Pool({ ...app.ctx.db.config, max: 1, Client: app.ctx.db.Client });
  own.on('error', () => {});
  own.on('connect', (client) => client.on('error', () => {}));
  let runs = 0;
  const broken = transaction(own, 'test', async (tx) => {
    runs++;
    await tx.query(sql`SELECT 1`);
    tx.send(insert(runs));
    tx.send(sql`SELECT pg_terminate_backend(pg_backend_pid())`);
  });
  // the server has said that it ended before the commit
  await expect(broken).rejects.toSatisfy((error) => !(error instanceof UnconfirmedError));
  const cut = transaction(own, 'test', async (tx) => {
    runs++;
    const [row] = await tx.query<{ pid: number }>(sql`SELECT pg_backend_pid() AS pid`);
    tx.send(sql`SELECT pg_sleep(30)`);
    setTimeout(() => (own as unknown as { _clients: pg.Client[] })._clients.forEach(destroySocket), 200);
    return row;
  });
  await expect(cut).rejects.toBeInstanceOf(UnconfirmedError);
  expect(runs).toBe(2);
  expect(await readTried()).toEqual([]);
  await own.end();
});

test('a commit whose answer a pooler has lost is told as such, however far the answers had come', async () => {
  const own = new pg.Pool({ ...app.ctx.db.config, max: 1, Client: app.ctx.db.Client });
  own.on('error', () => {});
  own.on('connect', (client) => client.on('error', () => {}));
  const done = transaction(own, 'test', async (tx) => {
    await tx.query(sql`SELECT 1`);
    tx.send(insert(1));
    tx.send(insert(2));
    (own as unknown as { _clients: pg.Client[] })._clients.forEach(loseAnswers);
  });
  await expect(done).rejects.toBeInstanceOf(UnconfirmedError);
  expect(await readTried()).toEqual([1, 2]);
  await own.end();
  await app.ctx.db.pool.query('TRUNCATE tried');
});

/** In place of what comes next it is told what PgBouncer says when its server is gone. */
function loseAnswers(client: pg.Client): void {
  const { stream } = (client as unknown as { connection: { stream: Socket } }).connection;
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

test('a value that cannot be sent fails its transaction and nothing else', async () => {
  const circular: { own?: object } = {};
  circular.own = circular;
  const { now } = performance;
  for (const lateMs of [0, 60_000]) {
    performance.now = () => now.call(performance) + lateMs; // plans are given up before, so that the statements wait for that
    const failing = transaction(app.ctx.db.pool, 'test', async (tx) => {
      tx.send(insert(1));
      await tx.query(sql`SELECT ${circular}::jsonb`);
    });
    await expect(failing).rejects.toThrow('circular');
  }
  performance.now = now;
  expect(await readTried()).toEqual([]);
});

function destroySocket(client: pg.Client): void {
  (client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy();
}

test('requests are made on a connection that has lost what it had prepared, and when a column has another type', async () => {
  await post();
  await app.ctx.db.pool.query('DEALLOCATE ALL');
  await post();
  await app.ctx.db.pool.query('DISCARD ALL');
  await post();
  for (const type of ['varchar(300)', 'text']) {
    await app.ctx.db.pool.query(`ALTER TABLE request ALTER COLUMN label TYPE ${type}`);
    const id = await post();
    expect((await get(app, `/requests/${id}`)).status).toBe(200);
  }
});
