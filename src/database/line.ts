/**
 * The line to the database: all connections of a process, which are cut together when the database does not answer any more,
 * and not opened anew before it does. So that whoever waits is told in time, and nobody waits for a server that hangs.
 */
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import pg from 'pg';
import { codeOf, isExhausted, messageOf, UnavailableError } from '../errors.js';
import { timeFromDatabase } from '../time.js';
import type { DatabaseHosts } from './hosts.js';
import { isPrepared, isUseless } from './prepared.js';
import { withSettings } from './session-settings.js';
import type { Statement } from './sql.js';

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

const sockets = new WeakMap<pg.Client, Duplex>();

/** A client whose connection `destroy` can end, also while it connects or waits. It is given its socket by `stream`, an option of pg. */
export class SocketClient extends pg.Client {
  constructor(config: pg.ClientConfig = {}) {
    const socket = config.stream?.() ?? new Socket();
    super({ ...config, stream: () => socket });
    sockets.set(this, socket);
  }
}

/** Ends a connection without a word to the server, which may not listen. Its queries fail with that error. */
export function destroy(client: pg.Client, error: Error = away()): void {
  const socket = sockets.get(client);
  if (socket) socket.destroy(error);
  else void client.end().catch(() => {}); // of another class: it ends by itself, unless the server hangs
}

/** How long a plan is used. To plan anew takes a tenth of a millisecond. */
const PLAN_MS = 10_000;

export class Line {
  private readonly clients = new Set<pg.Client>();
  private isCut = false;

  /** For connections of this line, in a pool or by themselves. */
  readonly Client: typeof pg.Client;

  constructor(hosts: DatabaseHosts) {
    const line = this;
    this.Client = class extends SocketClient {
      private plannedAt = performance.now();
      /** How often what was prepared has become useless. */
      private losses = 0;

      constructor(config?: pg.ClientConfig) {
        super(withSettings(hosts.direct(config)));
      }

      // biome-ignore lint/suspicious/noExplicitAny: the overloads of connect() cannot be written otherwise
      override connect(callback?: any): any {
        if (line.isCut) return callback ? void process.nextTick(callback, away()) : Promise.reject(away());
        line.clients.add(this);
        this.once('end', () => line.clients.delete(this));
        if (!callback) return super.connect().catch(throwUnavailable);
        super.connect((error: unknown) => callback(error && toUnavailable(error), this));
      }

      /** A pool reports to its query by this event, and not by the query's own end, that the connection has broken under it. */
      // biome-ignore lint/suspicious/noExplicitAny: as it is declared
      override emit(event: string | symbol, ...given: any[]): boolean {
        return super.emit(event, ...(event === 'error' ? [toUnavailable(given[0])] : given));
      }

      // biome-ignore lint/suspicious/noExplicitAny: the overloads of query() cannot be written otherwise
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
        // whatever has become of one has become of others, which would be found out one by one
        answer.catch((error) => {
          if (isUseless(error) && this.losses === losses) this.losses++;
        });
        return answer;
      }

      private renew(): void {
        if (performance.now() - this.plannedAt <= PLAN_MS) return;
        this.plannedAt = performance.now();
        this.send({ text: 'DISCARD PLANS' }).catch(() => {}); // if it fails, the query itself will report why
      }

      /** The answer of one that cannot be sent is rejected by the time that this returns (transaction.ts). */
      private send(query: Query): Promise<pg.QueryResult> {
        return new Promise((resolve, reject) => {
          super.query(withExactTimes(query), (error: unknown, result: pg.QueryResult) =>
            error ? reject(toUnavailable(error)) : resolve(result),
          );
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

type Query = pg.QueryConfig & { types?: pg.CustomTypesConfig };

/** Prisma's adapter brings parsers of its own with each query, which would make a Date of a timestamp. */
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
