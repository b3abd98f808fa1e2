/**
 * How far a server is, in the log of changes that it writes or follows. A standby that has replayed all that the primary had written at
 * some moment shows whatever was committed before it, whoever made it and through which process.
 */
import type pg from 'pg';
import { sql } from './sql.js';

/** Of which cluster a server is, and on which line of its history; positions of two lines cannot be compared. */
interface Place {
  /** One number for a cluster and all its copies. */
  system: bigint;
  /** It grows with each server that was promoted. */
  timeline: number;
  database: string;
}

export interface PrimaryPosition extends Place {
  /** Bytes of the log, all that is committed included. */
  written: bigint;
}

export interface StandbyPosition extends Place {
  /** False where it is no standby, or none any more. */
  isStandby: boolean;
  /** Bytes of the log. */
  replayed: bigint;
}

/** What is committed is on the primary's disk, unless commits wait for no disk: then it has at least been inserted. */
const primaryPosition = sql`SELECT s.system_identifier AS system, current_database()::text AS database,
    ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int AS timeline,
    pg_wal_lsn_diff(CASE current_setting('synchronous_commit') WHEN 'off' THEN pg_current_wal_insert_lsn()
      ELSE pg_current_wal_flush_lsn() END, '0/0') AS written
  FROM pg_control_system() s`;

/**
 * The timeline is the one from which changes come; where the role may not see that, the one of the last point up to which it has put them
 * on disk, which may be an older one for some minutes after another server was promoted, and never a newer one.
 */
const standbyPosition = sql`SELECT s.system_identifier AS system, current_database()::text AS database,
    coalesce((SELECT received_tli FROM pg_stat_wal_receiver), r.min_recovery_end_timeline) AS timeline,
    pg_is_in_recovery() AS "isStandby", coalesce(pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0'), 0) AS replayed
  FROM pg_control_system() s, pg_control_recovery() r`;

/** @throws where the server is no primary, or does not answer */
export async function readPrimaryPosition(pool: pg.Pool): Promise<PrimaryPosition> {
  return await readOne<PrimaryPosition>(pool, primaryPosition);
}

export async function readStandbyPosition(pool: pg.Pool): Promise<StandbyPosition> {
  return await readOne<StandbyPosition>(pool, standbyPosition);
}

async function readOne<Row extends object>(pool: pg.Pool, statement: typeof primaryPosition): Promise<Row> {
  const { rows } = await pool.query<Row>(statement);
  const [row] = rows;
  if (!row) throw new Error('a server did not say how far it is');
  return row;
}

/** Why lists cannot be read there whatever it has replayed; undefined where they can. */
export function findMismatch(standby: StandbyPosition, primary: PrimaryPosition): string | undefined {
  if (!standby.isStandby) return 'it is no standby';
  if (standby.system !== primary.system) return 'it is no copy of the server that takes writes';
  if (standby.database !== primary.database)
    return `it was asked for database ${standby.database}, not ${primary.database}`;
  if (standby.timeline !== primary.timeline)
    return `it follows timeline ${standby.timeline}, and the server that takes writes is on ${primary.timeline}`;
  return undefined;
}

/**
 * One question for all who ask while the one before is on its way: each is answered by one that was put after it had asked.
 */
export function askTogether<T>(ask: () => Promise<T>): () => Promise<T> {
  let asked: Promise<T> | undefined;
  let next: Promise<T> | undefined;
  const begin = () => {
    const own = ask().finally(() => {
      if (asked === own) asked = undefined;
    });
    asked = own;
    return own;
  };
  return () => {
    if (!asked) return begin();
    next ??= asked
      .catch(() => {}) // whoever asked that is told
      .then(() => {
        next = undefined;
        return begin();
      });
    return next;
  };
}
