/**
 * Watches the database server's clock. Each process compares the time that passes on the server's clock with the time
 * that passes on its host (db/clock.ts). If the server's clock jumps, all processes ignore the jump, and continue from
 * the time before the jump. The jump also suspends the clock (a suspension of kind CLOCK). While the clock is
 * suspended, no job deletes files or ends requests by age. A suspension ends when the server's clock has been steady
 * for some minutes, or when an operator resumes the clock.
 */

import { logFailure } from '../core/errors.js';
import { addSeconds, secondsBetween, secondsOf } from '../core/time.js';
import { type HostTime, JUMP_SECONDS, readBoot, readHostTime, secondsPassed } from '../db/clock.js';
import { sql } from '../db/sql.js';
import type { Context } from './context.js';
import { suspendFailing } from './health/suspensions.js';

export const DATABASE_CLOCK = { kind: 'CLOCK', name: 'database' } as const;

/** Seconds for which the server's clock must be plausible before jobs delete files and end requests again. */
const STEADY_SECONDS = 300;
/**
 * Maximum jump, in seconds, that a process always accepts after the server's clock has been steady for some minutes. A
 * suspended virtual machine or a late NTP correction can cause a small jump.
 */
const SMALL_JUMP_SECONDS = 3600;
const RECORD_SECONDS = 10;
/** Seconds between two reads of the stored readings while the clock is plausible, and nothing is suspended or resumed. */
const READ_SECONDS = 5;
const KEPT_DAYS = 30;

interface ClockReading extends HostTime {
  boot: string;
  at: string;
  ahead: number;
  /**
   * The host's clock in seconds since 1970, extrapolated from the first reading after the host booted. Null if the
   * server's clock had already jumped when the first reading was made.
   */
  hostSeconds: number | null;
  madeAt: string;
}

interface ClockSuspension {
  suspendedUntil: string | null;
  isSuspended: boolean;
}

export class ClockWatch {
  private readonly ctx: Context;
  private readonly boot = readBoot();
  private readonly steadySeconds: number;
  private isJudged = false;
  private isChecking = false;
  private checkedAt = Number.NEGATIVE_INFINITY;
  private madeAt: string | undefined;
  private recordedAt = Number.NEGATIVE_INFINITY;
  private settlesUntil = Number.NEGATIVE_INFINITY;
  /**
   * `ahead` is the number of seconds by which the server's clock is ahead of the expected time. `since` is the time at
   * which this process first measured this number.
   */
  private jump: { ahead: number; since: number } | undefined;
  /**
   * `suspendedUntil` is the end of the clock's suspension, as last read from the database. `since` is the time at which
   * this process first read that end.
   */
  private quiet: { suspendedUntil: string | null; since: number } | undefined;

  constructor(ctx: Context, { steadySeconds = STEADY_SECONDS } = {}) {
    this.ctx = ctx;
    this.steadySeconds = steadySeconds;
  }

  /** Checks the clock now, and then at each heartbeat of the database connection. */
  async begin(): Promise<void> {
    const { pulse } = this.ctx.db;
    await this.check();
    this.ctx.events.onNotify('suspension', () => {
      this.checkedAt = Number.NEGATIVE_INFINITY;
    });
    pulse.onBeat = async () => {
      if (this.isChecking || !this.isDue) return;
      this.isChecking = true;
      await this.check()
        .catch((error) => logFailure(this.ctx.log, error, 'cannot check the clock'))
        .finally(() => {
          this.isChecking = false;
        });
    };
  }

  /**
   * Checks the server's clock once, by comparing it with the readings in the database. Short commands call this method
   * instead of `begin`.
   */
  async adopt(): Promise<void> {
    const { readings, suspension } = await this.read();
    this.judge(readings, suspension);
  }

  private get isDue(): boolean {
    const { clock } = this.ctx.db;
    return clock.aheadSeconds !== 0 || !clock.isPlausible || seconds() - this.checkedAt >= READ_SECONDS;
  }

  private async check(): Promise<void> {
    const { clock } = this.ctx.db;
    this.checkedAt = seconds();
    const { readings, suspension } = await this.read();
    const own = readings.find(({ boot }) => boot === this.boot);
    if (!this.isJudged) this.judge(readings, suspension);
    else if (this.madeAt !== undefined && own?.madeAt !== this.madeAt)
      this.accept('an operator has confirmed the time');
    this.madeAt = own?.madeAt;
    if (clock.aheadSeconds !== 0 && this.isSettled(clock.aheadSeconds, own))
      this.accept('the clock has been steady since the jump');
    const isSuspended = suspension.isSuspended && !(await this.release(suspension));
    if (clock.aheadSeconds !== 0) await this.report(suspension, own);
    else if (!suspension.isSuspended && !(own && this.isRecent(own))) await this.record(own);
    clock.isPlausible = clock.aheadSeconds === 0 && !isSuspended && seconds() >= this.settlesUntil;
  }

