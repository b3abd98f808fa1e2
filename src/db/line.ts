/**
 * Manages all of a process's connections to the database. If the database stops answering, closes all connections, so
 * that callers get an error soon.
 */
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import pg from 'pg';
import { codeOf, isExhausted, messageOf, UnavailableError } from '../core/errors.js';
import { timeFromDatabase } from '../core/time.js';
import { type Encryption, isOfNoTls } from './encryption.js';
import type { DatabaseHosts } from './hosts.js';
import { isPrepared, isUseless } from './prepared.js';
import { withSettings } from './session-settings.js';
import type { Statement } from './sql.js';

const TIMESTAMP = 1114;
const INT8 = 20;
const NUMERIC = 1700;

/** Parsers for the results of raw SQL. An int8 or whole numeric becomes a bigint, and a timestamp becomes text. */
export const exactTypes: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') => {
    if (format !== 'binary' && oid === TIMESTAMP) return timeFromDatabase;
    if (format !== 'binary' && oid === INT8) return BigInt;
    if (format !== 'binary' && oid === NUMERIC) return wholeOrText;
    return pg.types.getTypeParser(oid, format as 'text');
  }) as pg.CustomTypesConfig['getTypeParser'],
};

function wholeOrText(text: string): bigint | string {
  return /^-?\d+$/.test(text) ? BigInt(text) : text;
}

const sockets = new WeakMap<pg.Client, Duplex>();

/**
 * A client that applies the session settings to its connection. The constructor supplies the connection's socket, so
 * that `destroy` can close the socket at any time.
 */
export class SocketClient extends pg.Client {
  private readonly setUp: string;
  private readonly encryption: Encryption | undefined;

  constructor(given: pg.ClientConfig = {}) {
    const { config, setUp, encryption } = withSettings(given);
    const socket = config.stream?.() ?? new Socket();
    super({ ...config, stream: () => socket });
    sockets.set(this, socket);
    this.setUp = setUp;
    this.encryption = encryption;
    this.on('error', () => {});
  }

  // biome-ignore lint/suspicious/noExplicitAny: only `any` covers all overloads of connect()
  override connect(callback?: any): any {
    const connected = super.connect().then(
      () => {
        this.encryption?.recordConnected();
        return this.begin();
      },
      (error) => this.fail(error),
    );
    if (!callback) return connected;
    connected.then(() => callback(undefined, this), callback);
  }

  private fail(error: unknown): never {
    if (this.encryption?.learn(error)) otherWay.add(error as Error);
    const isAsked = /client password must be a/.test(messageOf(error)) || codeOf(error) === WRONG_PASSWORD;
    if (/unsupported startup parameter/.test(messageOf(error))) {
      const remedy = 'remove the parameter from the URL and from PGOPTIONS, or allow it in the pooler';
      throw new Error(`a pooler in front of the database rejects the connection: ${messageOf(error)}: ${remedy}`, {
        cause: error,
      });
    }
    if (!this.password && isAsked) throw new Error(NO_PASSWORD, { cause: error });
    throw this.encryption ? this.encryption.explain(error) : error;
  }

  protected async begin(): Promise<this> {
    try {
      // send all statements in one message; the server returns one result per statement
      const results = await super.query(`${this.setUp}; ${this.question()}`);
      this.check(([results].flat() as pg.QueryResult[]).at(-1));
      return this;
    } catch (error) {
      void this.end().catch(() => {}); // ignore errors while closing, because the connection might have failed
      throw withRemedy(error);
    }
  }

  /** Returns a statement that the client sends together with the session settings, to save a round trip. */
  protected question(): string {
    return '';
  }

  /**
   * @param _answer the result of the statement that `question` returned
   * @throws Error if the connection must not be used
   */
  protected check(_answer: pg.QueryResult | undefined): void {}
}

/** A client that leaves its session's settings unchanged, because other programs might share the session. */
export class BareClient extends SocketClient {
  protected override async begin(): Promise<this> {
    return this;
  }
}

const otherWay = new WeakSet<Error>();

/**
 * Connects to a database. If the server refuses, and `sslmode` is `allow` or `prefer`, tries again with encryption
 * switched on or off.
 */
