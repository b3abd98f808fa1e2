/** Statements that are prepared by name on connections which live longer than what was prepared. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { prepared } from '../../src/database/prepared.js';
import { sql } from '../../src/database/sql.js';
import { transaction } from '../../src/database/transaction.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { get, makeRequest } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let id: number;
beforeAll(async () => {
  app = await startApp({ database: { poolSize: 1 } }); // so that what one has prepared the next one meets
  await addQuota(app.ctx, 'alice', 10_000n);
  await addFiles(app.ctx, [{ path: '/a/one.nc' }]);
  id = await makeRequest(app, { quota: 'alice', files: ['/a/one.nc', '/a/two.nc'] });
});
afterAll(() => app.close());

const namesOf = async () => {
  const { rows } = await app.ctx.db.pool.query<{ name: string; statement: string }>(
    `SELECT name, statement FROM pg_prepared_statements WHERE name LIKE 'tapegate%' ORDER BY prepare_time`,
  );
  return rows;
};

test('a request that is read again and again is prepared once', async () => {
  const first = await get(app, `/requests/${id}`);
  const names = await namesOf();
  for (let n = 0; n < 8; n++) expect((await get(app, `/requests/${id}`)).text).toBe(first.text);
  expect(first.status).toBe(200);
  expect(names.filter(({ statement }) => statement.includes('any_hold'))).toHaveLength(1);
  expect(await namesOf()).toEqual(names);
});

test('a migration that changes the type of a column under a running gateway fails nothing', async () => {
  const before = await get(app, `/requests/${id}`);
  for (const type of ['varchar(300)', 'text']) {
    await app.ctx.db.pool.query(`ALTER TABLE request ALTER COLUMN label TYPE ${type}`);
    for (let n = 0; n < 2; n++) {
      const { status, text } = await get(app, `/requests/${id}`);
      expect([status, text]).toEqual([200, before.text]);
    }
  }
});

test('what somebody between takes away is prepared again', async () => {
  const before = await get(app, `/requests/${id}`);
  await app.ctx.db.pool.query('DEALLOCATE ALL');
  expect(await get(app, `/requests/${id}`)).toMatchObject({ status: 200, text: before.text });
  await app.ctx.db.pool.query('DISCARD ALL');
  expect(await get(app, `/requests/${id}`)).toMatchObject({ status: 200, text: before.text });
});

test('a connection that is made anew prepares anew', async () => {
  const before = await get(app, `/requests/${id}`);
  await app.ctx.db.streamPool.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%any_hold%'`,
  );
  await waitFor('the connection to be gone', async () => app.ctx.db.pool.totalCount === 0);
  expect(await get(app, `/requests/${id}`)).toMatchObject({ status: 200, text: before.text });
});

test('a search by a date is prepared once for all dates, and again where somebody between takes it away', async () => {
  const search = async (date: string) => (await get(app, `/files?match=/${date}`)).body;
  await addFiles(app.ctx, [{ path: '/a/20200102T0304_1.nc' }, { path: '/a/20200102T0506_1.nc' }]);
  for (const date of ['20200102T0304', '20200102T0506', '20200102T0607']) {
    const count = date === '20200102T0607' ? 0 : 1;
    expect(await search(date)).toMatchObject([{ count }]);
    expect((await namesOf()).filter(({ statement }) => statement.includes('path_words'))).toHaveLength(1);
  }
  for (const command of ['DEALLOCATE ALL', 'DISCARD ALL']) {
    await app.ctx.db.pool.query(command);
    expect(await search('20200102T0304')).toMatchObject([{ count: 1 }]);
  }
  const { rows } = await app.ctx.db.pool.query('SHOW plan_cache_mode'); // what held for the search holds no longer
  expect(rows).toEqual([{ plan_cache_mode: 'auto' }]);
});

const labelOf = () => prepared(sql`SELECT r.label FROM request r WHERE r.id = ${id}::int`);

test('in a transaction it is run again as a whole, and what it did before counts once', async () => {
  const { pool } = app.ctx.db;
  await pool.query(labelOf());
  await pool.query('ALTER TABLE request ALTER COLUMN label TYPE varchar(300)');
  let runs = 0;
  const rows = await transaction(pool, 'test', async (tx) => {
    runs++;
    await tx.query(sql`UPDATE quota SET notes = notes || 'x' WHERE "user" = 'alice'`);
    return await tx.query(labelOf());
  });
  const { rows: quotas } = await pool.query(`SELECT notes FROM quota WHERE "user" = 'alice'`);
  expect([rows, runs, quotas]).toEqual([[{ label: '/a/one.nc' }], 2, [{ notes: 'x' }]]);
});

test('what fails for a reason of its own is told, and not done again', async () => {
  const divide = (by: number) => prepared(sql`SELECT 1 / ${by}::int AS quotient`);
  const { pool } = app.ctx.db;
  expect((await pool.query(divide(1))).rows).toEqual([{ quotient: 1 }]);
  await expect(pool.query(divide(0))).rejects.toMatchObject({ code: '22012' });
  await expect(pool.query(prepared(sql`SELECT nothing FROM quota WHERE id = ${1}::int`))).rejects.toMatchObject({
    code: '42703',
  });
  expect((await pool.query(divide(1))).rows).toEqual([{ quotient: 1 }]);
});
