/**
 * Transactions in plain SQL. Which locks they take, and in which order, is in locks.ts.
 *
 * A transaction that PostgreSQL ends for a deadlock, that may not wait for a lock, or that was prepared for what is no longer so
 * (prepared.ts), is run again, so the callback must have no effect outside it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { codeOf, UnavailableError, UnconfirmedError } from '../errors.js';
import { isUseless, prepared } from './prepared.js';
import { raw, type Sql, sql } from './sql.js';

export interface Transaction {
  /** The rows of one statement. */
  query<Row extends object = object>(statement: Sql): Promise<Row[]>;
  /** Sends a statement without waiting for its answer. If it fails, whatever comes next fails with its error, or the commit does. */
  send(statement: Sql): void;
  /** Runs once, as the last thing before the commit; the key keeps a second call with the same one out. */
  beforeCommit(key: string, work: () => Promise<void>): void;
  /** Told of the commit, of a run that comes to it; it must not throw. */
  afterCommit(tell: () => void): void;
}

/** One run of a transaction; one that is run again is another one. */
export interface TransactionRun {
  name: string;
}

/** Told of what transactions do, to watch the locks that they take. */
export interface TransactionObserver {
  /** Called before the first statement; of a run that began earlier, only later statements are told. */
  onBegin(run: TransactionRun): void;
  /** Whether it asks: statements are run one at a time then, where several may share a round trip otherwise. */
  asks?: boolean;
  /** Called after each statement. @param ask runs another one in the same transaction */
  onStatement(run: TransactionRun, statement: Sql, ask: Transaction['query']): void | Promise<void>;
}

const observers = new Set<TransactionObserver>();

const isAsked = () => [...observers].some(({ asks }) => asks);

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
  'adoptRequest',
  'checkRenames',
  'readTold',
  'moveVolume',
  'retireVolume',
]);

const BEGIN = raw('BEGIN');
const COMMIT = raw('COMMIT');
const ROLLBACK = raw('ROLLBACK');
/** The bound of its connection becomes that of its waits. */
const lengthen = () =>
  prepared(
    sql`SELECT set_config('lock_timeout', current_setting('statement_timeout'), true), set_config('statement_timeout', '1h', true)`,
  );

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
  const tellings: (() => void)[] = [];
  const session = new TransactionSession(client, { name });
  const tx: Transaction = {
    query: (statement) => session.query(statement),
    send: (statement) => session.send(statement),
    beforeCommit: (key, task) => {
      if (!last.has(key)) last.set(key, task);
    },
    afterCommit: (tell) => void tellings.push(tell),
  };
  try {
    const result = await work(tx);
    for (const task of last.values()) await task();
    await session.commit();
    for (const tell of tellings) tell();
    return result;
  } catch (error) {
    await session.rollBack();
    throw error;
  }
}

/** Only such a statement is sent before BEGIN has been answered: without its transaction it changes nothing. */
const isSelect = ({ text }: Sql) => /^\s*SELECT\b/i.test(text);

/**
 * The statements of one transaction on its connection. If the client pipelines, each is sent at once, and the server runs them in that order.
 * After one that fails the server refuses all others, and a COMMIT behind it rolls back.
 */
class TransactionSession {
  private readonly client: pg.PoolClient;
  private readonly run: TransactionRun;
  private state: 'idle' | 'beginning' | 'open' = 'idle';
  /** Statements that wait for the answer of the one before them. */
  private waiting = 0;
  /** The answer of what was asked last, its observers included. */
  private last: Promise<unknown> = Promise.resolve();
  /** Of the first statement that failed: those behind it fail for that reason only. */
  private failure: { error: unknown } | undefined;

  constructor(client: pg.PoolClient, run: TransactionRun) {
    this.client = client;
    this.run = run;
    for (const observer of observers) observer.onBegin(run);
  }

  send(statement: Sql): void {
    this.ask(statement).catch(() => {}); // it is the failure of the transaction
  }

