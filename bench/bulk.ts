/**
 * Requests of FILES (100,000) files are made, cancelled and expired, beside the set operations alone, in one run: with fresh statistics of the
 * tables, with those from when they were nearly empty, and with none. ROUNDS (3) of each, medians.
 *
 *   npm run compile && node dist/bench/bulk.js
 */
import type { Context } from '../src/context.js';
import { raw, sql } from '../src/database/sql.js';
import { transaction } from '../src/database/transaction.js';
import { setQuota } from '../src/operations/quotas/quotas.js';
import { createRequest } from '../src/operations/requests/create.js';
import { cancelRequest, expireRequests } from '../src/operations/requests/ends.js';
import { inTurns, tellFigure } from './figures.js';
import { seconds, withBench } from './kit.js';

const files = Number(process.env.FILES ?? 100_000);
const rounds = Number(process.env.ROUNDS ?? 3);
const TABLES = ['tape_file', 'request', 'hold', 'recall', 'event', 'quota'];

/** Each is given the tables as they are without requests, and leaves what the planner is to believe of them. */
const beliefs = {
  'fresh statistics': async ({ db }: Context) => void (await db.pool.query(`ANALYZE ${TABLES.join(', ')}`)),
  'statistics of nearly empty tables': async () => {}, // as they were made before anything was there
  'no statistics': async ({ db }: Context) => {
    for (const table of TABLES) {
      await db.pool.query(`SELECT pg_clear_relation_stats('public', '${table}')`);
      await db.pool.query(
        `SELECT pg_clear_attribute_stats('public', '${table}', attname::text, false) FROM pg_attribute
         WHERE attrelid = '${table}'::regclass AND attnum > 0 AND NOT attisdropped`,
      );
    }
  },
};

/** The least by which a request comes to be: its rows, those of its holds and recalls, its charge, its counts, its event. */
async function makeBare(ctx: Context, paths: string[]): Promise<number> {
  return await transaction(ctx.db.pool, 'bench', async (tx) => {
    const [made] = await tx.query<{ id: number }>(
      sql`INSERT INTO request (quota_id, label, request_date, retention) SELECT id, 'bare', now(), now() + interval '1 day' FROM quota RETURNING id`,
    );
    const id = made?.id ?? 0;
    await tx.query(
      sql`INSERT INTO hold (request_id, file_id, ordinal, size)
          SELECT ${id}::int, f.id, l.n, f.size FROM unnest(${paths}::text[]) WITH ORDINALITY AS l (path, n) JOIN tape_file f ON f.path = l.path`,
    );
    await tx.query(
      sql`INSERT INTO recall (file_id, volume_id, position, size, created_at)
          SELECT f.id, f.volume_id, f.position, f.size, now() FROM hold h JOIN tape_file f ON f.id = h.file_id
          WHERE h.request_id = ${id} AND f.stage = 'ONTAPE' ORDER BY f.id ON CONFLICT DO NOTHING`,
    );
    await tx.query(
      sql`UPDATE request SET (files_total, bytes_total) = (SELECT count(*), sum(size) FROM hold WHERE request_id = ${id}) WHERE id = ${id}`,
    );
    await tx.query(
      sql`UPDATE quota SET used = used + (SELECT bytes_total FROM request WHERE id = ${id}), open_requests = open_requests + 1`,
    );
    await tellBare(id, tx);
    return id;
  });
}

async function endBare(ctx: Context, id: number): Promise<void> {
  await transaction(ctx.db.pool, 'bench', async (tx) => {
    await tx.query(sql`UPDATE request SET state = 'CANCELLED' WHERE id = ${id}`);
    await tx.query(
      sql`UPDATE quota SET used = used - (SELECT bytes_total FROM request WHERE id = ${id}), open_requests = open_requests - 1`,
    );
    await tx.query(
      sql`DELETE FROM recall c USING hold h WHERE h.request_id = ${id} AND c.file_id = h.file_id AND c.state = 'WAITING'
            AND NOT EXISTS (SELECT FROM live_hold o WHERE o.file_id = c.file_id)`,
    );
    await tellBare(id, tx);
  });
}

