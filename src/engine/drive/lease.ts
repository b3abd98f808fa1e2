/**
 * Holds a drive's lease and renews it while the process lives. The lease expires after a fixed time, even if the
 * database is down.
 *
 * A stalled process might not notice the stall, because its clocks might stall too. Therefore, the process queries the
 * database to confirm the lease before it opens a partial file or puts a copy in place.
 */
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { FencedError } from '../../core/errors.js';
import type { Context } from '../../domain/context.js';
import { type Lease, renewLease } from '../../domain/recalls/drives.js';
import { isHeld, type ReadyCopy, recordReady } from '../../domain/recalls/ends.js';
import type { CallWatch } from '../../restore-area/call-watch.js';
import { confirmOwned } from '../../restore-area/ownership.js';
import { PaceMeter } from './pace-meter.js';

export interface HeldLease extends Lease {
  /** Aborts when the lease is lost or the engine stops. */
  signal: AbortSignal;
  /** @throws Error if the lease is lost, or might have expired while the process was stalled */
  confirm(): void;
  /** Stops the renewal before the drive is released. A second call has no effect. */
  endRenewal(): void;
  giveUp(): void;
  calls: CallWatch;
  recordBytes(bytes: number): void;
  /** Measures the drive's speed, so that estimates can use it. */
  meter: PaceMeter;
  /** Whether the drive has read a file since it mounted the current volume. */
  hasRead: boolean;
  visitedAt: string;
}

interface HoldOptions {
  leaseSeconds: number;
  /** Time, by the monotonic clock, just before the drive was claimed. */
  claimedAt: number;
  /** Signal whose abort stops all work on the drive, but not the renewal of the lease. */
  stop: AbortSignal;
  held: Set<number>;
  calls: CallWatch;
}

/** Starts to renew a newly claimed lease. The caller must end the renewal when the lease is no longer needed. */
export function holdLease(ctx: Context, lease: Lease, options: HoldOptions): HeldLease {
  const { leaseSeconds, claimedAt, held } = options;
  const rate = new ReadRate();
  const meter = new PaceMeter(lease.pace);
  held.add(lease.driveId);
  const renewal = new Renewal(lease.driveName, {
    leaseSeconds,
    claimedAt,
    renew: () => renewLease(ctx, lease, leaseSeconds, { rate: rate.take(), pace: meter.sums }),
    onEnd: () => held.delete(lease.driveId),
  });
  const signal = AbortSignal.any([renewal.lost, options.stop]);
  setMaxListeners(0, signal);
  return {
    ...lease,
    signal,
    confirm: () => renewal.confirm(),
    endRenewal: () => renewal.end(),
    giveUp: () => renewal.lose(),
    calls: options.calls,
    recordBytes: (bytes) => rate.add(bytes),
    meter,
    hasRead: false,
    visitedAt: ctx.now(),
  };
}

/**
 * Fractions of the lease time: the lease is renewed after `RENEW_PART`, and a failed renewal is retried after
 * `RETRY_PART`.
 */
const RENEW_PART = 1 / 4;
const RETRY_PART = 1 / 16;

/** If a timer fires more than this many milliseconds late, the process was stalled. */
const STALL_MS = 1000;

/** Half-life, in milliseconds, of a measurement's weight in the average read rate. */
const HALF_LIFE_MS = 10_000;

class ReadRate {
  private bytes = 0;
  private since = performance.now();
  private value = 0;

  add(bytes: number): void {
    this.bytes += bytes;
  }

  take(): number {
    const now = performance.now();
    const tookMs = Math.max(1, now - this.since);
    const decay = 0.5 ** (tookMs / HALF_LIFE_MS);
    this.value = decay * this.value + (1 - decay) * (this.bytes / (tookMs / 1000));
    [this.bytes, this.since] = [0, now];
    return this.value < 1 ? 0 : this.value;
  }
}

/** Renews the lease of a drive or staging library until the lease is lost or the renewal is ended. */
export class Renewal {
  private readonly name: string;
  private readonly leaseMs: number;
  private readonly renewOnce: () => Promise<'renewed' | 'lost' | 'busy'>;
  private readonly onEnd: () => void;
  private readonly abort = new AbortController();
  /**
   * Time, by the monotonic clock, at which this process considers the lease expired. The lease never expires earlier in
   * the database. The monotonic clock keeps running while the process is stopped.
   */
  private validUntil = 0;
  private expiry: NodeJS.Timeout | undefined;
  private next: NodeJS.Timeout | undefined;
  private isEnded = false;

  /** @param of.claimedAt time, by the monotonic clock, just before the lease was claimed */
  constructor(
    name: string,
    of: {
      leaseSeconds: number;
      claimedAt: number;
      renew: () => Promise<'renewed' | 'lost' | 'busy'>;
      onEnd?: () => void;
    },
  ) {
    this.name = name;
    this.leaseMs = of.leaseSeconds * 1000;
    this.renewOnce = of.renew;
    this.onEnd = of.onEnd ?? (() => {});
    setMaxListeners(0, this.lost);
    this.extend(of.claimedAt);
    this.renewIn(RENEW_PART);
  }

