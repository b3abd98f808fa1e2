/**
 * Runs transactions in plain SQL. Runs a transaction again after a deadlock, after a refused `NOWAIT` lock, or if a
 * prepared statement has become invalid. Because a transaction can run several times, its callback must not have
 * effects outside the transaction.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { codeOf, UnavailableError, UnconfirmedError } from '../core/errors.js';
import { isUseless, prepared } from './prepared.js';
import { raw, type Sql, sql } from './sql.js';

export interface Transaction {
  query<Row extends object = object>(statement: Sql): Promise<Row[]>;
  /**
   * Sends a statement without waiting for the server's answer. If the statement fails, the transaction's next statement
   * or its commit fails with the same error.
   */
  send(statement: Sql): void;
  /** Runs `work` once, just before the commit. A second call of `beforeCommit` with the same key does nothing. */
  beforeCommit(key: string, work: () => Promise<void>): void;
  /** Runs `callback` after the commit, if the current attempt succeeds. The callback must not throw. */
  afterCommit(callback: () => void): void;
}

/** One attempt to run a transaction. */
export interface TransactionRun {
  name: string;
}

interface TransactionObserver {
  onBegin(run: TransactionRun): void;
  /**
   * Whether the observer itself runs statements in the transaction. If so, the transaction does not pipeline
   * statements: it waits for each answer before it sends the next statement.
   */
  asks?: boolean;
  onStatement(run: TransactionRun, statement: Sql, ask: Transaction['query']): void | Promise<void>;
}

const observers = new Set<TransactionObserver>();

const isAsked = () => [...observers].some(({ asks }) => asks);

/**
 * Adds an observer, for tests and for tracing a deadlock.
 * @returns a function that removes the observer
 */
export function observeTransactions(observer: TransactionObserver): () => void {
  observers.add(observer);
  return () => observers.delete(observer);
}

/**
 * Names of transactions that might change ten million files. Each statement in these transactions may take up to an
 * hour. Their limit for lock waits is not raised.
 */
const longTransactions: ReadonlySet<string> = new Set([
  'createRequest',
  'updateRequest',
  'cancelRequest',
  'expireRequests',
  'endOverdue',
  'releaseFiles',
  'markCleared',
  'retryRequest',
  'joinUnresolved',
  'adoptRequest',
  'checkRenames',
  'moveVolume',
  'updatePathBlocks',
  'retireVolume',
]);

const BEGIN = raw('BEGIN');
const COMMIT = raw('COMMIT');
const ROLLBACK = raw('ROLLBACK');
/**
 * Returns the statement that raises the transaction's `statement_timeout` to one hour. It first sets `lock_timeout` to
 * the previous `statement_timeout`, so that lock waits do not become longer.
 */
const lengthen = () =>
  prepared(
    sql`SELECT set_config('lock_timeout', current_setting('statement_timeout'), true), set_config('statement_timeout', '1h', true)`,
  );

const DEADLOCK = '40P01';
const LOCK_NOT_AVAILABLE = '55P03';
const MAX_ATTEMPTS = 10;
const PAUSE_MS = 5;

/**
 * Runs `work` in one transaction. If `work` throws, rolls back and throws the same error.
 * @throws UnconfirmedError if it is unknown whether the commit succeeded
 */
export async function transaction<T>(pool: pg.Pool, name: string, work: (tx: Transaction) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  let broken = true;
  try {
    const result = await runTransaction(client, name, work);
    broken = false;
    return result;
  } catch (error) {
    // check whether the connection still works, because a rejected statement or an error in `work` does not break the
    // connection
    broken = !(await client.query('SELECT 1').then(
      () => true,
      () => false,
    ));
    throw error;
  } finally {
    client.release(broken);
  }
}

/** Runs `work` in one transaction, as `transaction` does, but on the caller's connection. */
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
      if (attempt === MAX_ATTEMPTS) throw new UnavailableError('busy', 'conflict with a concurrent transaction', error);
      if (code === LOCK_NOT_AVAILABLE) await sleep(PAUSE_MS * attempt * Math.random());
    }
  }
}

