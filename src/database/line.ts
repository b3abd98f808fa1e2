/**
 * The line to the database: all connections of a process, which are cut together when the database does not answer any more,
 * and not opened anew before it does. So that whoever waits is told in time, and nobody waits for a server that hangs.
 */
import pg from 'pg';
import { codeOf, isExhausted, messageOf, UnavailableError } from '../errors.js';
import { timeFromDatabase } from '../time.js';
import { Exchange } from './exchange.js';
import type { DatabaseHosts } from './hosts.js';
import { isPrepared, Preparations, type PreparedQuery } from './prepared.js';

const TIMESTAMP = 1114;
const INT8 = 20;
const NUMERIC = 1700;

/**
 * For raw queries: int8 as bigint, and numeric as well where it is whole, as a sum of sizes, which may be beyond 64 bits;
 * timestamps as text. Given to the pool rather than set globally, since Prisma's
 * adapter falls back to the global parsers and fails when int8 is a bigint there.
 */
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

/**
 * While a statement runs or waits, PostgreSQL looks whether anybody is there to be answered: locks of a process that was killed are
 * not kept until its statement would have ended, which may be never.
 */
const LOOK_OUT = '-c client_connection_check_interval=10s';

/**
 * What the indexes find of a pattern is a set of rows, up to a hundred bytes for each page of the table that has some. Where it does not fit,
 * PostgreSQL keeps whole pages, and makes the words of all paths on these: of ten million files that took 55 s instead of 2 s, with the 4 MB that it
 * has by itself. This is enough for forty million. Only what needs it takes it.
 */
const ROOM_FOR_SETS = '-c work_mem=64MB';

/**
 * Options of the site's own stay. They are put together with what was read of a URL, which may be written in ways that do not bear to be
 * written anew.
 */
function addOptions(client: pg.Client): void {
  const { connectionParameters } = client as unknown as { connectionParameters: { options?: string } };
  connectionParameters.options = [ROOM_FOR_SETS, connectionParameters.options, LOOK_OUT].filter(Boolean).join(' ');
}

/** The parsers of a query, but for the one that would make a Date of a timestamp. */
function withExactTimes(inner: pg.CustomTypesConfig): pg.CustomTypesConfig {
  const getTypeParser = (oid: number, format: string) =>
    oid === TIMESTAMP && format === 'text' ? timeFromDatabase : inner.getTypeParser(oid, format as 'text');
  return { getTypeParser: getTypeParser as pg.CustomTypesConfig['getTypeParser'] };
}

export class Line {
  private readonly clients = new Set<pg.Client>();
  private isCut = false;

  /** For connections of this line, in a pool or by themselves. */
  readonly Client: typeof pg.Client;

  constructor(hosts: DatabaseHosts) {
    const line = this;
    /** Prisma's adapter brings parsers of its own with each query, which would make a Date of a timestamp. */
    this.Client = class extends pg.Client {
      private readonly preparations = new Preparations((query, callback) => void super.query(toQuery(query, callback)));

      constructor(config?: pg.ClientConfig) {
        super(hosts.direct(config));
        addOptions(this);
      }

      // biome-ignore lint/suspicious/noExplicitAny: the overloads of connect() cannot be written otherwise
      override connect(callback?: any): any {
        if (line.isCut) return callback ? void process.nextTick(callback, away()) : Promise.reject(away());
        line.clients.add(this);
        this.once('end', () => line.clients.delete(this));
        if (!callback) return super.connect().catch(throwUnavailable);
        super.connect((error: unknown) => callback(error && toUnavailable(error), this));
      }

      /** A pool tells its query by this event, and not by the query's own end, that the connection has broken under it. */
      // biome-ignore lint/suspicious/noExplicitAny: as it is declared
      override emit(event: string | symbol, ...given: any[]): boolean {
        return super.emit(event, ...(event === 'error' ? [toUnavailable(given[0])] : given));
      }

      // biome-ignore lint/suspicious/noExplicitAny: the overloads of query() cannot be written otherwise
      override query(query: any, ...rest: any[]): any {
        if (query instanceof Exchange) this.preparations.serve(query);
        const inner = query?.types;
        if (inner?.getTypeParser && inner !== exactTypes) query.types = withExactTimes(inner);
        const last = rest.at(-1);
        if (isPrepared(query) && inner === undefined) return this.queryPrepared(query, last);
        if (typeof last === 'function') {
          rest[rest.length - 1] = (error: unknown, result: unknown) => last(error && toUnavailable(error), result);
        }
        // biome-ignore lint/suspicious/noExplicitAny: see above
        const result = (super.query as any)(query, ...rest);
        return result instanceof Promise ? result.catch(throwUnavailable) : result;
      }

      private queryPrepared(query: PreparedQuery, callback: unknown): Promise<unknown> | undefined {
        const isWithin = () => this.getTransactionStatus() !== 'I';
        if (typeof callback === 'function') {
          return void this.preparations.query(query, isWithin, (error, result) =>
            callback(error && toUnavailable(error), result),
          );
        }
        return new Promise((resolve, reject) => {
          this.preparations.query(query, isWithin, (error, result) =>
            error ? reject(toUnavailable(error)) : resolve(result),
          );
        }).catch((error) => {
          if (error instanceof Error) Error.captureStackTrace(error); // where it was asked, as pg says it of its own
          throw error;
        });
      }
    };
  }

