/** Transactions that send several statements in one network round trip. */
import { Socket } from 'node:net';
import pg from 'pg';
import { expect, test } from 'vitest';
import { UnconfirmedError } from '../../src/core/errors.js';
import { queryWithin } from '../../src/db/pipeline.js';
import { prepared } from '../../src/db/prepared.js';
import { raw, type Sql, sql } from '../../src/db/sql.js';
import { transaction } from '../../src/db/transaction.js';
import { addFiles, addQuota } from '../support/factories.js';
import { makeRequest } from '../support/rest.js';
import { recordStatements } from '../support/statements.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

// one connection, so that each request finds the statements that the request before has prepared
const app = useApp({ database: { poolSize: 1 } }, async () => {
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addFiles(app.ctx, [{ path: '/a/one.nc' }, { path: '/a/two.nc' }]);
  await app.ctx.db.pool.query('CREATE TABLE tried (n int PRIMARY KEY)');
});

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
  for (const last of ['with a question', 'with the commit', 'with the commit, after a question']) {
    const failing = transaction(app.ctx.db.pool, 'test', async (tx) => {
      // after this, the answer to BEGIN has arrived
      if (last === 'with the commit, after a question') await tx.query(sql`SELECT 1`);
      tx.send(insert(1));
      tx.send(insert(1));
      tx.send(insert(2));
      if (last === 'with a question') await tx.query(sql`SELECT 1`);
    });
    await expect(failing).rejects.toMatchObject({ code: '23505' });
    expect(await readTried()).toEqual([]);
  }
});

test('after a statement that cannot be sent, nothing is committed', async () => {
  const circle: { own?: unknown } = {};
  circle.own = circle;
  for (const last of ['with a question', 'with the commit']) {
    const failing = transaction(app.ctx.db.pool, 'test', async (tx) => {
      tx.send(insert(1));
      tx.send(sql`INSERT INTO tried VALUES (${circle})`);
      tx.send(insert(2));
      if (last === 'with a question') await tx.query(sql`SELECT 1`);
    });
    await expect(failing).rejects.toThrow(/circular/);
    expect(await readTried()).toEqual([]);
  }
});

interface OwnPool {
  pool: pg.Pool;
  sockets: Socket[];
}

/** Opens a pool whose clients send `replace(query)` instead of `query`. */
function openPool(replace = (query: Sql): Sql | string => query, pipeline = true): OwnPool {
  const sockets: Socket[] = [];
  const stream = () => {
    const socket = new Socket();
    sockets.push(socket);
    return socket;
  };
  class Client extends app.ctx.db.Client {
    // biome-ignore lint/suspicious/noExplicitAny: the overloads of query() cannot be written otherwise
    override query(query: any, ...rest: any[]): any {
      return super.query(replace(query) as never, ...rest);
    }
  }
  const pool = new pg.Pool({ ...app.ctx.db.config, stream, pipeline, max: 1, Client });
  pool.on('error', () => {});
  return { pool: pool.on('connect', (client) => client.on('error', () => {})), sockets };
}

/** Waits for so many turns of the microtask queue; without a number, until input from the database is handled. */
async function pause(turns: number | undefined): Promise<void> {
  if (turns === undefined) return await new Promise((resolve) => setImmediate(resolve));
  for (let n = 0; n < turns; n++) await Promise.resolve();
}

test.each([
  ['without a pipeline', false],
  ['behind a BEGIN that is not answered', true],
])('statements that wait for each other are sent in order, and the COMMIT last: %s', async (_what, pipeline) => {
  const sent: string[] = [];
  const note = (query: Sql) => {
    sent.push(query.text);
    return query;
  };
  const { pool } = openPool(note, pipeline);
  const texts = Array.from({ length: 6 }, (_, n) => `UPDATE tried SET n = n + ${n}`);
  for (const turns of [0, 1, 2, 3, 4, 5, 6, 7, 8, undefined]) {
    sent.length = 0;
    await transaction(pool, 'test', async (tx) => {
      if (!pipeline) await tx.query(raw(texts[0] ?? ''));
      const left = pipeline ? texts : texts.slice(1);
      for (const [n, text] of left.entries()) {
        if (n % 2 === 0) await pause(turns);
        tx.send(raw(text));
      }
      await pause(turns);
    });
    expect([turns, ...sent]).toEqual([turns, 'BEGIN', ...texts, 'COMMIT']);
  }
  await pool.end();
});