export async function connect<Client extends pg.Client>(make: () => Client): Promise<Client> {
  const first = make();
  try {
    await first.connect();
    return first;
  } catch (error) {
    if (!(error instanceof Error && otherWay.has(error))) throw error;
    const second = make();
    await second.connect().catch((again: unknown) => {
      throw isOfNoTls(again) ? error : again;
    });
    return second;
  }
}

const WRONG_PASSWORD = '28P01';
const NO_PASSWORD =
  'the database requires a password, but the URL contains none: add the password, percent-encoded, after the user name, or set PGPASSWORD';

/** Adds the remedy to an error about a setting that the database role is not allowed to change. */
function withRemedy(error: unknown): unknown {
  const [, name] = /^permission denied to set parameter "([\w.]+)"/.exec(messageOf(error)) ?? [];
  if (name === undefined) return error;
  const resets = ['ROLE', 'DATABASE'].map((what) => `ALTER ${what} … RESET ${name}`).join(' or ');
  return new Error(
    `${messageOf(error)}; the parameter is set for the server, the database or the role: run ${resets}`,
    {
      cause: error,
    },
  );
}

/**
 * Closes a connection without notifying the server, because the server might hang. Queries on the connection fail with
 * `error`.
 */
export function destroy(client: pg.Client, error: Error = away()): void {
  const socket = sockets.get(client);
  if (socket) socket.destroy(error);
  // a client of another class has no known socket, so close it normally
  else void client.end().catch(() => {});
}

function refuseOther(found: unknown, expected: string): void {
  if (found === expected) return;
  const problem = `the database was replaced with another one, whose identity is ${found} instead of ${expected}`;
  throw new UnavailableError('away', problem, undefined, 'restart the process');
}

const DATABASE_OF = 'SELECT database::text AS database FROM public.site_identity';

/** Milliseconds after which a connection discards its cached query plans. */
const PLAN_MS = 10_000;

export class Line {
  private readonly clients = new Set<pg.Client>();
  private isCut = false;
  /** Identity of this process's database. Connections to any other database are refused. */
  private database: string | undefined;

  readonly Client: typeof pg.Client;

  constructor(hosts: DatabaseHosts) {
    const line = this;
    this.Client = class extends SocketClient {
      private plannedAt = performance.now();
      private losses = 0;
      private expected: string | undefined;

      constructor(config?: pg.ClientConfig) {
        super(hosts.direct(config));
      }

      // biome-ignore lint/suspicious/noExplicitAny: only `any` covers all overloads of connect()
      override connect(callback?: any): any {
        if (line.isCut) return callback ? void process.nextTick(callback, away()) : Promise.reject(away());
        line.clients.add(this);
        this.once('end', () => line.clients.delete(this));
        if (!callback) return super.connect().catch(throwUnavailable);
        super.connect((error: unknown) => callback(error && toUnavailable(error), this));
      }

      protected override question(): string {
        this.expected = line.database;
        return this.expected === undefined ? '' : DATABASE_OF;
      }

      protected override check(answer: pg.QueryResult | undefined): void {
        if (this.expected !== undefined) refuseOther(answer?.rows[0]?.database, this.expected);
      }

      /**
       * Applies `toUnavailable` to the error in an `error` event. The pool receives this event if the connection breaks
       * during a query.
       */
      // biome-ignore lint/suspicious/noExplicitAny: the declaration of emit() uses any
      override emit(event: string | symbol, ...given: any[]): boolean {
        return super.emit(event, ...(event === 'error' ? [toUnavailable(given[0])] : given));
      }

      // biome-ignore lint/suspicious/noExplicitAny: only `any` covers all overloads of query()
      override query(query: any, ...rest: any[]): any {
        if (typeof query?.submit === 'function') return super.query(query);
        const callback = typeof rest.at(-1) === 'function' ? rest.pop() : undefined;
        const config = typeof query === 'string' ? { text: query, values: rest[0] } : query;
        const answer = isPrepared(config) ? this.queryPrepared(config) : this.send(config);
        if (!callback) return answer;
        answer.then((result) => callback(undefined, result), callback);
      }

      private queryPrepared({ name, text, values }: Statement): Promise<pg.QueryResult> {
        this.renew();
        const { losses } = this;
        const answer = this.send({ name: losses === 0 ? name : `${name}_${losses}`, text, values });
        // after an invalid statement, use new names for all prepared statements on this connection
        answer.catch((error) => {
          if (isUseless(error) && this.losses === losses) this.losses++;
        });
        return answer;
      }

      private renew(): void {
        if (performance.now() - this.plannedAt <= PLAN_MS) return;
        this.plannedAt = performance.now();
        this.send({ text: 'DISCARD PLANS' }).catch(() => {}); // ignore the error: the next query will report it
      }

      /** Sends a query. If sending fails, returns a rejected promise instead of throwing an error. */
      private send(query: Query): Promise<pg.QueryResult> {
        return new Promise((resolve, reject) => {
          super.query(withExactTimes(query), (error: unknown, result: pg.QueryResult) =>
            error ? reject(toUnavailable(error)) : resolve(result),
          );
        });
      }
    };
  }

