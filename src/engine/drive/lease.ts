/**
 * Holds the lease of a drive and renews it while the process lives. The lease ends by time, whether or not the database answers.
 *
 * Before a partial file is opened and before a copy is put in place, the database is asked whether the drive is still ours: the process may have
 * been stalled, and its clocks with it. One query serves many files.
 */
import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../context.js';
import { type Lease, renewLease } from '../../operations/recalls/drives.js';
import { isHeld, noteReady, type ReadyCopy } from '../../operations/recalls/ends.js';
import type { CallWatch } from '../calls.js';

/** A lease that is renewed until it is lost, or until the renewal is ended. */
export interface HeldLease extends Lease {
  /** Aborts when the lease is lost or the engine stops. */
  signal: AbortSignal;
  /** @throws Error when the lease is lost, or may be: the process may have stood still past its end */
  confirm(): void;
  /** Before the drive is given back; calling it twice is safe. */
  endRenewal(): void;
  /** From now on it counts as lost. */
  giveUp(): void;
  /** Follows the calls that are made for the drive. */
  calls: CallWatch;
  /** So many bytes were read. */
  noteBytes(bytes: number): void;
}

interface HoldOptions {
  leaseSeconds: number;
  /** Of `performance.now()`, before the drive was claimed. */
  claimedAt: number;
  /** Ends all work with the drive, not the renewal. */
  stop: AbortSignal;
  /** Drives that this engine holds: has the one of the lease as long as it is not lost. */
  held: Set<number>;
  calls: CallWatch;
}

/** Begins to renew a lease that was just claimed; `endRenewal` must end that. */
export function holdLease(ctx: Context, lease: Lease, options: HoldOptions): HeldLease {
  const renewal = new Renewal(ctx, lease, options);
  const signal = AbortSignal.any([renewal.lost, options.stop]);
  setMaxListeners(0, signal); // each recall of a batch may wait on it
  return {
    ...lease,
    signal,
    confirm: () => renewal.confirm(),
    endRenewal: () => renewal.end(),
    giveUp: () => renewal.lose(),
    calls: options.calls,
    noteBytes: (bytes) => renewal.rate.add(bytes),
  };
}

/** Parts of a lease: how often it is renewed, and how soon again where that did not succeed. */
const RENEW_PART = 1 / 4;
const RETRY_PART = 1 / 16;

/** A timer that is so late tells that the process stood still, and had no chance to renew. */
const STANDSTILL_MS = 1000;

/** What was read longer ago counts for half of what is read now. */
const HALF_MS = 10_000;

/** Bytes a second, of late. */
class Rate {
  private bytes = 0;
  private since = performance.now();
  private value = 0;

  add(bytes: number): void {
    this.bytes += bytes;
  }

  take(): number {
    const now = performance.now();
    const tookMs = Math.max(1, now - this.since);
    const kept = 0.5 ** (tookMs / HALF_MS);
    this.value = kept * this.value + (1 - kept) * (this.bytes / (tookMs / 1000));
    [this.bytes, this.since] = [0, now];
    return this.value < 1 ? 0 : this.value;
  }
}

class Renewal {
  private readonly ctx: Context;
  private readonly lease: Lease;
  private readonly leaseSeconds: number;
  private readonly held: Set<number>;
  private readonly abort = new AbortController();
  /** By the process's own clock, which goes on while it is stopped; never later than what the database has. */
  private validUntil = 0;
  private expiry: NodeJS.Timeout | undefined;
  private next: NodeJS.Timeout | undefined;
  private isEnded = false;
  readonly rate = new Rate();

  constructor(ctx: Context, lease: Lease, { leaseSeconds, claimedAt, held }: HoldOptions) {
    this.ctx = ctx;
    this.lease = lease;
    this.leaseSeconds = leaseSeconds;
    this.held = held;
    held.add(lease.driveId);
    this.extend(claimedAt);
    this.renewIn(RENEW_PART);
  }

  get lost(): AbortSignal {
    return this.abort.signal;
  }

  confirm(): void {
    if (this.lost.aborted || performance.now() >= this.validUntil) throw this.lostError();
  }

  end(): void {
    this.isEnded = true;
    this.held.delete(this.lease.driveId);
    clearTimeout(this.expiry);
    clearTimeout(this.next);
  }

  private async renew(): Promise<void> {
    const startedAt = performance.now();
    // a database that cannot be asked has given the drive to nobody yet
    const answer = await renewLease(this.ctx, this.lease, this.leaseSeconds, this.rate.take()).catch(
      () => 'busy' as const,
    );
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

  /** Time in which the process stood still ends a lease only when nothing comes of the renewal that is due since. */
  private expireAt(at: number): void {
    clearTimeout(this.expiry);
    this.expiry = setTimeout(() => {
      const isLate = performance.now() - at > STANDSTILL_MS;
      if (isLate && at === this.validUntil) this.expireAt(performance.now() + RENEW_PART * this.leaseMs);
      else this.lose();
    }, at - performance.now());
  }

  lose(): void {
    this.end();
    this.abort.abort(this.lostError());
  }

  private lostError(): Error {
    return new Error(`the lease of ${this.lease.driveName} is lost`);
  }

  private get leaseMs(): number {
    return this.leaseSeconds * 1000;
  }
}

/** The drive is somebody else's by now, or its lease has run out: nothing is to be written any more. */
export class NotHeldError extends Error {}

/** Partial files that one answer serves, while it is fresh. An empty one that is opened too late overwrites nothing. */
const OPENINGS = 32;
const FRESH_MS = 250;

/** Copies that are ready wait so long for others, to be asked about together; it is a small part of a sync. */
const GATHER_MS = 5;

interface Ready {
  copy: ReadyCopy;
  resolve: () => void;
  reject: (error: unknown) => void;
}

export class Confirmations {
  private readonly ctx: Context;
  private readonly lease: HeldLease;
  private openings = 0;
  private openingsUntil = 0;
  private gathered: Ready[] = [];
  private isGathering = false;

  constructor(ctx: Context, lease: HeldLease) {
    this.ctx = ctx;
    this.lease = lease;
  }

  /** To be awaited before the next call. @throws NotHeldError */
  async confirmOpening(): Promise<void> {
    if (this.openings === 0 || performance.now() >= this.openingsUntil) {
      this.openings = 0; // a question without an answer serves none
      const askedAt = performance.now();
      if (!(await isHeld(this.ctx, this.lease))) {
        this.lease.giveUp();
        throw this.lostError();
      }
      this.openingsUntil = askedAt + FRESH_MS;
      this.openings = OPENINGS;
    }
    this.openings--;
    this.checkLease();
  }

  /** Notes what the copy is known by; it may be put in place then. May be called for many copies at once. @throws NotHeldError */
  async confirmPlacing(copy: ReadyCopy): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.gathered.push({ copy, resolve, reject });
      if (!this.isGathering) void this.answerAll();
    });
    this.checkLease();
  }

  /** Never rejects. */
  private async answerAll(): Promise<void> {
    this.isGathering = true;
    while (this.gathered.length > 0) {
      await sleep(GATHER_MS);
      const asked = this.gathered;
      this.gathered = [];
      await this.answer(asked);
    }
    this.isGathering = false;
  }

  private async answer(asked: readonly Ready[]): Promise<void> {
    try {
      const copies = asked.map(({ copy }) => copy);
      const confirmed = await noteReady(this.ctx, this.lease, copies);
      for (const { copy, resolve, reject } of asked) {
        if (confirmed.has(copy.fileId)) resolve();
        else reject(this.lostError());
      }
    } catch (error) {
      for (const { reject } of asked) reject(error);
    }
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
