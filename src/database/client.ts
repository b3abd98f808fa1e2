/** One pool a process, shared by Prisma and by the raw SQL of sets, locks and speed. */
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { PrismaPg } from '@prisma/adapter-pg';
import pg from 'pg';
import { splitHosts } from '../database-url.js';
import type { FailureLog } from '../errors.js';
import { PrismaClient } from '../generated/prisma/client.js';
import { DatabaseClock } from './clock.js';
import { DatabaseHosts } from './hosts.js';
import { exactTypes, Line, toUnavailable } from './line.js';
import { type LeastPace, LongReads } from './long-reads.js';
import { isUseless } from './prepared.js';
import { Pulse } from './pulse.js';

/**
 * Prisma's query compiler is WebAssembly, and V8 compiles a function of it anew, the better way, once so many bytes of it have
 * run. With the default that is at once, and half of what a command costs (0.39 s of a processor instead of 0.70); with a
 * hundred times as many a server gets there within its first queries under load.
 */
setFlagsFromString('--wasm-tiering-budget=180000000');

export interface Database {
  pool: pg.Pool;
  /** For long lists, whose pace is the reader's: however slow, they leave the other pool alone. Not pipelined, which COPY does not bear. */
  streamPool: pg.Pool;
  /** For imports, which COPY their rows. Not pipelined either. */
  importPool: pg.Pool;
  /** Who may read from it. */
  longReads: LongReads;
  /** Who may look in the other pool whether a list is short. */
  looks: LongReads;
  /** Who may wait in the other pool for the catalogue's lock. */
  takers: LongReads;
  /** Who may wait there for anything else that somebody has locked. */
  changers: LongReads;
  /** Who changes there what nobody keeps locked. */
  keepers: LongReads;
  /** For signs of life, which must not wait in line behind anything. */
  vitalPool: pg.Pool;
  prisma: PrismaClient;
  /** Whether the database answers. */
  pulse: Pulse;
  /** What time it has. */
  clock: DatabaseClock;
  /** For connections outside the pools: their class and what it is given. */
  Client: typeof pg.Client;
  config: pg.ClientConfig;
  /** Returns in time, also where the database does not answer. */
  close(): Promise<void>;
}

export interface DatabaseOptions {
  log: FailureLog;
  /** A database that is silent for so long is lost; 10 seconds unless given. */
  lostMs?: number;
  /** What a statement may take; five minutes unless given. */
  statementMs?: number;
  /** Connections for all that is short; 20 unless given. */
  poolSize?: number;
  /** Connections for long lists; 16 unless given. */
  longLists?: number;
  /** Limits the wait for one of them, in milliseconds. Default 5000. */
  longListWaitMs?: number;
  /** What a reader of a long list is to take while others wait for a place; 16 kB/s over a minute unless given. */
  leastPace?: LeastPace;
}

/**
 * A process that stands still in a transaction, or whose host is gone, loses the transaction and its locks after this,
 * and nobody waits for it any longer. Streams have readers that may be slow, and hold no locks.
 */
const STANDSTILL_MS = 60_000;

/**
 * A statement that takes longer fails, its wait for locks included. An import has as long as it takes, and a page of a list
 * as long as a statement.
 */
const STATEMENT_MS = 300_000;
/** A wait for a free connection, or for a new one. */
const CONNECT_MS = 30_000;
/** An idle connection whose other end is gone is found out in this time and ten seconds. */
const KEEP_ALIVE_MS = 10_000;
/** Plans of Prisma's, one for each form of query. Applications have some dozens; one takes 5 kB and more, and a millisecond to be made. */
const PLANS = 250;
/** A sign of life that takes longer is given up, and the next one is given on a connection of its own. */
const VITAL_MS = 3000;
/** A database that does not answer is not waited for any longer when a process ends. */
const CLOSE_MS = 3000;

/** Readers of one gateway; two gateways on a PostgreSQL as it comes, with 100 connections, leave room for engines. */
const LONG_LISTS = 16;
/** A gateway takes one import at a time. */
const IMPORTS = 4;
const LONG_READ_WAIT_MS = 5000;
/** Of a reader of a long list while others wait; at 256 kB/s, a line as slow as any, ten million files are read in some hours. */
const LEAST_PACE: LeastPace = { windowMs: 60_000, bytesPerSecond: 16 * 1024 };

