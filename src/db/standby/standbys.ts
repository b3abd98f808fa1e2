/**
 * Reads lists from the standbys in the setting TAPEGATE_DATABASE_READ_URL. A standby serves a list only if it has all
 * changes that were committed before the client's request. If no standby can serve the list, the primary serves it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { splitHosts } from '../../config/database-url.js';
import { type FailureLog, messageOf } from '../../core/errors.js';
import { hostName } from '../hosts.js';
import { type Database, type DatabaseOptions, openDatabase } from '../pools.js';
import { requireSessions } from '../sessions.js';
import { type Sql, sql } from '../sql.js';

interface StandbysOptions extends Omit<DatabaseOptions, 'log' | 'lostMs'> {
  url: string;
  waitMs: number;
  log: FailureLog;
}

interface StandbyStatus {
  host: string;
  /** Reason why lists are not read from this standby; undefined if the standby is usable. */
  problem: string | undefined;
  /** Bytes of WAL that the standby had not replayed at the last check; undefined if the standby did not answer. */
  behindBytes: bigint | undefined;
}

/**
 * Value of `problem` for a standby that has not replayed all of the primary's changes yet. The method `report` does not
 * log this problem.
 */
const BEHIND = 'it lags behind';
const CHECK_MS = 1000;
const LOST_MS = 5000;
const ANSWER_MS = 100;
const STEP_MS = { first: 1, last: 20 };
/** A log that discards all messages. The standbys' connections use it, because `report` logs a standby's problems. */
const quiet = { warn: () => {}, error: () => {} };

export class Standbys {
  private readonly primary: Database;
  private readonly options: StandbysOptions;
  private readonly all: readonly Standby[];
  private readonly closed = new AbortController();
  private readonly checking: Promise<void>;
  private turn = 0;

  constructor(primary: Database, options: StandbysOptions) {
    this.primary = primary;
    this.options = options;
    this.all = splitHosts(options.url).map((url) => new Standby(url, options));
    this.checking = this.checkAll();
  }

  get status(): StandbyStatus[] {
    return this.all.map(({ host, problem, behindBytes }) => ({ host, problem, behindBytes }));
  }

  /**
   * Returns the next usable standby, in round-robin order. Returns undefined if no standby is usable, or if the chosen
   * standby does not replay all committed changes within `waitMs`.
   */
  async choose(): Promise<Standby | undefined> {
    const usable = this.all.filter(({ problem }) => problem === undefined);
    const standby = usable[this.turn++ % usable.length];
    if (!standby) return undefined;
    return (await standby.catchUp(this.primary, this.options.waitMs)) ? standby : undefined;
  }

  async close(): Promise<void> {
    this.closed.abort();
    await this.checking;
    await Promise.all(this.all.map(({ db }) => db.close()));
  }

  private async checkAll(): Promise<void> {
    const { signal } = this.closed;
    while (!signal.aborted) {
      await Promise.all(this.all.map((standby) => standby.catchUp(this.primary, this.options.waitMs)));
      if (!signal.aborted) for (const standby of this.all) this.report(standby);
      await sleep(CHECK_MS, undefined, { signal, ref: false }).catch(() => {}); // ignored: only `close` aborts it
    }
  }

  private report(standby: Standby): void {
    const { host, problem, reported } = standby;
    if (problem === BEHIND || reported === (problem ?? 'none')) return;
    standby.reported = problem ?? 'none';
    if (problem === undefined) this.options.log.warn({ host }, 'lists are read from this standby');
    else this.options.log.warn({ host, problem }, 'lists are not read from this standby');
  }
}

class Standby implements StandbyStatus {
  readonly host: string;
  readonly db: Database;
  problem: string | undefined = BEHIND;
  behindBytes: bigint | undefined;
  private readonly url: string;
  private hasSessions = false;
  /**
   * The last problem that was logged for this standby; `none` if the last log message said that lists are read from it.
   */
  reported: string | undefined;

  constructor(url: string, options: Omit<DatabaseOptions, 'log' | 'lostMs'>) {
    this.url = url;
    this.host = hostName({ connectionString: url });
    this.db = openDatabase({ connectionString: url }, { ...options, lostMs: LOST_MS, log: quiet });
    this.db.pulse.follow();
  }

