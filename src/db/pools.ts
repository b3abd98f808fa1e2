/**
 * Opens a process's connection pools: one for Prisma and raw SQL, and separate pools for long lists, imports and
 * heartbeats.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { PrismaPg } from '@prisma/adapter-pg';
import pg from 'pg';
import { splitHosts } from '../config/database-url.js';
import type { FailureLog } from '../core/errors.js';
import { PrismaClient } from '../generated/prisma/client.js';
import { DatabaseClock } from './clock.js';
import { DatabaseHosts } from './hosts.js';
import { exactTypes, Line, toUnavailable } from './line.js';
import { type LeastPace, LongReads } from './lists/long-reads.js';
import { isUseless } from './prepared.js';
import { Pulse } from './pulse.js';

/**
 * Delays V8's optimization of Prisma's query compiler, a WebAssembly module. With V8's default settings, the
 * optimization doubles the CPU time of a short command (0.70 s instead of 0.39 s).
 */
setFlagsFromString('--wasm-tiering-budget=180000000');

export interface Database {
  pool: pg.Pool;
  rows<Row extends pg.QueryResultRow>(statement: pg.QueryConfig): Promise<Row[]>;
  /**
   * Connections for reading long lists at the client's pace. Queries are not pipelined, because COPY cannot be
   * pipelined.
   */
  streamPool: pg.Pool;
  /** Connections for imports. Queries are not pipelined, because imports use COPY, which cannot be pipelined. */
  importPool: pg.Pool;
  longReads: LongReads;
  /** Limiter for queries in the main pool that try to read a list within a second. */
  shortReads: LongReads;
  /** Limiter for transactions in the main pool that wait for the catalogue's lock. */
  takers: LongReads;
  /**
   * Limiter for transactions in the main pool that might wait a long time for a lock other than the catalogue's lock.
   */
  changers: LongReads;
  /** Limiter for transactions in the main pool that never wait a long time for a lock. */
  keepers: LongReads;
  /** Limiter for GraphQL queries. */
  queries: LongReads;
  /**
   * Pool for statements that must not wait for other work. A connection is opened only while the main pool has no free
   * connection.
   */
  vitalPool: pg.Pool;
  /** Returns the main pool, or `vitalPool` if all connections of the main pool are in use. */
  urgentPool(): pg.Pool;
  /**
   * Runs a heartbeat's statement in `urgentPool`, and returns the rows. A heartbeat that takes more than three seconds
   * fails.
   */
  vitalRows<Row extends pg.QueryResultRow>(statement: pg.QueryConfig): Promise<Row[]>;
  prisma: PrismaClient;
  pulse: Pulse;
  clock: DatabaseClock;
  /** Class for connections outside the pools. Callers pass `config` to the constructor. */
  Client: typeof pg.Client;
  config: pg.ClientConfig;
  /** Remembers the database's identity, and rejects later connections to a database with a different identity. */
  keepDatabase(): Promise<void>;
  /** Closes all connections. Returns within seconds even if the database does not answer. */
  close(): Promise<void>;
}

export interface DatabaseOptions {
  log: FailureLog;
  /** Milliseconds without an answer after which the database counts as unreachable. Default 10,000. */
  lostMs?: number;
  /** Time limit for a statement, in milliseconds. Default 300,000. */
  statementMs?: number;
  poolSize?: number;
  longLists?: number;
  /** Maximum time in milliseconds that a caller waits for a connection for a long list. Default 5000. */
  longListWaitMs?: number;
  /**
   * Minimum rate at which a client must read a long list while other clients wait for a slot. Default: 16 kB/s,
   * measured over a minute.
   */
  leastPace?: LeastPace;
}

/**
 * Milliseconds without a statement after which the server ends an open transaction of a stalled process, and releases
 * the transaction's locks. This limit does not apply to list streams, because a client might read slowly.
 */
const STANDSTILL_MS = 60_000;

/**
 * Time limit in milliseconds for a statement, including waits for locks. For a list, the limit applies to each page.
 */
const STATEMENT_MS = 300_000;
const CONNECT_MS = 30_000;
const KEEP_ALIVE_MS = 10_000;
/** Maximum number of cached query plans in Prisma. */
const PLANS = 250;
/**
 * Time limit in milliseconds for a heartbeat. After a heartbeat times out, the next heartbeat opens a new connection.
 */
const VITAL_MS = 3000;
const CLOSE_MS = 3000;

/** Maximum number of long lists that one gateway reads concurrently. */
const LONG_LISTS = 16;
const IMPORTS = 4;
const SHORT_WORK = 20;
export const ENGINE_POOL = 6;
/**
 * Number of connections for notifications, for checking whether the database answers, and for heartbeats while the pool
 * is full.
 */
const VITAL_CONNECTIONS = 2;
const LONG_READ_WAIT_MS = 5000;
const QUERIES = 64;
const QUERY_WAIT_MS = 10_000;
/** Minimum rate at which a client must read a long list. Even a client on a slow network (256 kB/s) reads faster. */
const LEAST_PACE: LeastPace = { windowMs: 60_000, bytesPerSecond: 16 * 1024 };

/** Maximum number of connections that a process opens, by process type. */
export const mostConnections = {
  gateway: (longLists: number): number => SHORT_WORK + longLists + IMPORTS + VITAL_CONNECTIONS,
  engine: ENGINE_POOL + VITAL_CONNECTIONS,
};

/** Number of connections that an idle process needs: one listens for notifications, and one queries for work. */
export const IDLE_CONNECTIONS = 2;