async function runOnce<T>(client: pg.PoolClient, name: string, work: (tx: Transaction) => Promise<T>): Promise<T> {
  const last = new Map<string, () => Promise<void>>();
  const callbacks: (() => void)[] = [];
  const session = new TransactionSession(client, { name });
  const tx: Transaction = {
    query: (statement) => session.query(statement),
    send: (statement) => session.send(statement),
    beforeCommit: (key, task) => {
      if (!last.has(key)) last.set(key, task);
    },
    afterCommit: (callback) => void callbacks.push(callback),
  };
  try {
    const result = await work(tx);
    for (const task of last.values()) await task();
    await session.commit();
    for (const callback of callbacks) callback();
    return result;
  } catch (error) {
    await session.rollBack();
    throw error;
  }
}

/**
 * Returns whether a statement is a SELECT. Only a SELECT is sent before the answer to BEGIN arrives, because a SELECT
 * changes nothing even if BEGIN fails.
 */
const isSelect = ({ text }: Sql) => /^\s*SELECT\b/i.test(text);

/**
 * The statements of one transaction on its connection. If the client pipelines, each statement is sent immediately, and
 * the server runs the statements in order. After a failure, the server rejects all later statements, and COMMIT rolls
 * back.
 */
class TransactionSession {
  private readonly client: pg.PoolClient;
  private readonly run: TransactionRun;
  private state: 'idle' | 'beginning' | 'open' = 'idle';
  /**
   * Number of this transaction's statements that have not been sent, because an earlier statement has not been
   * answered.
   */
  private waiting = 0;
  private last: Promise<unknown> = Promise.resolve();
  /** Error of the first failed statement in the transaction. All later statements fail because of the first failure. */
  private failure: { error: unknown } | undefined;

  constructor(client: pg.PoolClient, run: TransactionRun) {
    this.client = client;
    this.run = run;
    for (const observer of observers) observer.onBegin(run);
  }

  send(statement: Sql): void {
    this.ask(statement).catch(() => {}); // ignored: `failure` records the statement's error
  }

  async query<Row extends object>(statement: Sql): Promise<Row[]> {
    const answer = await this.ask(statement).catch((error) => this.fail(error));
    if (this.failure) this.fail(this.failure.error);
    return answer.rows as Row[];
  }

  /**
   * Commits the transaction. If the connection breaks during the commit, the server might have committed although no
   * answer arrives.
   */
  async commit(): Promise<void> {
    if (this.state === 'idle') return;
    // wait for statements that have not been sent yet; a client that pipelines does not wait for answers
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
    await this.client.query(ROLLBACK).catch(() => {}); // ignored, because a broken connection has already rolled back
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
    begun.catch(() => {}); // ignored: if this statement fails, the transaction's next statement fails too
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

  private sendNow(statement: Sql, isObserved = true): Promise<pg.QueryResult> {
    const answer: Promise<pg.QueryResult> = this.client.query(statement);
    answer.catch((error) => {
      this.failure ??= { error };
    });
    return isObserved && observers.size > 0 ? answer.then((result) => this.observe(statement, result)) : answer;
  }

  private fail(other: unknown): never {
    const error = this.failure?.error ?? other;
    if (error instanceof Error) Error.captureStackTrace(error);
    throw error;
  }

  /** Returns whether a commit that failed with `error` might still have succeeded on the server. */
  private isUnconfirmed(error: unknown): boolean {
    if (this.failure) return !isRefused(this.failure.error);
    return error instanceof UnavailableError && !(error.kind === 'busy' && error.cause instanceof pg.DatabaseError);
  }

  private async observe(statement: Sql, result: pg.QueryResult): Promise<pg.QueryResult> {
    const ask = async <Row extends object>(question: Sql) => (await this.client.query<Row>(question)).rows;
    for (const observer of observers) await observer.onStatement(this.run, statement, ask);
    return result;
  }
}

/**
 * Error codes that a pooler reports after losing its connection to PostgreSQL. The outcome of a commit is then unknown.
 */
const BROKEN_CODES = /^08/;

/** Returns whether the server itself rejected a statement, so that the transaction was not committed. */
function isRefused(error: unknown): boolean {
  const cause = error instanceof UnavailableError ? error.cause : error;
  return cause instanceof pg.DatabaseError && !BROKEN_CODES.test(cause.code ?? '');
}
