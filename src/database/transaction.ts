/**
 * Transactions in plain SQL. Which locks they take, and in which order, is in locks.ts.
 *
 * A transaction that PostgreSQL ends for a deadlock, that may not wait for a lock, or that was prepared for what is no longer so
 * (prepared.ts), is run again, so the callback must have no effect outside it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { codeOf, UnavailableError, UnconfirmedError } from '../errors.js';
import { isUseless } from './prepared.js';
import type { Sql } from './sql.js';

export interface Transaction {
  /** The rows of one statement. */
  query<Row extends object = object>(statement: Sql): Promise<Row[]>;
  /** Runs once, as the last thing before the commit; the key keeps a second call with the same one out. */
  beforeCommit(key: string, work: () => Promise<void>): void;
}

/** One run of a transaction; one that is run again is another one. */
export interface TransactionRun {
  name: string;
}

/** Told of what transactions do, to watch the locks that they take. */
export interface TransactionObserver {
  /** Called before the first statement; of a run that began earlier, only later statements are told. */
  onBegin(run: TransactionRun): void;
  /** Called after each statement. @param ask runs another one in the same transaction */
  onStatement(run: TransactionRun, statement: Sql, ask: Transaction['query']): void | Promise<void>;
}

const observers = new Set<TransactionObserver>();

/** For tests and for tracing a deadlock. @returns what ends the watching */
export function observeTransactions(observer: TransactionObserver): () => void {
  observers.add(observer);
  return () => observers.delete(observer);
}

/**
 * Whose statements may have ten million files to do with: each may take an hour, where others have a bound for each statement that
 * suits a question. Their waits for locks have that bound all the same. (An import has a connection without any.)
 */
export const longTransactions: ReadonlySet<string> = new Set([
  'createRequest',
  'updateRequest',
  'cancelRequest',
  'expireRequests',
  'endOverdue',
  'releaseFiles',
  'retryRequest',
  'joinAwaited',
  'compactRequest',
]);

const BEGIN = 'BEGIN';
/** The bound of its connection becomes that of its waits. */
const BEGIN_LONG = `BEGIN; SELECT set_config('lock_timeout', current_setting('statement_timeout'), true), set_config('statement_timeout', '1h', true)`;

const DEADLOCK = '40P01';
const LOCK_NOT_AVAILABLE = '55P03';
const MAX_ATTEMPTS = 10;
const PAUSE_MS = 5;

/**
 * Runs `work` in one transaction; what it throws rolls back and is thrown on.
 * @param name its line in the table of locks.ts
 * @throws UnconfirmedError where nobody knows whether it is committed
 */
export async function transaction<T>(pool: pg.Pool, name: string, work: (tx: Transaction) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  let broken = true;
  try {
    const result = await runTransaction(client, name, work);
    broken = false;
    return result;
  } catch (error) {
    // an error that PostgreSQL or the caller reports leaves the connection whole
    broken = !(await client.query('SELECT 1').then(
      () => true,
      () => false,
    ));
    throw error;
  } finally {
    client.release(broken);
  }
}

/** The same on a connection of the caller's. */
export async function runTransaction<T>(
  client: pg.PoolClient,
  name: string,
  work: (tx: Transaction) => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await runOnce(client, name, work);
    } catch (error) {
      const code = codeOf(error);
      if (code !== DEADLOCK && code !== LOCK_NOT_AVAILABLE && !isUseless(error)) throw error;
      if (attempt === MAX_ATTEMPTS) throw new UnavailableError('busy', 'others use what this needs', error);
      // whoever has the lock is about to commit
      if (code === LOCK_NOT_AVAILABLE) await sleep(PAUSE_MS * attempt * Math.random());
    }
  }
}

async function runOnce<T>(client: pg.PoolClient, name: string, work: (tx: Transaction) => Promise<T>): Promise<T> {
  const last = new Map<string, () => Promise<void>>();
  const run: TransactionRun = { name };
  const query = async <Row extends object>(statement: Sql) => (await client.query<Row>(statement)).rows;
  const tx: Transaction = {
    query: async <Row extends object>(statement: Sql) => {
      const rows = await query<Row>(statement);
      for (const observer of observers) await observer.onStatement(run, statement, query);
      return rows;
    },
    beforeCommit: (key, task) => {
      if (!last.has(key)) last.set(key, task);
    },
  };
  for (const observer of observers) observer.onBegin(run);
  await client.query(longTransactions.has(name) ? BEGIN_LONG : BEGIN);
  try {
    const result = await work(tx);
    for (const task of last.values()) await task();
    await commit(client);
    return result;
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {}); // a connection that broke has rolled back
    throw error;
  }
}

/** A connection that breaks now may have brought the commit to the server, and only its answer is missing. */
async function commit(client: pg.PoolClient): Promise<void> {
  try {
    await client.query('COMMIT');
  } catch (error) {
    const isRefused =
      error instanceof UnavailableError && error.kind === 'busy' && error.cause instanceof pg.DatabaseError;
    throw error instanceof UnavailableError && !isRefused ? new UnconfirmedError(error) : error;
  }
}
