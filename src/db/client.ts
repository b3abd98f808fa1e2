/** One connection pool a process for Prisma and raw SQL, and separate ones for long lists, imports and heartbeats. */
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
import { type LeastPace, LongReads } from './long-reads.js';
import { isUseless } from './prepared.js';
import { Pulse } from './pulse.js';

/**
 * Prisma's query compiler is WebAssembly, and V8 optimizes a function of it after this many bytes have run. V8's
 * default doubles the CPU time of a short command (0.70 s instead of 0.39). With a hundred times the default, a server
 * still reaches the limit within its first queries under load.
 */
setFlagsFromString('--wasm-tiering-budget=180000000');

export interface Database {
  pool: pg.Pool;
  /** Runs a statement in `pool`, and returns its rows. */
  rows<Row extends pg.QueryResultRow>(statement: pg.QueryConfig): Promise<Row[]>;
  /**
   * For long lists, which run at the reader's pace and must not occupy the main pool. Not pipelined: COPY cannot be.
   */
  streamPool: pg.Pool;
  /** For imports, which use COPY. Not pipelined either. */
  importPool: pg.Pool;
  /** Limiter of `streamPool`. */
  longReads: LongReads;
  /** Limiter of lists in `pool` that may turn out short. */
  looks: LongReads;
  /** Limiter of transactions in `pool` that wait for the catalogue's lock. */
  takers: LongReads;
  /** Limiter of transactions in `pool` that may wait long for any other lock. */
  changers: LongReads;
  /** Limiter of transactions in `pool` that never wait long for a lock. */
  keepers: LongReads;
  /** Limiter of GraphQL queries; most are short. */
  queries: LongReads;
  /** Opens a connection while `pool` has none, for statements that must not wait for other work. */
  vitalPool: pg.Pool;
  /** `pool`, or `vitalPool` while all connections of `pool` are in use. */
  urgentPool(): pg.Pool;
  /** Runs a heartbeat, which fails after seconds, in `urgentPool`, and returns its rows. */
  vitalRows<Row extends pg.QueryResultRow>(statement: pg.QueryConfig): Promise<Row[]>;
  prisma: PrismaClient;
  pulse: Pulse;
  clock: DatabaseClock;
  /** For connections outside the pools, with `config`. */
  Client: typeof pg.Client;
  config: pg.ClientConfig;
  /** Refuses connections to another database from now on, such as one that replaced its files. */
  keepDatabase(): Promise<void>;
  /** Returns within seconds even if the database does not answer. */
  close(): Promise<void>;
}

export interface DatabaseOptions {
  log: FailureLog;
  /** The database counts as lost if it does not answer for so long. Default 10,000. */
  lostMs?: number;
  /** Limit for a statement. Default 300,000. */
  statementMs?: number;
  /** Connections for short work. Default 20. */
  poolSize?: number;
  /** Connections for long lists. Default 16. */
  longLists?: number;
  /** Limits the wait for a long-list connection. Default 5000. */
  longListWaitMs?: number;
  /** Minimum rate at which a client must read a long list while others wait for a slot. Default 16 kB/s over a minute. */
  leastPace?: LeastPace;
}

/**
 * A stalled process loses its transaction and locks after this time. Streams have no such limit: readers may be slow,
 * and streams hold no locks.
 */
const STANDSTILL_MS = 60_000;

/**
 * Limit for a statement, waits for locks included. An import has no limit. For a list, the limit applies to each page.
 */
const STATEMENT_MS = 300_000;
const CONNECT_MS = 30_000;
/** A dead peer of an idle connection is detected within this time and ten seconds. */
const KEEP_ALIVE_MS = 10_000;
/**
 * Cached Prisma plans, one for each form of query. Applications have some dozens; a plan takes 5 kB or more, and 1 ms
 * to make.
 */
