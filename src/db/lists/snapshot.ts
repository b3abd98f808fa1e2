/**
 * Reads lists page by page from one snapshot, with only one page in memory. A client reads a long list at its own pace,
 * and might occupy a connection for hours. Long lists therefore have their own connection pool.
 */
import type pg from 'pg';
import { checkWanted, codeOf, UnavailableError } from '../../core/errors.js';
import { PARALLEL, queryWithin, SERIAL, type Settings } from '../pipeline.js';
import type { Database } from '../pools.js';
import { raw, type Sql, sql } from '../sql.js';
import { copyRows } from './copy.js';
import type { LongRead } from './long-reads.js';

/**
 * Number of rows per page. A list with at most this many rows counts as short, and a single query reads the whole list.
 */
export const PAGE = 2000;
const FETCH = raw(`FETCH ${PAGE} FROM list`);
/** Time limit in milliseconds for a query that reads a short list in the main pool. */
const SHORT_MS = 1000;
const SCAN_MS = 200;
const STATEMENT_TIMED_OUT = '57014';

export interface Snapshot {
  query<Row extends object>(statement: Sql): Promise<Row[]>;
  /** Yields pages of up to 2,000 rows. A snapshot supports only one open stream at a time. */
  stream<Row extends object>(statement: Sql): AsyncGenerator<Row[]>;
  /**
   * Yields the rows of a query with one text column (copy.ts). A call of `copy` must be the last read from the
   * snapshot. The pool must not pipeline statements.
   */
  copy(statement: Sql): AsyncGenerator<Buffer>;
}

/** Runs `work` in one read-only transaction with a single snapshot. */
export async function withSnapshot<T>(pool: pg.Pool, work: (snapshot: Snapshot) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  const query = async <Row extends object>(statement: Sql) => (await client.query<Row>(statement)).rows;
  let isLost = false;
  try {
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
    return await work({
      query,
      stream: async function* stream<Row extends object>(statement: Sql) {
        await query(declare(statement));
        for (;;) {
          const rows = await query<Row>(FETCH);
          if (rows.length > 0) yield rows;
          if (rows.length < PAGE) break;
        }
        await query(sql`CLOSE list`);
      },
      copy: async function* copy(statement: Sql) {
        await query(UNBOUNDED); // remove the time limit, because the reader determines how long COPY takes
        // close the connection if the reader stops early, because an incomplete COPY cannot be ended in any other way
        isLost = true;
        yield* copyRows(client, statement, pool.options.statement_timeout || undefined);
        isLost = false;
      },
    });
  } finally {
    if (!isLost) {
      await client.query('ROLLBACK').catch(() => {
        isLost = true;
      });
    }
    client.release(isLost);
  }
}

const UNBOUNDED = sql`SELECT set_config('statement_timeout', '0', true)`;

const declare = (statement: Sql) => sql`DECLARE list NO SCROLL CURSOR FOR ${statement}`;

export interface Asker {
  db: Database;
  /** The caller's rate-limit key; undefined for Tapegate itself. */
  share?: string | undefined;
  reader?: AbortSignal | undefined;
}

/** A list's pages, which the reader takes at its own pace. */
export interface Paced<Page> extends AsyncIterable<Page> {
  /** Aborts if the reader is too slow while other readers wait for a slot. */
  signal?: AbortSignal;
  took?(bytes: number): void;
}

export type ListPages<Row> = Paced<Row[]>;

/**
 * Passes the rows of a list to `consume`, which may read the rows slowly.
 * @param list a query that ends with an ORDER BY clause
 * @throws UnavailableError if the list limiter does not have a free slot for the caller
 */
export async function readList<Row extends object, T>(
  { db, share, reader }: Asker,
  list: Sql,
  consume: (pages: ListPages<Row>) => Promise<T>,
): Promise<T> {
  const short = await readShort<Row>({ db, share, reader }, list);
  if (short) return await consume(pageOf(short));
  const slot = await db.longReads.enter(share, reader);
  try {
    return await withSnapshot(db.streamPool, ({ stream }) => consume(atPace(stream<Row>(list), slot)));
  } finally {
    slot.leave();
  }
}