/** The servers of a database; one where no URL names several. */
function hostsOf(config: pg.ClientConfig): DatabaseHosts {
  const { connectionString } = config;
  if (connectionString === undefined) return new DatabaseHosts([config]);
  const [first = connectionString, ...others] = splitHosts(connectionString);
  const hostOf = (url: string) => ({ ...config, connectionString: url });
  return new DatabaseHosts([hostOf(first), ...others.map(hostOf)]);
}

/**
 * Opens the way to a database; connections are made when they are needed, and `pulse.start` says whether there is one.
 * Of a database that is lost, every query and every wait for one fails with an `UnavailableError`.
 */
export function openDatabase(config: pg.ClientConfig, options: DatabaseOptions): Database {
  const { statementMs = STATEMENT_MS } = options;
  const hosts = hostsOf({
    ...config,
    types: exactTypes,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
    connectionTimeoutMillis: CONNECT_MS,
    statement_timeout: statementMs,
  });
  const exact = hosts.current;
  const [line, clock] = [new Line(hosts), new DatabaseClock()];
  const bounded = { ...exact, Client: line.Client };
  const pool = new WatchedPool({
    ...bounded,
    pipeline: true,
    max: options.poolSize ?? 20,
    idle_in_transaction_session_timeout: STANDSTILL_MS,
  });
  const streamPool = new WatchedPool({ ...bounded, max: options.longLists ?? LONG_LISTS });
  const importPool = new WatchedPool({ ...bounded, max: IMPORTS, idle_in_transaction_session_timeout: STANDSTILL_MS });
  const places = { least: options.leastPace ?? LEAST_PACE, what: 'long lists' };
  // half of the connections, so that what is no list never waits for lists
  const half = Math.max(Math.ceil(pool.options.max / 2), 1);
  // a third for each of those who may wait for long, a fifth for those who do not, so that what only reads never waits for them
  const partOfPool = (parts: number) => Math.max(Math.floor(pool.options.max / parts), 1);
  const changes = { ...places, waitMs: statementMs, doing: 'making' };
  const vital = { connectionTimeoutMillis: VITAL_MS, statement_timeout: VITAL_MS, query_timeout: VITAL_MS };
  const vitalPool = new WatchedPool({ ...bounded, ...vital, max: 1 });
  const pools = [pool, streamPool, importPool, vitalPool];
  const prisma = new PrismaClient({ adapter: new PrismaPg(pool), queryPlanCacheMaxSize: PLANS });
  const pulse = new Pulse({ hosts, line, clock, ...options });
  return {
    pool,
    streamPool,
    importPool,
    longReads: new LongReads({
      ...places,
      places: streamPool.options.max,
      waitMs: options.longListWaitMs ?? LONG_READ_WAIT_MS,
    }),
    looks: new LongReads({ ...places, places: half, waitMs: CONNECT_MS, what: 'lists' }),
    takers: new LongReads({ ...changes, places: partOfPool(3), what: 'requests' }),
    changers: new LongReads({ ...changes, places: partOfPool(3), what: 'changes' }),
    keepers: new LongReads({ ...changes, places: partOfPool(5), what: 'changes' }),
    vitalPool,
    prisma,
    pulse,
    clock,
    Client: line.Client,
    config: exact,
    close: async () => {
      await pulse.close();
      const ended = prisma.$disconnect().then(() => Promise.all(pools.map((each) => each.end())));
      await Promise.race([ended, sleep(CLOSE_MS, undefined, { ref: false })]);
      line.drop();
      await Promise.race([ended, sleep(CLOSE_MS, undefined, { ref: false })]);
    },
  };
}

class WatchedPool extends pg.Pool {
  constructor(config: pg.PoolConfig) {
    super(config);
    // a connection that breaks while idle is replaced, and one that breaks while lent fails its query
    this.on('error', () => {});
    this.on('connect', (client) => client.on('error', () => {}));
  }

  /** A connection on which what was prepared has become useless is replaced. */
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
