/** Prepared statements keep working when their connection or tables change. */
import { expect, test } from 'vitest';
import { addFiles, addQuota } from '../support/factories.js';
import { get, makeRequest } from '../support/rest.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

let id: number;
// one connection, so that each request finds the statements that the request before has prepared
const app = useApp({ database: { poolSize: 1 } }, async () => {
  await addQuota(app.ctx, 'alice', 10_000n);
  await addFiles(app.ctx, [{ path: '/a/one.nc' }]);
  id = await makeRequest(app, { quota: 'alice', files: ['/a/one.nc', '/a/two.nc'] });
});

const namesOf = async () => {
  const { rows } = await app.ctx.db.pool.query<{ name: string; statement: string }>(
    `SELECT name, statement FROM pg_prepared_statements WHERE name LIKE 'tapegate%' ORDER BY prepare_time`,
  );
  return rows;
};

test('a request that is read repeatedly is prepared once, and again when the statement, its types or the connection have gone', async () => {
  const { pool } = app.ctx.db;
  const first = await get(app, `/requests/${id}`);
  const names = await namesOf();
  for (let n = 0; n < 8; n++) expect((await get(app, `/requests/${id}`)).text).toBe(first.text);
  expect(first.status).toBe(200);
  expect(names.filter(({ statement }) => statement.includes('to_json(l.path)'))).toHaveLength(1);
  expect(await namesOf()).toEqual(names);
  for (const change of [
    'ALTER TABLE request ALTER COLUMN label TYPE varchar(300)',
    'ALTER TABLE request ALTER COLUMN label TYPE text',
    'DEALLOCATE ALL',
    'DISCARD ALL',
  ]) {
    await pool.query(change);
    const answers = [await get(app, `/requests/${id}`), await get(app, `/requests/${id}`)];
    for (const { status, text } of answers) expect([change, status, text]).toEqual([change, 200, first.text]);
  }
  await app.ctx.db.streamPool.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%to_json(l.path)%'`,
  );
  await waitFor('the connection to be gone', async () => pool.totalCount === 0);
  expect(await get(app, `/requests/${id}`)).toMatchObject({ status: 200, text: first.text });
});

test('a search by date is prepared once for all dates, and again when the statement has gone', async () => {
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
  const { rows } = await app.ctx.db.pool.query('SHOW plan_cache_mode'); // the search restores this setting
  expect(rows).toEqual([{ plan_cache_mode: 'auto' }]);
});
