/**
 * Planner settings for statements that look rows up by key. PostgreSQL's statistics may be outdated or missing, and are
 * averages: requests contain two files or a million. With them, PostgreSQL reads ten million rows for two. For 200,000
 * files, lookups take 10 to 20 % longer than reading the tables once.
 */
import type pg from 'pg';
import { queryWith, setLocally } from './pipeline.js';
import { prepared } from './prepared.js';
import type { Sql } from './sql.js';
import type { Transaction } from './transaction.js';

const [on, off] = ['on', 'off'];

/**
 * Before version 18 a disabled plan node costs 10^10 if there is no other way, as for a temporary table without an
 * index. At such a cost PostgreSQL compiles the plan, which takes fifty times as long as running it.
 */
const uncompiled = { jit: off };

/**
 * For statements that look up rows by key, until `plannedFreely` or the commit, regardless of the row count that PostgreSQL expects.
 * A generic plan avoids planning for each value, which takes several times as long as running. Bitmap scans are off
 * because the trigram index seems cheap for a path before the first ANALYZE; it would scan all pending entries for each
 * path.
 */
export const plannedByKeys = () =>
  prepared(
    setLocally({
      plan_cache_mode: 'force_generic_plan',
      enable_nestloop: on,
      enable_hashjoin: off,
      enable_mergejoin: off,
      enable_seqscan: off,
      enable_bitmapscan: off,
      ...uncompiled,
    }),
  );

/**
 * Returns a transaction that looks rows up by key from here on. All its statements are prepared, so their text must not
 * depend on values. Use it instead of `tx`, also to record events.
 */
export function byKeys(tx: Transaction): Transaction {
  tx.send(plannedByKeys());
  return {
    ...tx,
    query: (statement) => tx.query(prepared(statement)),
    send: (statement) => tx.send(prepared(statement)),
  };
}

/** Returns the rows of one such statement, in one round trip. */
export async function queryByKeys<Row extends object>(pool: pg.Pool, statement: Sql): Promise<Row[]> {
  return await queryWith<Row>(pool, plannedByKeys(), prepared(statement));
}

/** From here on, back to PostgreSQL's defaults. */
export const plannedFreely = () =>
  prepared(
    setLocally({
      plan_cache_mode: 'auto',
      enable_nestloop: on,
      enable_hashjoin: on,
      enable_mergejoin: on,
      enable_seqscan: on,
      enable_bitmapscan: on,
    }),
  );
