/**
 * The database server's clock, kept in this process between readings. A reading that contradicts the elapsed time of
 * this process is ignored. The clock then continues from earlier readings, until the server's clock is plausible again
 * or its new time is accepted (domain/clock.ts).
 */
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { timeOf } from '../core/time.js';

/** Drift between two clocks: microseconds in a millisecond. */
const DRIFT = 0.1;

/** If the clock is set back by less than this, it pauses instead, so that later events do not get earlier times. */
const SMALL_STEP_MICROS = 1_000_000;

/**
 * The server's clock may gain or lose this much in a window. NTP slews by 0.3 s in that time, and steps a clock at the
 * start of a host.
 */
export const JUMP_SECONDS = 60;
const WINDOW_MS = 600_000;
/** Shorter suspensions of the host are no explanation for a jump. */
const SUSPENDED_SECONDS = 1;

/** Seconds since this host's start: without and with the time for which it was suspended. */
export interface HostTime {
  running: number;
  elapsed: number;
}

export function readHostTime(): HostTime {
  const running = Number(process.hrtime.bigint()) / 1e9;
  try {
    return { running, elapsed: Number.parseFloat(readFileSync('/proc/uptime', 'latin1')) };
  } catch {
    return { running, elapsed: running };
  }
}

/** Identifies a start of this host, since when `HostTime` counts. */
export function readBoot(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
  } catch {
    return `${hostname()} ${randomUUID()}`; // a process without one compares its own readings only
  }
}

/** Seconds between two times of a host. In some containers `elapsed` begins again with the container. */
export function secondsPassed(from: HostTime, until: HostTime): number {
  const [running, elapsed] = [until.running - from.running, until.elapsed - from.elapsed];
  return elapsed - running > SUSPENDED_SECONDS ? elapsed : running;
}

export class DatabaseClock {
  /** False if destructive jobs must wait, because this process or another one has seen the clock jump. */
  isPlausible = true;
  /** Microseconds since 1970 at 0 of `performance.now()`. */
  private origin = Math.round(performance.timeOrigin * 1000);
  /** The possible error of `origin` in microseconds, as of `readAt` of `performance.now()`. */
  private doubt = Number.POSITIVE_INFINITY;
  private readAt = 0;
  private last = 0;
  /** The last reading, plausible or not. */
  private read = { origin: this.origin, doubt: Number.POSITIVE_INFINITY };
  /** A plausible reading, with which later ones are compared. */
  private anchor: { origin: number; at: number; host: HostTime } | undefined;
  private aheadMicros = 0;

  /**
   * Takes a reading unless the present one is more exact and agrees with it. A slow answer is inexact, but it still
   * shows if the clock was set or this host stalled.
   * @param micros since 1970
   * @param asked times of `performance.now()`: of the question, and of the answer
   */
  set(micros: number, asked: { from: number; until: number }): void {
    const origin = micros - ((asked.from + asked.until) / 2) * 1000;
    const doubt = ((asked.until - asked.from) / 2) * 1000;
    this.read = { origin, doubt };
    this.anchor ??= { origin, at: asked.until, host: readHostTime() };
    if (Math.abs(origin - this.anchor.origin) - doubt > JUMP_SECONDS * 1e6 && !this.wasSuspended(origin, doubt)) {
      this.aheadMicros = origin - this.origin;
      return;
    }
    this.aheadMicros = 0;
    if (asked.until - this.anchor.at > WINDOW_MS) this.anchor = { origin, at: asked.until, host: readHostTime() };
    const known = this.doubt + (asked.until - this.readAt) * DRIFT;
    if (doubt > known && Math.abs(origin - this.origin) <= doubt + known) return;
    this.origin = origin;
    this.doubt = doubt;
    this.readAt = asked.until;
  }

  /** Whether the time for which the host was suspended explains a jump; then compares with this reading from now on. */
  private wasSuspended(origin: number, doubt: number): boolean {
    if (!this.anchor) return false;
    const host = readHostTime();
    const slept = (secondsPassed(this.anchor.host, host) - (host.running - this.anchor.host.running)) * 1e6;
    if (Math.abs(origin - this.anchor.origin - slept) - doubt > JUMP_SECONDS * 1e6) return false;
    this.anchor = { origin, at: performance.now(), host };
    return true;
  }

  /** By how much the server's clock is ahead of this one; 0 while its readings are plausible. */
  get aheadSeconds(): number {
    return this.aheadMicros / 1e6;
  }

  /** Seconds since 1970 on the server's clock, plausible or not. */
  get serverSeconds(): number {
    return this.read.origin / 1e6 + performance.now() / 1000;
  }

  /** Continues from a time that another source gives. @param seconds since 1970 */
  hold(seconds: number): void {
    this.origin = Math.round(seconds * 1e6 - performance.now() * 1000);
    this.anchor = { origin: this.origin, at: performance.now(), host: readHostTime() };
    this.aheadMicros = this.read.origin - this.origin;
  }

  /** Accepts the server's time, plausible or not. */
  accept(): void {
    const { origin, doubt } = this.read;
    this.origin = origin;
    this.doubt = doubt;
    this.readAt = performance.now();
    this.anchor = { origin, at: this.readAt, host: readHostTime() };
    this.aheadMicros = 0;
  }

  now(): string {
    const micros = Math.round(this.origin + performance.now() * 1000);
    if (micros > this.last || this.last - micros > SMALL_STEP_MICROS) this.last = micros;
    return timeOf(this.last / 1e6);
  }
}
