/**
 * An engine's share of the drives: it says that it is there, looks who else is, and knows which drives it may claim and which it
 * is to give back (src/planner/drive-shares.ts). A drive is given back between two batches of files, never in the middle of one.
 */
import type { Context } from '../../context.js';
import { logFailure } from '../../errors.js';
import {
  type EngineProcess,
  forgetEngineProcess,
  forgetGoneProcesses,
  noteEngineProcess,
  readDrivesAndEngines,
} from '../../operations/recalls/engines.js';
import { shareDrives } from '../../planner/drive-shares.js';

/** A drive is given back only when it has been another engine's for so long: engines that come and go at once move nothing. */
const SETTLED_MS = 5000;

/**
 * A drive that is free for so long anybody may claim: whose it is to be may fail at whatever it does with it, and one that was killed
 * counts until its lease has run out. It is given back after a while.
 */
const UNTAKEN_MS = 10_000;
const KEPT_MS = 60_000;

/** An engine that can do nothing with its drives leaves them to others for so long, if there are any. */
const AWAY_MS = 120_000;

/** Part of the lease after which the process says again that it is there. */
const NOTE_PART = 1 / 4;

export interface ShareOptions {
  leaseSeconds: number;
  /** How long a drive is another engine's before it is given back. */
  settledMs?: number | undefined;
}

export class DriveShare {
  private readonly ctx: Context;
  private readonly process: EngineProcess;
  private readonly leaseMs: number;
  private readonly settledMs: number;
  private notedAt = Number.NEGATIVE_INFINITY;
  private awayUntil = 0;
  private isRetiring = false;
  private retiring: Promise<void> | undefined;
  /** By the ids of drives that are to be another engine's: since when. */
  private readonly othersSince = new Map<number, number>();
  /** By the ids of drives that nobody has: since when. */
  private readonly freeSince = new Map<number, number>();

  constructor(ctx: Context, process: EngineProcess, { leaseSeconds, settledMs = SETTLED_MS }: ShareOptions) {
    this.ctx = ctx;
    this.process = process;
    this.leaseMs = leaseSeconds * 1000;
    this.settledMs = settledMs;
  }

  /** Before the first look. */
  async join(): Promise<void> {
    await forgetGoneProcesses(this.ctx);
    await this.note();
  }

  /** Every now and then: says that the process is there, and looks who else is. @returns the ids of drives that it may claim */
  async look(): Promise<number[]> {
    if (performance.now() - this.notedAt >= NOTE_PART * this.leaseMs) await this.note();
    const { drives, engines } = await readDrivesAndEngines(this.ctx);
    const owners = shareDrives(drives, engines);
    const { engineId } = this.process;
    const now = performance.now();
    for (const { id, number, holder } of drives) {
      if (holder !== undefined) this.freeSince.delete(id);
      else if (!this.freeSince.has(id)) this.freeSince.set(id, now);
      const isOthers = owners.has(number) && owners.get(number) !== engineId;
      if (!isOthers) this.othersSince.delete(id);
      else if (!this.othersSince.has(id)) this.othersSince.set(id, now);
    }
    const isMine = (number: number) => (owners.get(number) ?? engineId) === engineId;
    const isUntaken = (id: number) => now - (this.freeSince.get(id) ?? now) >= UNTAKEN_MS;
    const free = drives.filter(({ holder }) => holder === undefined);
    for (const { id } of free) if (this.othersSince.has(id) && isUntaken(id)) this.othersSince.set(id, now + KEPT_MS);
    return free.filter(({ id, number }) => isMine(number) || isUntaken(id)).map(({ id }) => id);
  }

  /** Is a drive that the process holds to be given back, once what is in hand is done? As of the last look. */
  isToLeave(driveId: number): boolean {
    const since = this.othersSince.get(driveId);
    return since !== undefined && performance.now() - since >= this.settledMs;
  }

  /** The process can do nothing with a drive just now: others are to have its share for a while. */
  async stepAside(): Promise<void> {
    this.awayUntil = performance.now() + AWAY_MS;
    await this.note();
  }

  /** The process is about to stop: others are to have its share. */
  retire(): void {
    this.isRetiring = true;
    this.retiring = this.note().catch((error) => logFailure(this.ctx.log, error, 'drives'));
  }

  /** After `retire`. Never rejects: what is not forgotten here is gone when its lease has run out. */
  async leave(): Promise<void> {
    await this.retiring; // it would be noted again after it was forgotten
    await forgetEngineProcess(this.ctx, this.process.id).catch((error) => logFailure(this.ctx.log, error, 'drives'));
  }

  private async note(): Promise<void> {
    const at = performance.now();
    const isAway = this.isRetiring || at < this.awayUntil;
    await noteEngineProcess(
      this.ctx,
      { ...this.process, weight: isAway ? 0 : this.process.weight },
      this.leaseMs / 1000,
    );
    this.notedAt = at;
  }
}
