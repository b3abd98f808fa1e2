/** The time limit of SQL statements, and the operations without this limit. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { importRows } from '../../src/domain/import/import.js';
import { expireRequests } from '../../src/domain/requests/ends.js';
import { startBeside, type TestApp } from '../support/app.js';
import { addQuota, buildRow } from '../support/factories.js';
import { sendGraphql } from '../support/graphql.js';
import { lock, waitForBlocked } from '../support/locks.js';
import { cancel, made, release, update } from '../support/mutations.js';
import { cleanUp, startCli } from '../support/process.js';
import { errorBody, get, makeRequest, post, put } from '../support/rest.js';
import { dumpTables } from '../support/tables.js';
import { makeTempDir } from '../support/temp-dir.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

/** The statement limit of `strict`. Each change of a slow table takes longer. */
const STATEMENT_MS = 700;

/** Only the calls under test have the limit, because other calls may take longer on a busy machine. */
let strict: TestApp;
const app = useApp({}, async () => {
  strict = await startBeside(app, { database: { statementMs: STATEMENT_MS } });
  await addQuota(app.ctx, 'alice', 10_000n);
  await app.ctx.db.pool.query(
    `CREATE FUNCTION be_slow() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(${(1.2 * STATEMENT_MS) / 1000}); RETURN NULL; END $$`,
  );
});
afterAll(() => strict.close());
afterAll(cleanUp);

const TOO_BUSY = 'the database is too busy: try again later';

function expectRefused(answer: Awaited<ReturnType<typeof get>>): void {
  expect([answer.status, answer.headers.get('retry-after'), answer.body]).toEqual([503, '5', errorBody(TOO_BUSY)]);
}

const setQuota = () =>
  sendGraphql(strict, { query: 'mutation { setQuota(input: { user: "alice", size: 5 }) { errors { message } } }' });

/** Runs `work` while each change of a table takes longer than a statement may. */
async function whileSlow<T>(table: string, change: string, work: () => Promise<T>): Promise<T> {
  await app.ctx.db.pool.query(`CREATE TRIGGER slow AFTER ${change} ON ${table} EXECUTE FUNCTION be_slow()`);
  try {
    return await work();
  } finally {
    await app.ctx.db.pool.query(`DROP TRIGGER slow ON ${table}`);
  }
}

test('a request whose statement takes too long, or waits too long for a table or a row, returns 503 and stores nothing', async () => {
  const id = await makeRequest(app, { quota: 'alice', files: ['/a'] });
  const before = await dumpTables(app.ctx);
  const { body } = await whileSlow('quota', 'UPDATE', setQuota);
  expect(body.errors).toMatchObject([{ message: TOO_BUSY, extensions: { code: 'UNAVAILABLE', retryAfterSeconds: 5 } }]);
  expect(await dumpTables(app.ctx)).toEqual(before);
  const unlock = await lock(app, 'LOCK TABLE request IN ACCESS EXCLUSIVE MODE');
  try {
    const answers = await Promise.all([
      get(strict, `/requests/${id}`),
      get(strict, '/quota/alice'),
      post(strict, { quota: 'alice', files: ['/b'] }),
      put(strict, id, { quota: 'alice', label: 'mine' }),
    ]);
    answers.map(expectRefused);
  } finally {
    await unlock();
  }
  const unlockRow = await lock(app, `SELECT FROM quota WHERE "user" = 'alice' FOR UPDATE`);
  try {
    const answers = await Promise.all([
      post(strict, { quota: 'alice', files: ['/c'] }),
      put(strict, id, { quota: 'alice', retention: '2020-01-01' }),
    ]);
    answers.map(expectRefused);
  } finally {
    await unlockRow();
  }
  expect(await dumpTables(app.ctx)).toEqual(before);
  expect((await get(app, `/requests/${id}`)).status).toBe(200);
});

test('operations on many files, and imports, may take longer', async () => {
  const id = await whileSlow('unresolved_path', 'INSERT', () =>
    made(strict, { quota: 'alice', files: ['/long/a', '/long/b'] }),
  );
  await whileSlow('unresolved_path', 'DELETE', () => release(strict, { requestId: id, paths: ['/long/a'] }));
  await whileSlow('request', 'UPDATE', () => cancel(strict, id));
  const revived = await whileSlow('request_file', 'UPDATE', () =>
    update(strict, { requestId: id, retention: '2999-01-01T00:00:00' }),
  );
  expect(revived).toMatchObject({ __typename: 'Request', state: 'COMPLETED' });
  await app.ctx.db.pool.query('UPDATE request SET retention = request_date WHERE id = $1', [id]);
  expect(await whileSlow('quota', 'UPDATE', () => expireRequests(strict.ctx))).toBe(1);
  const result = await whileSlow('tape_file', 'INSERT', () =>
    importRows(strict.ctx, [buildRow({ line: 1, path: '/long/c' })]),
  );
  expect(result).toMatchObject({ added: 1 });
  // afterwards the connections have the limit again
  const { body } = await whileSlow('quota', 'UPDATE', setQuota);
  expect(body.errors).toMatchObject([{ extensions: { code: 'UNAVAILABLE' } }]);
});

test('the statement of an import that is killed while it waits ends', async () => {
  const id = await makeRequest(app, { quota: 'alice', files: ['/killed'] });
  const file = path.join(makeTempDir(), 'catalogue.csv');
  writeFileSync(file, 'path,size,stage,volume,position\n/killed,1,T,V00001,1\n');
  const unlock = await lock(app, `SELECT FROM request WHERE id = ${id} FOR UPDATE`);
  try {
    const { child, ended } = startCli(['import', file], { env: { DATABASE_URL: app.databaseUrl } });
    await waitForBlocked(app, 1);
    child.kill('SIGKILL');
    await ended;
    await waitFor('its statement to end', async () => {
      const { rowCount } = await app.ctx.db.pool.query(
        `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
      );
      return rowCount === 0;
    });
  } finally {
    await unlock();
  }
});
