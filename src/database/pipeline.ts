/**
 * One statement with settings of its own, in one round trip: BEGIN, the settings, the statement and COMMIT are sent together
 * to a client that pipelines.
 */
import type pg from 'pg';
import { isPrepared, isUseless, prepared } from './prepared.js';
import { join, raw, type Sql, sql } from './sql.js';

/** Settings of a statement, by their names in PostgreSQL. */
export type Settings = Readonly<Record<string, string>>;

/**
 * Shares a scan of a large table among the server's cores, whatever the planner expects: if it expects some rows soon, it would have one
 * core look for them.
 */
export const PARALLEL: Settings = { parallel_setup_cost: '0', parallel_tuple_cost: '0' };

/**
 * Has one core look at what an index finds: the planner knows little of how many rows there will be, and to start other processes takes a
 * hundred times as long as to look at ten.
 */
export const SERIAL: Settings = { max_parallel_workers_per_gather: '0' };

/** A prepared statement is planned for all values at once, whatever the planner thinks of these. */
const PLANNED_ONCE: Settings = { plan_cache_mode: 'force_generic_plan' };

const BEGIN = raw('BEGIN');
const COMMIT = raw('COMMIT');

/** Sets them until the transaction ends. */
export function setLocally(settings: Settings): Sql {
  return sql`SELECT ${join(Object.entries(settings).map(([name, value]) => sql`set_config(${name}, ${value}, true)`))}`;
}

/**
 * Returns the rows of one statement, which may take at most `timeoutMs`.
 * @throws UnavailableError whose cause has the code 57014 when it takes longer
 */
export async function queryWithin<Row extends object>(
  pool: pg.Pool,
  statement: Sql,
  timeoutMs: number,
  settings: Settings = {},
): Promise<Row[]> {
  const planned = isPrepared(statement) ? PLANNED_ONCE : {};
  const bounds = setLocally({ statement_timeout: String(timeoutMs), ...planned, ...settings });
  return await queryWith<Row>(pool, prepared(bounds), statement);
}

/** Returns the rows of one statement. @param settings a statement that sets what is to hold for it */
export async function queryWith<Row extends object>(pool: pg.Pool, settings: Sql, statement: Sql): Promise<Row[]> {
  const client = await pool.connect();
  try {
    for (;;) {
      try {
        return await sendTogether<Row>(client, [settings, statement]);
      } catch (error) {
        if (!isUseless(error)) throw error; // or else nothing was done, and it is prepared anew
      }
    }
  } finally {
    client.release(); // the pool sees by itself whether the connection has broken
  }
}

/** @returns the rows of the last one @throws the error of the first one that fails; those behind it fail for that reason only */
async function sendTogether<Row extends object>(client: pg.ClientBase, statements: readonly Sql[]): Promise<Row[]> {
  const sent = [BEGIN, ...statements, COMMIT].map((each) => client.query<Row>(each));
  const ends = await Promise.allSettled(sent);
  const failed = ends.find((end) => end.status === 'rejected');
  if (failed) {
    if (failed.reason instanceof Error) Error.captureStackTrace(failed.reason); // where it was asked
    throw failed.reason;
  }
  const [rows, commit] = (await Promise.all(sent)).slice(-2);
  if (commit?.command !== 'COMMIT') throw new Error('the transaction was rolled back');
  return rows?.rows ?? [];
}