  get lost(): AbortSignal {
    return this.abort.signal;
  }

  /** @throws Error if the lease is lost, or might have expired while the process was stalled */
  confirm(): void {
    if (this.lost.aborted || performance.now() >= this.validUntil) throw this.lostError();
  }

  end(): void {
    this.isEnded = true;
    this.onEnd();
    clearTimeout(this.expiry);
    clearTimeout(this.next);
  }

  private async renew(): Promise<void> {
    const startedAt = performance.now();
    // keep the lease: while the database is unavailable, another engine cannot claim the drive
    const answer = await this.renewOnce().catch(() => 'busy' as const);
    if (this.isEnded) return;
    if (answer === 'lost') return this.lose();
    if (answer === 'renewed') this.extend(startedAt);
    this.renewIn(answer === 'renewed' ? RENEW_PART : RETRY_PART);
  }

  private renewIn(part: number): void {
    this.next = setTimeout(() => void this.renew(), part * this.leaseMs);
  }

  private extend(from: number): void {
    this.validUntil = from + this.leaseMs;
    this.expireAt(this.validUntil);
  }

  /**
   * Sets a timer that gives up the lease at its expiry. If the process was stalled, the timer first waits for the
   * overdue renewal.
   */
  private expireAt(at: number): void {
    clearTimeout(this.expiry);
    this.expiry = setTimeout(() => {
      const isLate = performance.now() - at > STALL_MS;
      if (isLate && at === this.validUntil) this.expireAt(performance.now() + RENEW_PART * this.leaseMs);
      else this.lose();
    }, at - performance.now());
  }

  lose(): void {
    this.end();
    this.abort.abort(this.lostError());
  }

  private lostError(): Error {
    return new Error(`the lease of ${this.name} is lost`);
  }
}

/**
 * Thrown when another engine might hold the drive. After this error, the caller must not write to the restore disks.
 */
export class NotHeldError extends Error {}

/**
 * Number of partial files that can be opened after each confirmation of the lease. A partial file that is opened after
 * the lease has expired does no harm, because the file is empty and replaces no other file.
 */
const OPENINGS_PER_CONFIRMATION = 32;
const FRESH_MS = 250;

const GATHER_MS = 5;

interface PendingPlacement {
  copy: ReadyCopy;
  resolve: () => void;
  reject: (error: unknown) => void;
}

export class Confirmations {
  private readonly ctx: Context;
  private readonly lease: HeldLease;
  private openings = 0;
  private openingsUntil = 0;
  private gathered: PendingPlacement[] = [];
  private isGathering = false;

  constructor(ctx: Context, lease: HeldLease) {
    this.ctx = ctx;
    this.lease = lease;
  }

  /**
   * Confirms the lease before a partial file is opened. The caller must not call this function again before the
   * returned promise settles.
   * @throws NotHeldError
   */
  async confirmOpening(): Promise<void> {
    if (this.openings === 0 || performance.now() >= this.openingsUntil) {
      this.openings = 0; // allow no partial files to be opened until the query below has confirmed the lease
      const startedAt = performance.now();
      await this.confirmDisks();
      if (!(await isHeld(this.ctx, this.lease))) {
        this.lease.giveUp();
        throw this.lostError();
      }
      this.openingsUntil = startedAt + FRESH_MS;
      this.openings = OPENINGS_PER_CONFIRMATION;
    }
    this.openings--;
    this.checkLease();
  }

  /**
   * Records the copy's inode and mtime, and confirms the lease before the copy is put in place. Concurrent calls share
   * one query.
   * @throws NotHeldError
   */
  async confirmPlacing(copy: ReadyCopy): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.gathered.push({ copy, resolve, reject });
      if (!this.isGathering) void this.confirmGathered();
    });
    this.checkLease();
  }

  private async confirmGathered(): Promise<void> {
    this.isGathering = true;
    while (this.gathered.length > 0) {
      await sleep(GATHER_MS);
      const batch = this.gathered;
      this.gathered = [];
      await this.confirmBatch(batch);
    }
    this.isGathering = false;
  }

  private async confirmBatch(batch: readonly PendingPlacement[]): Promise<void> {
    try {
      const copies = batch.map(({ copy }) => copy);
      await this.confirmDisks();
      const confirmed = await recordReady(this.ctx, this.lease, copies);
      for (const { copy, resolve, reject } of batch) {
        if (confirmed.has(copy.fileId)) resolve();
        else reject(this.lostError());
      }
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
  }

  /**
   * Checks that no other Tapegate owns the restore disks.
   * @throws NotHeldError
   */
  private async confirmDisks(): Promise<void> {
    await confirmOwned(this.ctx).catch((error: unknown) => {
      throw error instanceof FencedError ? new NotHeldError(error.message) : error;
    });
  }

  private checkLease(): void {
    try {
      this.lease.confirm();
    } catch {
      throw this.lostError();
    }
  }

  private lostError(): NotHeldError {
    return new NotHeldError(`the lease of ${this.lease.driveName} is lost`);
  }
}
