/** One pool a process, shared by Prisma and by the raw SQL of sets, locks and speed. */
import { PrismaPg } from '@prisma/adapter-pg';
import pg from 'pg';
import { PrismaClient } from '../generated/prisma/client.js';
import { timeFromDatabase } from '../time.js';
import { LongReads } from './long-reads.js';

export interface Database {
  pool: pg.Pool;
  /** For long lists, whose pace is the reader's: however slow, they leave the other pool alone. */
  streamPool: pg.Pool;
  /** Who may read from it. */
  longReads: LongReads;
  /** For signs of life, which must not wait in line behind anything. */
  vitalPool: pg.Pool;
  prisma: PrismaClient;
  /** For connections outside the pool, with the same exact types. */
  config: pg.ClientConfig;
  close(): Promise<void>;
}

const TIMESTAMP = 1114;
const INT8 = 20;

/**
 * For raw queries: int8 as bigint, timestamps as text. Given to the pool rather than set globally, since Prisma's
 * adapter falls back to the global parsers and fails when int8 is a bigint there.
 */
const exactTypes: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') => {
    if (format !== 'binary' && oid === TIMESTAMP) return timeFromDatabase;
    if (format !== 'binary' && oid === INT8) return BigInt;
    return pg.types.getTypeParser(oid, format as 'text');
  }) as pg.CustomTypesConfig['getTypeParser'],
};

/** Prisma's adapter brings parsers of its own with each query, which would make a Date of a timestamp. */
class TextTimestampClient extends pg.Client {
  // biome-ignore lint/suspicious/noExplicitAny: the overloads of query() cannot be written otherwise
  override query(query: any, ...rest: any[]): any {
    const inner = query?.types;
    if (inner?.getTypeParser && inner !== exactTypes) {
      query.types = {
        getTypeParser: (oid: number, format: string) =>
          oid === TIMESTAMP && format === 'text' ? timeFromDatabase : inner.getTypeParser(oid, format),
      };
    }
    // biome-ignore lint/suspicious/noExplicitAny: see above
    return (super.query as any)(query, ...rest);
  }
}

/**
 * A process that stands still in a transaction, or whose host is gone, loses the transaction and its locks after this,
 * and nobody waits for it any longer. Streams have readers that may be slow, and hold no locks.
 */
const STANDSTILL_MS = 60_000;

/** A sign of life that takes longer is given up, and the next one is given on a connection of its own. */
const VITAL_MS = 3000;

/** Slow readers of one gateway; two gateways on a PostgreSQL as it comes, with 100 connections, leave room for engines. */
const LONG_READS = 16;
const LONG_READ_WAIT_MS = 5000;

export function openDatabase(config: pg.ClientConfig): Database {
  const exact: pg.ClientConfig = { ...config, types: exactTypes, keepAlive: true };
  const pool = new pg.Pool({
    ...exact,
    max: 20,
    idle_in_transaction_session_timeout: STANDSTILL_MS,
    Client: TextTimestampClient,
  } as pg.PoolConfig);
  const streamPool = new pg.Pool({ ...exact, max: LONG_READS });
  const vitalPool = new pg.Pool({
    ...exact,
    max: 1,
    connectionTimeoutMillis: VITAL_MS,
    statement_timeout: VITAL_MS,
    query_timeout: VITAL_MS,
  });
  for (const each of [pool, streamPool, vitalPool]) {
    // a connection that breaks while idle is replaced, and one that breaks while lent fails its query
    each.on('error', () => {});
    each.on('connect', (client) => client.on('error', () => {}));
  }
  const prisma = new PrismaClient({ adapter: new PrismaPg(pool) });
  return {
    pool,
    streamPool,
    longReads: new LongReads({ places: LONG_READS, waitMs: LONG_READ_WAIT_MS }),
    vitalPool,
    prisma,
    config: exact,
    close: async () => {
      await prisma.$disconnect();
      await Promise.all([pool.end(), streamPool.end(), vitalPool.end()]);
    },
  };
}