  /** From now on, refuses connections to any database other than the current database. */
  async keepDatabase(pool: pg.Pool): Promise<void> {
    this.database = (await pool.query(DATABASE_OF)).rows[0]?.database;
  }

  /** Closes all connections. No connection can be opened until `mend` is called. */
  cut(): void {
    this.isCut = true;
    this.drop();
  }

  mend(): void {
    this.isCut = false;
  }

  drop(): void {
    for (const client of this.clients) destroy(client);
    this.clients.clear();
  }
}

type Query = pg.QueryConfig & { types?: pg.CustomTypesConfig };

/** Replaces the timestamp parser in queries from Prisma's adapter, which would convert timestamps to Date. */
function withExactTimes(query: Query): Query {
  if (!query.types || query.types === exactTypes) return query;
  const inner = query.types;
  const getTypeParser = (oid: number, format: string) =>
    oid === TIMESTAMP && format === 'text' ? timeFromDatabase : inner.getTypeParser(oid, format as 'text');
  return { ...query, types: { getTypeParser: getTypeParser as pg.CustomTypesConfig['getTypeParser'] } };
}

function away(cause?: unknown): UnavailableError {
  return new UnavailableError('away', 'the database does not answer', cause);
}

function throwUnavailable(error: unknown): never {
  throw toUnavailable(error);
}

/** Error codes which mean that PostgreSQL is unreachable, stopping, starting or a read-only standby. */
const AWAY_CODES = /^(08\d{3}|57P0[1-5]|25006)$/;
/** Error codes which mean that PostgreSQL is out of resources, or that a statement or transaction took too long. */
const BUSY_CODES = /^(53\d{3}|57014|25P0[34])$/;
/** Messages of errors that the driver pg itself throws, because these errors do not have codes. */
const AWAY_TEXTS =
  /^Connection terminated|not queryable|^timeout expired|^The server does not support SSL|^Cannot use a pool after calling end/;
const BUSY_TEXTS = /^Query read timeout|^timeout exceeded when trying to connect/;

/** Returns an UnavailableError if the database or the network caused the error. Returns any other error unchanged. */
export function toUnavailable(error: unknown): unknown {
  if (error instanceof UnavailableError) return error;
  if (isExhausted(error)) return new UnavailableError('busy', 'too many open files', error);
  const [code, text] = [codeOf(error) ?? '', messageOf(error)];
  const isOfServer = error instanceof pg.DatabaseError;
  if (isOfServer ? BUSY_CODES.test(code) || isWaitOver(error) : BUSY_TEXTS.test(text)) {
    return new UnavailableError('busy', 'the database is too busy', error);
  }
  const isOfNetwork = (error as { syscall?: unknown } | undefined)?.syscall !== undefined;
  const isAway = isOfServer
    ? AWAY_CODES.test(code) || isOfPooler(error)
    : isOfNetwork || code === 'ETIMEDOUT' || AWAY_TEXTS.test(text);
  return isAway || error instanceof AggregateError ? away(error) : error;
}

/** Returns whether PgBouncer reports that the connection to PostgreSQL was lost. */
function isOfPooler({ code, severity }: pg.DatabaseError): boolean {
  return code === '08P01' && severity === 'FATAL';
}

/**
 * Returns whether a wait for a lock timed out. Compares the PostgreSQL routine that reported the error, because a
 * failed `NOWAIT` has the same error code.
 */
function isWaitOver(error: pg.DatabaseError): boolean {
  return error.code === '55P03' && error.routine === 'ProcessInterrupts';
}
