/** The cost of a small request does not depend on large requests. */
import { expect, test } from 'vitest';
import { addQuota } from '../support/factories.js';
import { makeRequest } from '../support/rest.js';
import { useApp } from '../support/use-app.js';

const app = useApp({ database: { poolSize: 1 } }, async () => {
  await addQuota(app.ctx, 'alice', 10n ** 15n);
});

async function countRead(): Promise<number> {
  await app.ctx.db.pool.query('SELECT pg_stat_force_next_flush()');
  const { rows } = await app.ctx.db.pool.query<{ read: bigint }>(
    `SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint AS read FROM pg_stat_user_tables WHERE relname IN ('request_file', 'tape_file')`,
  );
  return Number(rows[0]?.read);
}

test('a request for two files reads few rows, however many others requested', async () => {
  const post = () => makeRequest(app, { quota: 'alice', files: ['/p/1', '/p/2'] });
  for (const statement of [
    `INSERT INTO tape_file (path, size, stage) SELECT '/p/' || n, n, 'ONTAPE' FROM generate_series(1, 10000) n`,
    `INSERT INTO request (quota_id, pattern, label, request_date, retention, made_by, state)
       SELECT id, '', 'large', now(), now() + interval '1 day', 'alice', 'EXPIRED' FROM quota, generate_series(1, 5)`,
    `INSERT INTO request_file (request_id, file_id, ordinal, size) SELECT r.id, f.id, f.id, 1 FROM request r, tape_file f`,
    'ANALYZE',
  ]) {
    await app.ctx.db.pool.query(statement);
  }
  for (let n = 0; n < 8; n++) await post();
  const before = await countRead();
  await post();
  expect((await countRead()) - before).toBeLessThan(1000);
});