export function atPace<Page>(pages: AsyncIterable<Page>, { pace, signal }: LongRead): Paced<Page> {
  const read = async function* read() {
    for await (const page of pages) {
      pace.begin();
      yield page;
      pace.end();
    }
  };
  return { [Symbol.asyncIterator]: read, signal, took: (bytes) => pace.took(bytes) };
}

/** Returns all rows of a list, or undefined if the list is long or its query takes more than a second. */
async function readShort<Row extends object>(asker: Asker, list: Sql): Promise<Row[] | undefined> {
  const rows = await askSoon<Row>(asker, sql`${list} LIMIT ${PAGE + 1}`);
  return rows && rows.length <= PAGE ? rows : undefined;
}

/**
 * Returns the rows that a statement finds within a second; undefined if the statement takes longer.
 * @param by `index` if the statement uses an index and no parallel workers; `scan` if the statement reads a whole large
 * table. The time limit for a scan is 200 ms. `ms` is the time limit of a statement without parallel workers
 */
export async function askSoon<Row extends object>(
  { db, share, reader }: Asker,
  statement: Sql,
  by?: 'scan' | 'index' | { ms: number; settings?: Settings },
): Promise<Row[] | undefined> {
  const { leave } = await db.shortReads.enter(share, reader);
  try {
    if (typeof by === 'object')
      return await queryWithin<Row>(db.pool, statement, by.ms, { ...SERIAL, ...by.settings }, reader);
    return await (by === 'scan'
      ? queryWithin<Row>(db.pool, statement, SCAN_MS, PARALLEL, reader)
      : queryWithin<Row>(db.pool, statement, SHORT_MS, by === 'index' ? SERIAL : {}, reader));
  } catch (error) {
    checkWanted(reader);
    if (isLate(error)) return undefined;
    throw error;
  } finally {
    leave();
  }
}

const isLate = (error: unknown) => error instanceof UnavailableError && codeOf(error.cause) === STATEMENT_TIMED_OUT;

/**
 * Returns the rows that a statement finds, however long it takes. If the statement takes longer than a second in the
 * main pool, runs the statement again in the pool for long lists.
 * @param reader aborts when clients no longer wait for the answer
 * @throws UnavailableError if the list limiter does not have a free slot for the caller, or `reader` aborts
 */
export async function askAtLength<Row extends object>(
  { db, share }: Asker,
  statement: Sql,
  reader?: AbortSignal,
): Promise<Row[]> {
  const soon = await askSoon<Row>({ db, share, reader }, statement);
  if (soon) return soon;
  const { leave } = await db.longReads.enter(share, reader);
  try {
    checkWanted(reader);
    return await withSnapshot(db.streamPool, ({ query }) => cancelWith(db, query, statement, reader));
  } catch (error) {
    checkWanted(reader);
    throw error;
  } finally {
    leave();
  }
}

/** Cancels the statement if `reader` aborts. Otherwise, PostgreSQL would run the statement to its end. */
async function cancelWith<Row extends object>(
  db: Database,
  query: Snapshot['query'],
  statement: Sql,
  reader: AbortSignal | undefined,
): Promise<Row[]> {
  const [own] = await query<{ pid: number }>(sql`SELECT pg_backend_pid() AS pid`);
  let cancelled: Promise<unknown> | undefined;
  const cancel = () => {
    cancelled ??= db.pool.query(sql`SELECT pg_cancel_backend(${own?.pid}::int)`).catch(() => {});
  };
  reader?.addEventListener('abort', cancel);
  try {
    checkWanted(reader);
    return await query<Row>(statement);
  } finally {
    reader?.removeEventListener('abort', cancel);
    await cancelled; // wait for the cancellation to finish; otherwise, it might cancel the connection's next query
  }
}

async function* pageOf<Row>(rows: Row[]): AsyncGenerator<Row[]> {
  if (rows.length > 0) yield rows;
}