  async query<Row extends object>(statement: Sql): Promise<Row[]> {
    const answer = await this.ask(statement).catch((error) => this.fail(error));
    if (this.failure) this.fail(this.failure.error); // of one that was sent
    return answer.rows as Row[];
  }

  /** A connection that breaks now may have brought the commit to the server, and only its answer is missing. */
  async commit(): Promise<void> {
    if (this.state === 'idle') return;
    // in turn, what was sent may not have been run; otherwise, what could not be sent is known after this
    await (this.waiting > 0 || this.isInTurn ? this.last.catch(() => {}) : undefined);
    if (this.failure) this.fail(this.failure.error);
    const answer = await this.client.query(COMMIT).catch((error) => {
      if (this.isUnconfirmed(error)) throw new UnconfirmedError(error as UnavailableError);
      this.fail(error);
    });
    if (answer.command !== 'COMMIT') this.fail(new Error('the transaction was rolled back'));
  }

  async rollBack(): Promise<void> {
    if (this.state === 'idle') return;
    if (this.waiting > 0 || this.isInTurn) await this.last.catch(() => {});
    await this.client.query(ROLLBACK).catch(() => {}); // a connection that broke has rolled back
  }

  private get isInTurn(): boolean {
    return isAsked() || !(this.client instanceof pg.Client && this.client.pipeline);
  }

  private ask(statement: Sql): Promise<pg.QueryResult> {
    if (this.state === 'idle') this.begin();
    const mayPass = this.waiting === 0 && !this.isInTurn && (this.state === 'open' || isSelect(statement));
    const answer = mayPass ? this.sendNow(statement) : this.sendInTurn(statement);
    this.last = answer;
    return answer;
  }

  private begin(): void {
    this.state = 'beginning';
    this.last = this.sendNow(BEGIN, false);
    const begun = this.last.then(() => {
      this.state = 'open';
    });
    begun.catch(() => {}); // whatever comes next fails as well
    if (longTransactions.has(this.run.name)) this.last = this.sendNow(lengthen(), false);
  }

  private sendInTurn(statement: Sql): Promise<pg.QueryResult> {
    this.waiting++;
    return this.last
      .catch(() => {})
      .then(() => {
        this.waiting--;
        if (this.failure) throw this.failure.error;
        return this.sendNow(statement);
      });
  }

  private sendNow(statement: Sql, isTold = true): Promise<pg.QueryResult> {
    const answer: Promise<pg.QueryResult> = this.client.query(statement);
    answer.catch((error) => {
      this.failure ??= { error };
    });
    return isTold && observers.size > 0 ? answer.then((result) => this.tell(statement, result)) : answer;
  }

  /** Throws the first failure, or else that error. */
  private fail(other: unknown): never {
    const error = this.failure?.error ?? other;
    if (error instanceof Error) Error.captureStackTrace(error); // where it was asked, as pg says it
    throw error;
  }

  /** Whether nobody knows what has become of the commit, which has failed with that error. */
  private isUnconfirmed(error: unknown): boolean {
    if (this.failure) return !isRefused(this.failure.error);
    return error instanceof UnavailableError && !(error.kind === 'busy' && error.cause instanceof pg.DatabaseError);
  }

  private async tell(statement: Sql, result: pg.QueryResult): Promise<pg.QueryResult> {
    const ask = async <Row extends object>(question: Sql) => (await this.client.query<Row>(question)).rows;
    for (const observer of observers) await observer.onStatement(this.run, statement, ask);
    return result;
  }
}

/**
 * A pooler between us and PostgreSQL that has lost its connection there: what the server has done by then, nobody knows. (If it is the
 * server's own error, nothing was done.)
 */
const BROKEN_CODES = /^08/;

/** Has the server itself refused a statement? The transaction around it cannot have been committed. */
function isRefused(error: unknown): boolean {
  const cause = error instanceof UnavailableError ? error.cause : error;
  return cause instanceof pg.DatabaseError && !BROKEN_CODES.test(cause.code ?? '');
}
