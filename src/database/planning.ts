/**
 * Of how many rows the statements of a transaction are, told to PostgreSQL by who knows it. By itself it goes by its statistics, which are of
 * before the rows were made, or of none, and by means, where requests hold two files or a million: it looks up a hundred thousand one by
 * one, or reads ten million for two.
 */
import type pg from 'pg';
import { queryWith, setLocally } from './pipeline.js';
import { prepared } from './prepared.js';
import { type Sql, sql } from './sql.js';
import type { Transaction } from './transaction.js';

const [on, off] = ['on', 'off'];

/**
 * Until the commit: before version 18 what is turned off counts as ten thousand million where there is no other way, as for a temporary table
 * without an index, and PostgreSQL compiles what seems to cost as much, which takes fifty times as long as to run it.
 */
const uncompiled = { jit: off };

/**
 * For statements that look rows up by keys, up to `plannedFreely` or the commit: they do that however many rows PostgreSQL expects. What is prepared
 * is planned once for any values, where to plan it for each takes several times as long as to run it. Bitmaps are for sets of rows, and the index of
 * trigrams, which is read by them only, seems cheap for a path as long as nobody has counted anything: for each path it goes through what was added last.
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
 * The transaction, each of whose statements looks rows up by keys from here on, and is prepared: none of its text depends on its values. To be
 * used in place of the one given, also by whoever records events.
 */
export function byKeys(tx: Transaction): Transaction {
  tx.send(plannedByKeys());
  return {
    query: (statement) => tx.query(prepared(statement)),
    send: (statement) => tx.send(prepared(statement)),
    beforeCommit: (key, task) => tx.beforeCommit(key, task),
    afterCommit: (tell) => tx.afterCommit(tell),
  };
}

/** The rows of one such statement by itself, in one round trip. */
export async function queryByKeys<Row extends object>(pool: pg.Pool, statement: Sql): Promise<Row[]> {
  return await queryWith<Row>(pool, plannedByKeys(), prepared(statement));
}

/** From here on as PostgreSQL likes it: what is prepared by the values where that is cheaper, and joined in any way. */
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

/** Not for what is prepared, which stays as it was planned. */
const plannedTogether = () =>
  setLocally({
    plan_cache_mode: 'auto',
    enable_nestloop: off,
    enable_hashjoin: on,
    enable_mergejoin: on,
    enable_seqscan: on,
    enable_bitmapscan: on,
    ...uncompiled,
  });

/** Fewer are always looked up. */
const MANY = 1000;
/** A look-up by a key takes as long as so many rows that are read one after another. */
const ROWS_PER_LOOKUP = 20;
/** The least that one takes. */
const ROW_BYTES = 64;

/**
 * For statements that have to do with so many rows of the tables, up to `plannedFreely` or the commit.
 * @returns whether the tables are read once, which is less work than to look up that many; else it is as with `plannedByKeys`
 */
export async function planFor(
  tx: Transaction,
  rows: number,
  tables: readonly ('hold' | 'tape_file')[],
): Promise<boolean> {
  const isTogether = rows >= MANY && rows * ROWS_PER_LOOKUP * ROW_BYTES > (await readSize(tx, tables));
  tx.send(isTogether ? plannedTogether() : plannedByKeys());
  return isTogether;
}

/** As they are, and not as they were counted some time ago; in bytes. */
async function readSize(tx: Transaction, tables: readonly string[]): Promise<number> {
  const [row] = await tx.query<{ bytes: number }>(
    sql`SELECT sum(pg_relation_size(name::regclass))::float8 AS bytes FROM unnest(${tables}::text[]) AS t (name)`,
  );
  return row?.bytes ?? 0;
}