const PLANS = 250;
/** Limit for a heartbeat. The next one opens a new connection. */
const VITAL_MS = 3000;
/** An ending process waits no longer than this for a database that does not answer. */
const CLOSE_MS = 3000;

/** Readers of one gateway. Two gateways leave room for engines in PostgreSQL's default of 100 connections. */
const LONG_LISTS = 16;
/** A gateway runs one import at a time. */
const IMPORTS = 4;
/** For short work. */
const SHORT_WORK = 20;
/** For short work of a process of an engine. */
export const ENGINE_POOL = 6;
/** Notifications and whether the database answers; heartbeats while the pool has no free connection. */
const VITAL_CONNECTIONS = 2;
const LONG_READ_WAIT_MS = 5000;
/** Queries that are executed at once. */
const QUERIES = 64;
const QUERY_WAIT_MS = 10_000;
/** At 256 kB/s, a slow line, ten million files take some hours. */
const LEAST_PACE: LeastPace = { windowMs: 60_000, bytesPerSecond: 16 * 1024 };

/** The maximum number of connections of a process, by kind. */
export const mostConnections = {
  gateway: (longLists: number): number => SHORT_WORK + longLists + IMPORTS + VITAL_CONNECTIONS,
  /** A process of an engine: a drive, or the jobs. */
  engine: ENGINE_POOL + VITAL_CONNECTIONS,
};

/** A process that waits for work holds one that listens, and one with which it looks for work. */
export const IDLE_CONNECTIONS = 2;

function hostsOf(config: pg.ClientConfig): DatabaseHosts {
  const { connectionString } = config;
  if (connectionString === undefined) return new DatabaseHosts([config]);
  const [first = connectionString, ...others] = splitHosts(connectionString);
  const hostOf = (url: string) => ({ ...config, connectionString: url });
  return new DatabaseHosts([hostOf(first), ...others.map(hostOf)]);
}

/**
 * Opens the pools; connections are made on demand, and `pulse.start` reports whether the database answers.
 * While the database is lost, every query and every wait for a connection fails with an `UnavailableError`.
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
    /** Of the server that takes writes, once it is known. */
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

/** Creates the limiters for pools of the given sizes. */
function createLimiters(connections: number, streams: number, options: DatabaseOptions) {
  const common = { least: options.leastPace ?? LEAST_PACE, what: 'long lists' };
  // lists get half of the connections, so that other work never waits for them
  const half = Math.max(Math.ceil(connections / 2), 1);
  // a third for each kind of change that may wait long, a fifth for the others, so that reads never wait for changes
  const part = (parts: number) => Math.max(Math.floor(connections / parts), 1);
  const changes = { ...common, waitMs: options.statementMs ?? STATEMENT_MS, what: 'changes' };
  return {
    longReads: new LongReads({ ...common, slots: streams, waitMs: options.longListWaitMs ?? LONG_READ_WAIT_MS }),
    looks: new LongReads({ ...common, slots: half, waitMs: CONNECT_MS, what: 'lists' }),
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
    // the pool replaces a connection that breaks while idle; a query on a broken connection fails with its own error
    this.on('error', () => {});
    this.on('connect', (client) => client.on('error', () => {}));
  }

  /** Retries on another connection if a prepared statement has become invalid. */
  // biome-ignore lint/suspicious/noExplicitAny: the overloads of query() cannot be written otherwise
  override async query(query: any, values?: any): Promise<any> {
    for (;;) {
      try {
        return await super.query(query, values);
      } catch (error) {
        if (!isUseless(error)) throw error;
      }
    }
  }

  // biome-ignore lint/suspicious/noExplicitAny: the overloads of connect() cannot be written otherwise
  override connect(callback?: any): any {
    if (!callback) {
      return super.connect().catch((error) => {
        throw toUnavailable(error);
      });
    }
    // biome-ignore lint/suspicious/noExplicitAny: see above
    super.connect((error: any, ...rest) => callback(error && toUnavailable(error), ...rest));
  }
}
