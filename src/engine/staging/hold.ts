/**
 * Holding a staging library's lease: renewed in the background while the process lives. It ends by time, whether the database answers
 * or not.
 */
import { setMaxListeners } from 'node:events';
import type { Context } from '../../context.js';
import { claimStager, giveBackStager, renewStager, type StagerLease } from '../../operations/staging/stagers.js';

const RENEW_PART = 1 / 4;

export class StagerHold {
  readonly lease: StagerLease;
  private readonly ctx: Context;
  private readonly leaseSeconds: number;
  private readonly lost = new AbortController();
  private readonly timer: NodeJS.Timeout;
  private validUntil: number;

  private constructor(ctx: Context, lease: StagerLease, leaseSeconds: number, claimedAt: number) {
    this.ctx = ctx;
    this.lease = lease;
    this.leaseSeconds = leaseSeconds;
    this.validUntil = claimedAt + leaseSeconds * 1000;
    setMaxListeners(0, this.lost.signal);
    this.timer = setInterval(() => void this.renew(), leaseSeconds * 1000 * RENEW_PART);
  }

  /** @returns undefined while another engine has it; what is returned must be ended */
  static async claim(
    ctx: Context,
    claim: { libraryId: number; engineId: string; leaseSeconds: number },
  ): Promise<StagerHold | undefined> {
    const claimedAt = performance.now();
    const lease = await claimStager(ctx, claim);
    return lease && new StagerHold(ctx, lease, claim.leaseSeconds, claimedAt);
  }

  /** Aborts when the lease is lost. */
  get signal(): AbortSignal {
    return this.lost.signal;
  }

  /** To be asked before each call: the process may have stood still. @throws when the lease is lost, or may be */
  confirm(): void {
    if (performance.now() >= this.validUntil) this.lose();
    this.signal.throwIfAborted();
  }

  /** Gives it back, so that another engine need not wait for its end. */
  async end(): Promise<void> {
    clearInterval(this.timer);
    this.lose();
    await giveBackStager(this.ctx, this.lease);
  }

  private async renew(): Promise<void> {
    const startedAt = performance.now();
    if (startedAt >= this.validUntil) return this.lose();
    // a database that cannot be asked has given it to nobody yet
    const isOurs = await renewStager(this.ctx, this.lease, this.leaseSeconds).catch(() => undefined);
    if (isOurs === false) this.lose();
    if (isOurs) this.validUntil = startedAt + this.leaseSeconds * 1000;
  }

  private lose(): void {
    clearInterval(this.timer);
    this.lost.abort(new Error(`the lease of library ${this.lease.libraryId} is lost`));
  }
}
