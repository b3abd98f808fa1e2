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
import { sendTogether } from './wire.js';

export interface Transaction {
  /** The rows of one statement. */
  query<Row extends object = object>(statement: Sql): Promise<Row[]>;
  /**
   * Has a statement run before whatever comes next, in the same round trip. Nobody is told its rows; where it fails, what comes next
   * does, or the commit.
   */
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
  /** Called after each statement, or those of a round trip. @param ask runs another one in the same transaction */
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

const COMMIT = raw('COMMIT');
const begin = () => prepared(raw('BEGIN'));
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
  const talk = new Talk(client, { name });
  const tx: Transaction = {
    query: (statement) => talk.query(statement),
    send: (statement) => talk.send(statement),
    beforeCommit: (key, task) => {
      if (!last.has(key)) last.set(key, task);
    },
    afterCommit: (tell) => void tellings.push(tell),
  };
  try {
    const result = await work(tx);
    let done = 0;
    for (const task of last.values()) {
      if (done++ > 0) await talk.flush(); // what it does comes after all that was done before it
      await task();
    }
    await talk.commit();
    for (const tell of tellings) tell();
    return result;
  } catch (error) {
    await talk.rollBack();
    throw error;
  }
}

/** What is said on a connection from BEGIN to COMMIT. */
class Talk {
  private readonly client: pg.PoolClient;
  private readonly run: TransactionRun;
  private readonly begin: readonly Sql[];
  /** To be sent with what comes next. */
  private waiting: Sql[] = [];
  private hasBegun = false;

  constructor(client: pg.PoolClient, run: TransactionRun) {
    this.client = client;
    this.run = run;
    this.begin = longTransactions.has(run.name) ? [begin(), lengthen()] : [begin()];
    for (const observer of observers) observer.onBegin(run);
  }

  send(statement: Sql): void {
    this.waiting.push(statement);
  }

  async query<Row extends object>(statement: Sql): Promise<Row[]> {
    if (isAsked()) await this.flush();
    const done = [...this.waiting, statement];
    const statements = this.take(statement);
    const rows =
      statements.length === 1
        ? (await this.client.query<Row>(statement)).rows
        : ((await sendTogether(this.client, statements)).at(-1) as Row[]);
    await this.tell(done);
    return rows;
  }

  async flush(): Promise<void> {
    const done = this.waiting;
    this.waiting = [];
    if (isAsked()) for (const statement of done) await this.query(statement);
    else if (done.length > 0) {
      await sendTogether(this.client, [...this.opening(), ...done]);
      await this.tell(done);
    }
  }

  /** A connection that breaks now may have brought the commit to the server, and only its answer is missing. */
  async commit(): Promise<void> {
    if (isAsked()) await this.flush();
    if (!this.hasBegun && this.waiting.length === 0) return;
    const done = this.waiting;
    const statements = this.take(COMMIT);
    let refusedAt: number | undefined;
    try {
      await sendTogether(this.client, statements, (at) => {
        refusedAt = at;
      });
    } catch (error) {
      const isBefore = refusedAt !== undefined && refusedAt < statements.length - 1;
      const isBusy =
        error instanceof UnavailableError && error.kind === 'busy' && error.cause instanceof pg.DatabaseError;
      throw error instanceof UnavailableError && !isBefore && !isBusy ? new UnconfirmedError(error) : error;
    }
    await this.tell(done);
  }

  async rollBack(): Promise<void> {
    if (this.hasBegun) await this.client.query('ROLLBACK').catch(() => {}); // a connection that broke has rolled back
  }

  private opening(): readonly Sql[] {
    const opening = this.hasBegun ? [] : this.begin;
    this.hasBegun = true;
    return opening;
  }

  private take(statement: Sql): Sql[] {
    const statements = [...this.opening(), ...this.waiting, statement];
    this.waiting = [];
    return statements;
  }

  private async tell(done: readonly Sql[]): Promise<void> {
    const ask = async <Row extends object>(question: Sql) => (await this.client.query<Row>(question)).rows;
    for (const statement of done) {
      for (const observer of observers) await observer.onStatement(this.run, statement, ask);
    }
  }
}