function hostsOf(config: pg.ClientConfig): DatabaseHosts {
  const { connectionString } = config;
  if (connectionString === undefined) return new DatabaseHosts([config]);
  const [first = connectionString, ...others] = splitHosts(connectionString);
  const hostOf = (url: string) => ({ ...config, connectionString: url });
  return new DatabaseHosts([hostOf(first), ...others.map(hostOf)]);
}

/**
 * Opens the pools. A pool opens a connection only when a query needs the connection. While the database is unreachable,
 * every query and every wait for a connection fails with an `UnavailableError`.
 */
export function openDatabase(config: pg.ClientConfig, options: DatabaseOptions): Database {
  const hosts = hostsOf({
    ...config,
    types: exactTypes,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
    connectionTimeoutMillis: CONNECT_MS,
    statement_timeout: options.statementMs ?? STATEMENT_MS,
  });
  const exact = hosts.current;
  const [line, clock] = [new Line(hosts), new DatabaseClock()];
  const bounded = { ...exact, Client: line.Client };
  const pool = new WatchedPool({
    ...bounded,
    pipeline: true,
    max: options.poolSize ?? SHORT_WORK,
    idle_in_transaction_session_timeout: STANDSTILL_MS,
  });
  const streamPool = new WatchedPool({ ...bounded, max: options.longLists ?? LONG_LISTS });
  const importPool = new WatchedPool({ ...bounded, max: IMPORTS, idle_in_transaction_session_timeout: STANDSTILL_MS });
  const vital = { connectionTimeoutMillis: VITAL_MS, statement_timeout: VITAL_MS, query_timeout: VITAL_MS };
  const vitalPool = new WatchedPool({ ...bounded, ...vital, max: 1 });
  const pools = [pool, streamPool, importPool, vitalPool];
  const prisma = new PrismaClient({ adapter: new PrismaPg(pool), queryPlanCacheMaxSize: PLANS });
  const pulse = new Pulse({ hosts, line, clock, ...options });
  return {
    pool,
    async rows<Row extends pg.QueryResultRow>(statement: pg.QueryConfig) {
      return (await this.pool.query<Row>(statement)).rows;
    },
    streamPool,
    importPool,
    ...createLimiters(pool.options.max, streamPool.options.max, options),
    vitalPool,
    urgentPool() {
      return hasRoom(this.pool) ? this.pool : vitalPool;
    },
    async vitalRows<Row extends pg.QueryResultRow>({ text, values = [] }: pg.QueryConfig) {
      const statement: pg.QueryConfig & { query_timeout: number } = { text, values, query_timeout: VITAL_MS };
      return (await this.urgentPool().query<Row>(statement)).rows;
    },
    prisma,
    pulse,
    clock,
    Client: line.Client,
    get config() {
      return hosts.current;
    },
    keepDatabase: () => line.keepDatabase(pool),
    close: async () => {
      await pulse.close();
      const ended = prisma.$disconnect().then(() => Promise.all(pools.map((each) => each.end())));
      await Promise.race([ended, sleep(CLOSE_MS, undefined, { ref: false })]);
      line.drop();
      await Promise.race([ended, sleep(CLOSE_MS, undefined, { ref: false })]);
    },
  };
}

function createLimiters(connections: number, streams: number, options: DatabaseOptions) {
  const common = { least: options.leastPace ?? LEAST_PACE, what: 'long lists' };
  // lists get half of the connections, so that other work never waits for lists
  const half = Math.max(Math.ceil(connections / 2), 1);
  // slow changes use at most two thirds of the connections, and quick changes at most a fifth, so that reads never wait
  // for changes
  const part = (parts: number) => Math.max(Math.floor(connections / parts), 1);
  const changes = { ...common, waitMs: options.statementMs ?? STATEMENT_MS, what: 'changes' };
  return {
    longReads: new LongReads({ ...common, slots: streams, waitMs: options.longListWaitMs ?? LONG_READ_WAIT_MS }),
    shortReads: new LongReads({ ...common, slots: half, waitMs: CONNECT_MS, what: 'lists' }),
    takers: new LongReads({ ...changes, slots: part(3), what: 'requests' }),
    changers: new LongReads({ ...changes, slots: part(3) }),
    keepers: new LongReads({ ...changes, slots: part(5) }),
    queries: new LongReads({ ...common, slots: QUERIES, waitMs: QUERY_WAIT_MS, what: 'queries' }),
  };
}

const hasRoom = (pool: pg.Pool) => pool.idleCount > pool.waitingCount || pool.totalCount < pool.options.max;

class WatchedPool extends pg.Pool {
  constructor(config: pg.PoolConfig) {
    super(config);
    // ignore these errors: the pool replaces an idle connection that fails, and a query on a failed connection reports
    // its own error
    this.on('error', () => {});
    this.on('connect', (client) => client.on('error', () => {}));
  }

  /** Runs a query again on another connection if a prepared statement has become invalid. */
  // biome-ignore lint/suspicious/noExplicitAny: only `any` covers all overloads of query()
  override async query(query: any, values?: any): Promise<any> {
    for (;;) {
      try {
        return await super.query(query, values);
      } catch (error) {
        if (!isUseless(error)) throw error;
      }
    }
  }

  // biome-ignore lint/suspicious/noExplicitAny: only `any` covers all overloads of connect()
  override connect(callback?: any): any {
    if (!callback) {
      return super.connect().catch((error) => {
        throw toUnavailable(error);
      });
    }
    // biome-ignore lint/suspicious/noExplicitAny: only `any` covers all overloads of connect()
    super.connect((error: any, ...rest) => callback(error && toUnavailable(error), ...rest));
  }
}
