/**
 * Estimates the database server's time between two readings of the server's clock. Ignores a reading that is
 * implausible given the time elapsed on this host, unless an operator accepts the server's new time.
 */
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { timeOf } from '../core/time.js';

/** Maximum drift of this host's clock relative to the server's clock, in microseconds per millisecond. */
const DRIFT = 0.1;

/**
 * Largest backward step of the server's clock that counts as small, in microseconds. After a small step, `now` returns
 * the same time until the server's clock has caught up.
 */
const SMALL_STEP_MICROS = 1_000_000;

/**
 * Maximum number of seconds that the server's clock can plausibly gain or lose against this host's clock in ten
 * minutes. A larger change counts as a jump of the server's clock.
 */
export const JUMP_SECONDS = 60;
const WINDOW_MS = 600_000;
/** Minimum time in seconds for which this host must have been suspended to explain a jump of the server's clock. */
const SUSPENDED_SECONDS = 1;

/** Seconds since this host started. Only `elapsed` includes the time during which the host was suspended. */
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

/** Returns an identifier of this host's current boot. `HostTime` values from different boots cannot be compared. */
export function readBoot(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
  } catch {
    // without a boot id, return a random identifier, so that a process does not use other processes' readings
    return `${hostname()} ${randomUUID()}`;
  }
}

/**
 * Returns the seconds between two `HostTime` values from one host. Uses `elapsed` only after a suspension of the host,
 * because in some containers, `elapsed` counts from the container's start.
 */
export function secondsPassed(from: HostTime, until: HostTime): number {
  const [running, elapsed] = [until.running - from.running, until.elapsed - from.elapsed];
  return elapsed - running > SUSPENDED_SECONDS ? elapsed : running;
}

export class DatabaseClock {
  /** Whether destructive jobs may run. False after any process has detected a jump of the server's clock. */
  isPlausible = true;
  /** The server's time when `performance.now()` was 0, in microseconds since 1970. */
  private origin = Math.round(performance.timeOrigin * 1000);
  /** Maximum error of `origin` at the last reading, in microseconds. */
  private doubt = Number.POSITIVE_INFINITY;
  private readAt = 0;
  private last = 0;
  private read = { origin: this.origin, doubt: Number.POSITIVE_INFINITY };
  /** The earlier, plausible reading of the server's clock with which new readings are compared. */
  private anchor: { origin: number; at: number; host: HostTime } | undefined;
  private aheadMicros = 0;

  /**
   * Adopts a reading of the server's clock. Keeps the previous reading if the previous reading is more exact and agrees
   * with the new reading.
   * @param micros the server's time, in microseconds since 1970
   * @param asked values of `performance.now()` when the query was sent and when the answer arrived
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

  /** Returns whether a suspension of this host explains an apparent jump of the server's clock. */
  private wasSuspended(origin: number, doubt: number): boolean {
    if (!this.anchor) return false;
    const host = readHostTime();
    const slept = (secondsPassed(this.anchor.host, host) - (host.running - this.anchor.host.running)) * 1e6;
    if (Math.abs(origin - this.anchor.origin - slept) - doubt > JUMP_SECONDS * 1e6) return false;
    this.anchor = { origin, at: performance.now(), host };
    return true;
  }

  /** Returns by how many seconds the server's clock is ahead of this clock; 0 while the server's clock is plausible. */
  get aheadSeconds(): number {
    return this.aheadMicros / 1e6;
  }

  /** Returns the server's time in seconds since 1970, even if that time is not plausible. */
  get serverSeconds(): number {
    return this.read.origin / 1e6 + performance.now() / 1000;
  }

  /** Sets this clock to the given time, in seconds since 1970, instead of the server's time. */
  hold(seconds: number): void {
    this.origin = Math.round(seconds * 1e6 - performance.now() * 1000);
    this.anchor = { origin: this.origin, at: performance.now(), host: readHostTime() };
    this.aheadMicros = this.read.origin - this.origin;
  }

  /** Sets this clock to the server's time, even if that time is not plausible. */
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
