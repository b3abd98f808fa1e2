/**
 * Before a partial file is opened, and before it is put in place, the database is asked whether the drive is still ours:
 * the process may have stood still, and its clocks with it. One question serves many files.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../context.js';
import { isHeld, noteReady, type ReadyCopy } from '../../operations/recalls/confirm.js';
import type { HeldLease } from './lease.js';

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