  private async read(): Promise<{ readings: ClockReading[]; suspension: ClockSuspension }> {
    const rows = await this.ctx.db.rows<ClockSuspension & { readings: ClockReading[] }>(
      sql`SELECT s.name IS NOT NULL AS "isSuspended", s.retry_at AS "suspendedUntil", coalesce((
            SELECT json_agg(json_build_object('boot', c.boot, 'at', to_char(c.at, 'YYYY-MM-DD"T"HH24:MI:SS.US'), 'ahead', c.ahead_seconds,
              'running', c.running_seconds, 'elapsed', c.elapsed_seconds, 'hostSeconds', c.host_seconds, 'madeAt', c.made_at) ORDER BY c.at DESC) FROM clock_reading c), '[]') AS readings
          FROM (SELECT) one LEFT JOIN suspension s ON s.kind = ${DATABASE_CLOCK.kind} AND s.name = ${DATABASE_CLOCK.name}`,
    );
    const { readings = [], ...suspension } = rows[0] ?? { isSuspended: false, suspendedUntil: null };
    return { readings, suspension };
  }

  /**
   * Compares this process's first reading of the server's clock with the stored readings. If the server's clock
   * contradicts the stored readings, this process uses the time that follows from the readings.
   */
  private judge(readings: readonly ClockReading[], suspension: ClockSuspension): void {
    this.isJudged = true;
    const { clock } = this.ctx.db;
    const [last] = readings;
    const own = readings.find(({ boot }) => boot === this.boot);
    const [server, host] = [clock.serverSeconds, readHostTime()];
    if (own && host.running >= own.running) {
      const expected = secondsOf(own.at) + secondsPassed(own, host);
      if (Math.abs(server - expected) > JUMP_SECONDS) clock.hold(expected);
    } else if (last) {
      const isStillAhead = suspension.isSuspended && last.ahead !== 0;
      const expected = expectedAfterStart(server, {
        last: secondsOf(last.at),
        ahead: isStillAhead ? last.ahead : 0,
        host: Date.now() / 1000,
      });
      if (expected === undefined) return;
      if (expected === 'unknown') this.settlesUntil = seconds() + this.steadySeconds;
      else clock.hold(expected);
    }
  }

  private accept(why: string): void {
    const { db, log } = this.ctx;
    if (db.clock.aheadSeconds !== 0)
      log.warn({ aheadSeconds: db.clock.aheadSeconds }, `the database clock is accepted: ${why}`);
    db.clock.accept();
    this.jump = undefined;
  }

  /**
   * Returns whether to accept the server's time after a clock jump. The clock must have been steady since the jump for
   * some minutes. A jump of up to SMALL_JUMP_SECONDS is then accepted. A larger jump is accepted only if this host's
   * clock agrees with the server's clock. The host's clock must also have been left unchanged since its first reading.
   */
  private isSettled(ahead: number, own: ClockReading | undefined): boolean {
    if (this.jump === undefined || Math.abs(ahead - this.jump.ahead) > JUMP_SECONDS)
      this.jump = { ahead, since: seconds() };
    if (seconds() - this.jump.since < this.steadySeconds) return false;
    const hostSeconds = Date.now() / 1000;
    const unset = hostSecondsNow(own);
    const wasSet = unset === null || Math.abs(hostSeconds - unset) > JUMP_SECONDS;
    const agrees = Math.abs(hostSeconds - this.ctx.db.clock.serverSeconds) <= JUMP_SECONDS;
    return Math.abs(ahead) <= SMALL_JUMP_SECONDS || (agrees && !wasSet);
  }

  private async report({ isSuspended, suspendedUntil }: ClockSuspension, own: ClockReading | undefined): Promise<void> {
    if (seconds() - this.recordedAt < RECORD_SECONDS && isSuspended) return;
    this.recordedAt = seconds();
    const { db } = this.ctx;
    const retryAt = addSeconds(this.ctx.db.clock.now(), this.steadySeconds);
    await this.record(own, db.clock.aheadSeconds);
    if (!isSuspended)
      await suspendFailing(this.ctx, DATABASE_CLOCK, { problem: describeJump(db.clock.aheadSeconds), retryAt });
    else if (suspendedUntil !== null)
      await db.pool.query(
        sql`UPDATE suspension SET retry_at = ${retryAt}
            WHERE kind = ${DATABASE_CLOCK.kind} AND name = ${DATABASE_CLOCK.name} AND retry_at IS NOT NULL`,
      );
  }

