/**
 * Planner settings for statements that look up rows by key. With outdated or missing statistics, PostgreSQL might
 * choose to read ten million rows to find two rows. For large inputs, key lookups are only a little slower than scans:
 * 10 to 20 % for 200,000 files.
 */
import type pg from 'pg';
import { queryWith, setLocally } from './pipeline.js';
import { prepared } from './prepared.js';
import type { Sql } from './sql.js';
import type { Transaction } from './transaction.js';

const [on, off] = ['on', 'off'];

/**
 * Turns off JIT compilation, which would take fifty times as long as running the statement. Before PostgreSQL 18, a
 * disabled plan node adds 10^10 to a plan's cost, and PostgreSQL compiles plans with a high cost.
 */
const uncompiled = { jit: off };

/**
 * Returns a statement that makes PostgreSQL look up rows by key until the commit, or until the statement
 * `plannedFreely`. Selects generic plans, because planning a statement for each value takes several times as long as
 * running the statement. Turns off bitmap scans, because the planner underestimates the cost of the trigram index
 * before the first ANALYZE.
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
 * Returns a transaction whose later statements look up rows by key. Callers must use the returned transaction instead
 * of `tx`. All statements of the returned transaction are prepared, so the text of a statement must not depend on
 * values.
 */
export function byKeys(tx: Transaction): Transaction {
  tx.send(plannedByKeys());
  return {
    ...tx,
    query: (statement) => tx.query(prepared(statement)),
    send: (statement) => tx.send(prepared(statement)),
  };
}

/** Returns the rows of one statement that looks up rows by key, in one round trip. */
export async function queryByKeys<Row extends object>(pool: pg.Pool, statement: Sql): Promise<Row[]> {
  return await queryWith<Row>(pool, plannedByKeys(), prepared(statement));
}

/** Returns a statement that restores PostgreSQL's default planner settings. */
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
