/**
 * Runs one statement with its own PostgreSQL settings in one round trip: sends BEGIN, the settings, the statement and
 * COMMIT together.
 */
import type pg from 'pg';
import { isPrepared, isUseless, prepared } from './prepared.js';
import { join, raw, type Sql, sql } from './sql.js';

export type Settings = Readonly<Record<string, string>>;

/**
 * Settings that make PostgreSQL scan a large table in parallel. With the default settings, PostgreSQL uses only one
 * core if it expects to find enough rows soon.
 */
export const PARALLEL: Settings = { parallel_setup_cost: '0', parallel_tuple_cost: '0' };

/**
 * Settings that turn off parallel workers, for statements that read a few rows through an index. With the default
 * settings, a wrong estimate might make PostgreSQL start workers. Starting workers takes a hundred times as long as
 * reading ten rows.
 */
export const SERIAL: Settings = { max_parallel_workers_per_gather: '0' };

/**
 * Settings that make PostgreSQL use one generic plan for all values of a prepared statement, regardless of the
 * planner's estimates.
 */
const PLANNED_ONCE: Settings = { plan_cache_mode: 'force_generic_plan' };

const BEGIN = raw('BEGIN');
const COMMIT = raw('COMMIT');

/**
 * Returns a statement that changes settings until the end of the transaction. Its result has the column `pid`, the id
 * of the connection's process in PostgreSQL.
 */
export function setLocally(settings: Settings): Sql {
  return sql`SELECT pg_backend_pid() AS pid, ${join(Object.entries(settings).map(([name, value]) => sql`set_config(${name}, ${value}, true)`))}`;
}

/**
 * Returns the rows of one statement, which must finish within `timeoutMs`.
 * @param reader cancels the statement when it aborts
 * @throws UnavailableError, caused by PostgreSQL's error 57014, if the statement takes longer than `timeoutMs`
 */
export async function queryWithin<Row extends object>(
  pool: pg.Pool,
  statement: Sql,
  timeoutMs: number,
  settings: Settings = {},
  reader?: AbortSignal,
): Promise<Row[]> {
  const planned = isPrepared(statement) ? PLANNED_ONCE : {};
  const bounds = setLocally({ statement_timeout: String(timeoutMs), ...planned, ...settings });
  return await queryWith<Row>(pool, prepared(bounds), statement, reader);
}

/**
 * Returns the rows of one statement.
 * @param settings a statement that changes settings until the end of the transaction
 */
export async function queryWith<Row extends object>(
  pool: pg.Pool,
  settings: Sql,
  statement: Sql,
  reader?: AbortSignal,
): Promise<Row[]> {
  const client = await pool.connect();
  let pid: number | undefined;
  let cancelled: Promise<unknown> | undefined;
  const cancel = () => {
    if (pid !== undefined) cancelled ??= pool.query(sql`SELECT pg_cancel_backend(${pid}::int)`).catch(() => {});
  };
  const onSettings = (result: pg.QueryResult<{ pid?: number }>) => {
    pid = result.rows[0]?.pid;
    if (reader?.aborted) cancel();
  };
  reader?.addEventListener('abort', cancel);
  try {
    for (;;) {
      try {
        return await sendTogether<Row>(client, [settings, statement], onSettings);
      } catch (error) {
        if (!isUseless(error)) throw error; // retry if a prepared statement is invalid
      }
    }
  } finally {
    reader?.removeEventListener('abort', cancel);
    await cancelled; // otherwise, the cancellation might end the connection's next statement
    client.release();
  }
}

/** @throws the error of the first failed statement; the later statements fail only because the first one failed */
async function sendTogether<Row extends object>(
  client: pg.ClientBase,
  statements: readonly [settings: Sql, statement: Sql],
  onSettings: (result: pg.QueryResult<object>) => void,
): Promise<Row[]> {
  const sent = [BEGIN, ...statements, COMMIT].map((each) => client.query<Row>(each));
  sent[1]?.then(onSettings, () => {});
  const ends = await Promise.allSettled(sent);
  const failed = ends.find((end) => end.status === 'rejected');
  if (failed) {
    if (failed.reason instanceof Error) Error.captureStackTrace(failed.reason);
    throw failed.reason;
  }
  const [rows, commit] = (await Promise.all(sent)).slice(-2);
  if (commit?.command !== 'COMMIT') throw new Error('the transaction was rolled back');
  return rows?.rows ?? [];
}