  /**
   * Waits until the standby has replayed all changes that the primary had committed when the call began.
   * @returns whether lists can be read from the standby
   */
  async catchUp(primary: Database, waitMs: number): Promise<boolean> {
    const until = performance.now() + waitMs;
    let problem: string | undefined;
    try {
      if (!this.hasSessions) await inTime(requireSessions({ connectionString: this.url }), CHECK_MS);
      this.hasSessions = true;
      const target = await readPosition(primary.pool, PRIMARY).catch(() => undefined);
      problem = target ? await this.follow(target, until) : BEHIND;
    } catch (error) {
      this.behindBytes = undefined;
      problem = messageOf(error);
    }
    this.problem = problem;
    return problem === undefined;
  }

  private async follow(primary: Position, until: number): Promise<string | undefined> {
    for (let stepMs = STEP_MS.first; ; stepMs = Math.min(stepMs * 2, STEP_MS.last)) {
      const limitMs = Math.max(until - performance.now(), ANSWER_MS);
      const standby = await inTime(readPosition(this.db.pool, STANDBY), limitMs);
      this.behindBytes = primary.reached > standby.reached ? primary.reached - standby.reached : 0n;
      const mismatch = findMismatch(standby, primary);
      if (mismatch !== undefined || this.behindBytes === 0n) return mismatch;
      if (performance.now() + stepMs > until) return BEHIND;
      await sleep(stepMs);
    }
  }
}

async function inTime<T>(answer: Promise<T>, ms: number): Promise<T> {
  const late = sleep(ms, undefined, { ref: false }).then(() => {
    throw new Error('the server did not answer in time');
  });
  for (const each of [answer, late]) each.catch(() => {});
  return await Promise.race([answer, late]);
}

/** A server's position in the WAL. Positions in different clusters or timelines cannot be compared. */
export interface Position {
  isStandby: boolean;
  /** System identifier of the PostgreSQL cluster. A standby has the same system identifier as its primary. */
  system: bigint;
  /** Timeline number of the server. A standby's promotion to primary increases the number. */
  timeline: number;
  database: string;
  /** Position in the WAL, in bytes, up to which a primary has flushed the WAL or a standby has replayed it. */
  reached: bigint;
}

/**
 * Reads the primary's position. The flush position includes all commits, because a commit returns only
 * after its WAL is flushed (`synchronous_commit`, see db/session-settings.ts).
 */
const PRIMARY = sql`SELECT pg_is_in_recovery() AS "isStandby", s.system_identifier AS system, current_database()::text AS database,
    ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int AS timeline,
    pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0') AS reached
  FROM pg_control_system() s`;

/**
 * Reads a standby's position, with the timeline of the server that the standby follows. If the database role is not
 * allowed to read that timeline, reads the timeline of the standby's last restart point. After the primary's promotion,
 * the restart point's timeline can be outdated for some minutes.
 */
const STANDBY = sql`SELECT pg_is_in_recovery() AS "isStandby", s.system_identifier AS system, current_database()::text AS database,
    coalesce((SELECT received_tli FROM pg_stat_wal_receiver), r.min_recovery_end_timeline) AS timeline,
    coalesce(pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0'), 0) AS reached
  FROM pg_control_system() s, pg_control_recovery() r`;

async function readPosition(pool: pg.Pool, statement: Sql): Promise<Position> {
  const { rows } = await pool.query<Position>(statement);
  const [position] = rows;
  if (!position) throw new Error('a server did not report its WAL position');
  return position;
}

/** Returns the reason why a server cannot serve lists as a standby of the primary; undefined if it can. */
export function findMismatch(standby: Position, primary: Position): string | undefined {
  if (!standby.isStandby) return 'the server is not a standby';
  if (standby.system !== primary.system) return 'the server is not a standby of the primary';
  if (standby.database !== primary.database)
    return `the URL of the standby names database ${standby.database}, not ${primary.database}`;
  if (standby.timeline !== primary.timeline)
    return `the standby follows timeline ${standby.timeline}, but the primary is on timeline ${primary.timeline}`;
  return undefined;
}