  /** Ends all connections, whatever they wait for, and opens none until `mend`. */
  cut(): void {
    this.isCut = true;
    this.drop();
  }

  mend(): void {
    this.isCut = false;
  }

  /** Ends all connections at once. */
  drop(): void {
    for (const client of this.clients) destroy(client);
    this.clients.clear();
  }
}

type QueryClass = new (text: string, values: unknown[], callback: unknown) => pg.Query & { name: string | undefined };

/** The driver's own query: one that it makes itself of an object it makes of a copy, property by property, which takes longer than to send it. */
function toQuery(
  { name, text, values }: { name?: string; text: string; values: unknown[] },
  callback: unknown,
): pg.Query {
  const query = new (pg.Query as unknown as QueryClass)(text, values, callback);
  query.name = name;
  return query;
}

/** Ends a connection without a word to the server, which may not listen. Its query in hand fails, with that error. */
export function destroy(client: pg.Client, error: Error = away()): void {
  const { connection } = client as unknown as { connection: { stream: { destroy(error: Error): void } } };
  connection.stream.destroy(error);
}

function away(cause?: unknown): UnavailableError {
  return new UnavailableError('away', 'the database does not answer', cause);
}

function throwUnavailable(error: unknown): never {
  throw toUnavailable(error);
}

/** Of PostgreSQL: it ends, or starts; it takes no writes, being a copy of another one. */
const AWAY_CODES = /^(08\d{3}|57P0[1-5]|25006)$/;
/** Of PostgreSQL: it has no room for this now; the statement took too long. */
const BUSY_CODES = /^(53\d{3}|57014|25P0[34])$/;
/** Of the driver, which has no codes; what still goes on while the process leaves has no pool any more. */
const AWAY_TEXTS =
  /^Connection terminated|not queryable|^timeout expired|^The server does not support SSL|^Cannot use a pool after calling end/;
const BUSY_TEXTS = /^Query read timeout|^timeout exceeded when trying to connect/;

/** What the database, or the way to it, is to blame for, as such; anything else as it is. */
export function toUnavailable(error: unknown): unknown {
  if (error instanceof UnavailableError) return error;
  // the database is there, and so are the connections that are open
  if (isExhausted(error)) return new UnavailableError('busy', 'the server has too many files open', error);
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

/** What PgBouncer says where it has lost the server. PostgreSQL says the same of what it cannot read, after which it hangs up as well. */
function isOfPooler({ code, severity }: pg.DatabaseError): boolean {
  return code === '08P01' && severity === 'FATAL';
}

/** It has waited for a lock as long as it may. One that does not wait has the same code, and texts come in many languages. */
function isWaitOver(error: pg.DatabaseError): boolean {
  return error.code === '55P03' && error.routine === 'ProcessInterrupts';
}