  /**
   * Ends the clock's suspension if no process has extended it for some minutes.
   * @returns whether the suspension has ended
   */
  private async release({ suspendedUntil }: ClockSuspension): Promise<boolean> {
    // an operator suspended the clock, so only an operator may resume it
    if (suspendedUntil === null) return false;
    if (this.quiet?.suspendedUntil !== suspendedUntil) this.quiet = { suspendedUntil, since: seconds() };
    if (this.ctx.db.clock.aheadSeconds !== 0 || seconds() - this.quiet.since < this.steadySeconds) return false;
    const { rowCount } = await this.ctx.db.pool.query(
      sql`WITH ended AS (
            DELETE FROM suspension WHERE kind = ${DATABASE_CLOCK.kind} AND name = ${DATABASE_CLOCK.name} AND retry_at = ${suspendedUntil}::timestamp RETURNING name
          ), plausible AS (
            UPDATE clock_reading SET ahead_seconds = 0 WHERE ahead_seconds <> 0 AND EXISTS (SELECT FROM ended)
          ) SELECT FROM ended`,
    );
    if (rowCount !== 0) this.ctx.log.warn('the database clock is plausible again');
    return true;
  }

  private isRecent({ at }: ClockReading): boolean {
    return Math.abs(secondsBetween(at, this.ctx.db.clock.now())) < RECORD_SECONDS;
  }

  private async record(own: ClockReading | undefined, ahead = 0): Promise<void> {
    const { running, elapsed } = readHostTime();
    // if the server's clock has jumped, do not store the time of the host's clock, because the host's clock might also
    // have jumped
    const hostSeconds = hostSecondsNow(own) ?? (ahead === 0 ? Date.now() / 1000 : null);
    const now = this.ctx.db.clock.now();
    await this.ctx.db.pool.query(
      sql`WITH old AS (DELETE FROM clock_reading WHERE at < ${now}::timestamp - make_interval(days => ${KEPT_DAYS}) AND boot <> ${this.boot})
          INSERT INTO clock_reading (boot, at, running_seconds, elapsed_seconds, ahead_seconds, host_seconds, made_at)
          VALUES (${this.boot}, ${now}, ${running}, ${elapsed}, ${ahead}, ${hostSeconds}, timezone('utc', clock_timestamp()))
          ON CONFLICT (boot) DO UPDATE SET at = excluded.at, running_seconds = excluded.running_seconds,
            elapsed_seconds = excluded.elapsed_seconds, ahead_seconds = excluded.ahead_seconds, host_seconds = excluded.host_seconds`,
    );
  }
}

/**
 * Checks the server's time when a process starts on a host without a stored reading. All times are in seconds since
 * 1970.
 * @param known `last`: time of the last stored reading; `ahead`: seconds by which the server's clock was known to be
 * ahead; `host`: time on this host's clock
 * @returns the time from which the process must continue; undefined if the server's time is right; `unknown` if the
 * right time cannot be determined yet
 */
export function expectedAfterStart(
  server: number,
  { last, ahead, host }: { last: number; ahead: number; host: number },
): number | 'unknown' | undefined {
  const gap = server - last;
  if (gap < -JUMP_SECONDS) return last;
  if (gap <= SMALL_JUMP_SECONDS) return undefined;
  if (ahead > 0 && gap > ahead - SMALL_JUMP_SECONDS) return server - ahead;
  const sinceByHost = host - last;
  return sinceByHost >= -JUMP_SECONDS && sinceByHost < gap - SMALL_JUMP_SECONDS ? host : 'unknown';
}

/**
 * Returns the time on this host's clock in seconds since 1970, extrapolated from the host's first reading. Returns null
 * if the first reading does not contain the host's time.
 */
function hostSecondsNow(own: ClockReading | undefined): number | null {
  return own && own.hostSeconds !== null ? own.hostSeconds + secondsPassed(own, readHostTime()) : null;
}

const seconds = (): number => performance.now() / 1000;

function describeJump(ahead: number): string {
  const amount = Math.round(Math.abs(ahead)).toLocaleString('en-US');
  return `the database clock is ${amount} s ${ahead > 0 ? 'ahead of' : 'behind'} the elapsed time on this host: nothing expires or is removed`;
}
