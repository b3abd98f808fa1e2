/**
 * Lists from one snapshot, page by page: memory holds one page however long the list is.
 *
 * A list is told at the pace of its reader, who may take hours for a long one, and keeps a connection for as long. So long
 * lists have connections of their own, and a short one that is soon found is read whole before its reader sees any of it.
 */
import type pg from 'pg';
import { checkWanted, codeOf, UnavailableError } from '../errors.js';
import type { Database } from './client.js';
import { copyRows } from './copy.js';
import type { LongRead } from './long-reads.js';
import { PARALLEL, queryWithin, SERIAL } from './pipeline.js';
import { raw, type Sql, sql } from './sql.js';

/** What is read whole before its reader sees any of it; what is more is read by as many rows at a time. */
export const PAGE = 2000;
const FETCH = raw(`FETCH ${PAGE} FROM list`);
/** What few rows are found of among millions is long as well, and takes no longer of a connection that all share. */
const SHORT_MS = 1000;
/** In so long two cores look at some hundred thousand paths. */
const SCAN_MS = 200;
const STATEMENT_TIMED_OUT = '57014';

export interface Snapshot {
  query<Row extends object>(statement: Sql): Promise<Row[]>;
  /** The rows of a query in pages of up to 2,000. One stream at a time. */
  stream<Row extends object>(statement: Sql): AsyncGenerator<Row[]>;
  /** The rows of a query of one column of text (copy.ts), as the last thing that is read, from a pool without pipelining. */
  copy(statement: Sql): AsyncGenerator<Buffer>;
}

/** Gives `work` a view of the database in which all queries see the same moment. */
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
        await query(UNBOUNDED); // it takes as long as its reader
        isLost = true; // until all of it has come: a COPY ends with its connection only
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

/** Who reads. */
export interface Asker {
  db: Database;
  /** As whom it counts; undefined for the program itself. */
  share?: string | undefined;
  /** Aborts when nobody waits for the answer any more. */
  reader?: AbortSignal | undefined;
}

/** A list by the page, for a reader who takes it at a pace of their own. */
export interface Paced<Page> extends AsyncIterable<Page> {
  /** Aborts when the reader is too slow for those who wait. */
  signal?: AbortSignal;
  /** To be told of all bytes that the reader has taken. */
  took?(bytes: number): void;
}

export type ListPages<Row> = Paced<Row[]>;

/**
 * Gives `consume` the rows of a list at its own pace.
 * @param list a query that ends with its order
 * @throws UnavailableError when too many readers are at lists, or the reader itself at too many
 */
export async function readList<Row extends object, T>(
  { db, share, reader }: Asker,
  list: Sql,
  consume: (pages: ListPages<Row>) => Promise<T>,
): Promise<T> {
  const short = await readShort<Row>({ db, share, reader }, list);
  if (short) return await consume(pageOf(short));
  const place = await db.longReads.enter(share, reader);
  try {
    return await withSnapshot(db.streamPool, ({ stream }) => consume(atPace(stream<Row>(list), place)));
  } finally {
    place.leave();
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

/** All rows of a list that is short and soon found. */
async function readShort<Row extends object>(asker: Asker, list: Sql): Promise<Row[] | undefined> {
  const rows = await askSoon<Row>(asker, sql`${list} LIMIT ${PAGE + 1}`);
  return rows && rows.length <= PAGE ? rows : undefined;
}

/**
 * What a statement finds within a second; undefined where it takes longer.
 * @param by `scan` looks at each row of a large table, so that soon is sooner: what has been looked at in vain is looked at again; what an
 *   `index` finds is looked at by one core
 */
export async function askSoon<Row extends object>(
  { db, share, reader }: Asker,
  statement: Sql,
  by?: 'scan' | 'index',
): Promise<Row[] | undefined> {
  const { leave } = await db.looks.enter(share, reader);
  try {
    return await (by === 'scan'
      ? queryWithin<Row>(db.pool, statement, SCAN_MS, PARALLEL)
      : queryWithin<Row>(db.pool, statement, SHORT_MS, by === 'index' ? SERIAL : {}));
  } catch (error) {
    if (isLate(error)) return undefined;
    throw error;
  } finally {
    leave();
  }
}

/** The same of several statements, which see the same moment; each has a second. */
async function readSoon<T>(
  { db, share, reader }: Asker,
  work: (snapshot: Snapshot) => Promise<T>,
): Promise<{ answer: T } | undefined> {
  const { leave } = await db.looks.enter(share, reader);
  try {
    return await withSnapshot(db.pool, async (snapshot) => {
      await snapshot.query(sql`SELECT set_config('statement_timeout', ${String(SHORT_MS)}, true)`);
      return { answer: await work(snapshot) };
    });
  } catch (error) {
    if (isLate(error)) return undefined;
    throw error;
  } finally {
    leave();
  }
}

const isLate = (error: unknown) => error instanceof UnavailableError && codeOf(error.cause) === STATEMENT_TIMED_OUT;

/**
 * The rows of a statement of which nobody knows how long it takes, such as a search by a pattern: asked on the connections that
 * all share for a second, and from there on where long lists are read.
 * @param reader aborts when nobody waits for the answer any more, which is looked for no longer then
 * @throws UnavailableError when too many are at lists, or the reader itself at too many, or nobody waits any more
 */
export async function askAtLength<Row extends object>(
  { db, share }: Asker,
  statement: Sql,
  reader?: AbortSignal,
): Promise<Row[]> {
  const soon = await askSoon<Row>({ db, share, reader }, statement);
  return soon ?? (await readLong({ db, share, reader }, ({ query }) => query<Row>(statement)));
}

/**
 * The same of several statements, from one snapshot; each has a second.
 * @param work may be called twice
 */
export async function readAtLength<T>(
  { db, share }: Asker,
  work: (snapshot: Snapshot) => Promise<T>,
  reader?: AbortSignal,
): Promise<T> {
  const soon = await readSoon({ db, share, reader }, work);
  return soon ? soon.answer : await readLong({ db, share, reader }, work);
}

async function readLong<T>({ db, share, reader }: Asker, work: (snapshot: Snapshot) => Promise<T>): Promise<T> {
  const { leave } = await db.longReads.enter(share, reader);
  try {
    checkWanted(reader);
    return await forReader(db, work, reader);
  } finally {
    leave();
  }
}

/** A statement goes on without anybody who reads its answer, unless it is cancelled. */
async function forReader<T>(
  db: Database,
  work: (snapshot: Snapshot) => Promise<T>,
  reader: AbortSignal | undefined,
): Promise<T> {
  let cancelled: Promise<unknown> | undefined;
  try {
    return await withSnapshot(db.streamPool, async (snapshot) => {
      const [own] = await snapshot.query<{ pid: number }>(sql`SELECT pg_backend_pid() AS pid`);
      const cancel = () => {
        cancelled ??= db.pool.query(sql`SELECT pg_cancel_backend(${own?.pid}::int)`).catch(() => {});
      };
      reader?.addEventListener('abort', cancel);
      try {
        checkWanted(reader);
        return await work(snapshot);
      } finally {
        reader?.removeEventListener('abort', cancel);
        await cancelled; // which would hit whoever has the connection next
      }
    });
  } catch (error) {
    checkWanted(reader);
    throw error;
  }
}

async function* pageOf<Row>(rows: Row[]): AsyncGenerator<Row[]> {
  if (rows.length > 0) yield rows;
}