test('if BEGIN fails, no statement of the transaction is stored by itself', async () => {
  const { pool, sockets } = openPool((query) => (query.text === 'BEGIN' ? 'SELECT 1/0' : query));
  for (const first of ['a write', 'a question']) {
    const failing = transaction(pool, 'test', async (tx) => {
      if (first === 'a question') tx.send(sql`SELECT 1`);
      tx.send(insert(1));
      await tx.query(insert(2));
    });
    await expect(failing).rejects.toMatchObject({ code: '22012' });
    expect(await readTried()).toEqual([]);
  }
  expect(sockets).toHaveLength(1); // the connection of the failed transaction stays usable
  await pool.end();
});

test('a statement with a time limit fails alone, and stores nothing once it has failed', async () => {
  const { pool } = app.ctx.db;
  const late = queryWithin(pool, sql`INSERT INTO tried SELECT 1 FROM pg_sleep(10)`, 20);
  await expect(late).rejects.toMatchObject({ kind: 'busy', cause: { code: '57014' } });
  await expect(queryWithin(pool, sql`SELECT 1/0`, 1000)).rejects.toMatchObject({ code: '22012' });
  expect(await queryWithin(pool, sql`INSERT INTO tried VALUES (7) RETURNING n`, 1000)).toEqual([{ n: 7 }]);
  expect(await readTried()).toEqual([7]);
  await pool.query('TRUNCATE tried');
});

test('a commit without a response is reported as unconfirmed, and not repeated', async () => {
  const { pool: own, sockets } = openPool();
  let runs = 0;
  const broken = transaction(own, 'test', async (tx) => {
    runs++;
    await tx.query(sql`SELECT 1`);
    tx.send(insert(runs));
    await tx.query(sql`SELECT pg_terminate_backend(pg_backend_pid())`).catch(() => {});
  });
  // the server has reported the end of the connection, so no COMMIT is sent
  await expect(broken).rejects.toSatisfy((error) => !(error instanceof UnconfirmedError));
  const cut = transaction(own, 'test', async (tx) => {
    runs++;
    await tx.query(sql`SELECT 1`);
    tx.send(sql`SELECT pg_sleep(30)`);
  });
  const ended = expect(cut).rejects.toBeInstanceOf(UnconfirmedError);
  const sleeping = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`;
  await waitFor('the commit to wait', async () => (await app.ctx.db.pool.query(sleeping)).rowCount === 1);
  for (const socket of sockets) socket.destroy();
  await ended;
  expect(runs).toBe(2);
  expect(await readTried()).toEqual([]);
  await own.end();
});

test('a commit whose response a pooler has lost is reported as unconfirmed', async () => {
  const { pool: own, sockets } = openPool();
  const done = transaction(own, 'test', async (tx) => {
    await tx.query(sql`SELECT 1`);
    tx.send(insert(1));
    tx.send(insert(2));
    sockets.forEach(loseAnswers);
  });
  await expect(done).rejects.toBeInstanceOf(UnconfirmedError);
  expect(await readTried()).toEqual([1, 2]);
  await own.end();
  await app.ctx.db.pool.query('TRUNCATE tried');
});

/** Replaces all responses, up to the one to COMMIT, with the error of a PgBouncer that has lost its server. */
function loseAnswers(stream: Socket): void {
  const [driver] = stream.listeners('data') as ((bytes: Buffer) => void)[];
  stream.removeAllListeners('data');
  stream.on('data', (bytes: Buffer) => {
    if (!bytes.includes('COMMIT\0')) return;
    const fields = Buffer.from('SFATAL\0VFATAL\0C08P01\0Mserver conn crashed?\0\0');
    const head = Buffer.from('E....');
    head.writeInt32BE(fields.length + 4, 1);
    driver?.call(stream, Buffer.concat([head, fields]));
    stream.destroy();
  });
}