async function tellBare(id: number, tx: Parameters<Parameters<typeof transaction>[2]>[0]): Promise<void> {
  await tx.query(
    sql`INSERT INTO event (at, request_ids, request_id, state, files_total, files_on_disk, files_failed, bytes_total, bytes_on_disk)
        SELECT now(), '{}', id, state, files_total, files_on_disk, files_failed, bytes_total, bytes_on_disk FROM request WHERE id = ${id}`,
  );
}

/** Each round begins with the same tables, as if the others had never been. */
async function clear({ db }: Context): Promise<void> {
  await db.pool.query('TRUNCATE hold, recall, event, awaited_path, request CASCADE');
  await db.pool.query('UPDATE quota SET used = 0, open_requests = 0');
}

async function measure(ctx: Context, belief: keyof typeof beliefs, paths: string[]): Promise<void> {
  const spent = { make: [] as number[], cancel: [] as number[], expire: [] as number[] };
  const bare = { make: [] as number[], end: [] as number[] };
  const lay = async (which: keyof typeof beliefs) => {
    await clear(ctx);
    await ctx.db.pool.query(`ANALYZE ${TABLES.join(', ')}`);
    await beliefs[which](ctx);
    await ctx.db.pool.query('CHECKPOINT');
  };
  // what is believed of the holds and recalls is of before they were made, unless it is fresh
  const renew = async (which: keyof typeof beliefs) => {
    if (which === 'fresh statistics') await ctx.db.pool.query(`ANALYZE ${TABLES.join(', ')}`);
    await ctx.db.pool.query('CHECKPOINT');
  };
  await inTurns(
    {
      ours: async () => {
        for (const way of ['cancel', 'expire'] as const) {
          let id = 0;
          await lay(belief);
          const make = await seconds(async () => {
            id = await createRequest(ctx, { quota: 'alice', files: paths });
          });
          await renew(belief);
          if (way === 'expire') await ctx.db.pool.query(raw(`UPDATE request SET retention = now() - interval '1 day'`));
          spent.make.push(make);
          spent[way].push(await seconds(() => (way === 'cancel' ? cancelRequest(ctx, id) : expireRequests(ctx))));
        }
        return 0;
      },
      bare: async () => {
        let id = 0;
        await lay('fresh statistics');
        const make = await seconds(async () => {
          id = await makeBare(ctx, paths);
        });
        bare.make.push(make);
        await renew('fresh statistics');
        bare.end.push(await seconds(() => endBare(ctx, id)));
        return 0;
      },
    },
    rounds,
  );
  const middle = (all: number[]) => all.toSorted((a, b) => a - b)[Math.floor(all.length / 2)] ?? Number.NaN;
  const common = { beside: 'the set operations', unit: 's', isCost: true, bound: 2 };
  const work = `${files} files, ${belief}`;
  tellFigure({ work: `POST of ${work}`, ours: middle(spent.make), reference: middle(bare.make), ...common });
  tellFigure({ work: `cancel of ${work}`, ours: middle(spent.cancel), reference: middle(bare.end), ...common });
  tellFigure({ work: `expiry of ${work}`, ours: middle(spent.expire), reference: middle(bare.end), ...common });
}

await withBench(async (ctx) => {
  const paths = Array.from({ length: files }, (_, n) => `/bench/${Math.floor(n / 1000)}/file-${n}.nc`);
  for (const table of TABLES) await ctx.db.pool.query(`ALTER TABLE ${table} SET (autovacuum_enabled = off)`);
  await setQuota(ctx, { user: 'alice', size: 10n ** 15n });
  await ctx.db.pool.query(
    sql`INSERT INTO tape_file (path, size, stage) SELECT p, 1000, 'ONTAPE' FROM unnest(${paths}::text[]) AS p`,
  );
  for (const belief of Object.keys(beliefs) as (keyof typeof beliefs)[]) await measure(ctx, belief, paths);
});
