/**
 * An engine's share of the drives (src/planner/drive-shares.ts). A process without a drive asks for one. Whoever has more than its share gives a
 * drive back where somebody asks, between two volumes; and lets those who ask go first when one is free, for a few seconds. After that it takes the drive
 * whatever others say: no drive waits for an engine that does not come.
 */
import type { Context } from '../../context.js';
import { logFailure } from '../../errors.js';
import {
  type EngineProcess,
  forgetEngineProcess,
  forgetGoneProcesses,
  noteEngineProcess,
  readDrivesAndAskers,
} from '../../operations/recalls/drives.js';
import { freeFor, freeForOthers, isToGiveBack, type SharingEngine } from '../../planner/drive-shares.js';

/** So long it asks, unless it says so again; it does that after `ASK_AGAIN_MS`. Drives without an engine look for one every second. */
const ASK_SECONDS = 10;
const ASK_AGAIN_MS = 3000;

/** So long others may go first; they look for a drive every second. What they have not taken is kept for a while then. */
const WAIT_MS = 5000;
const KEPT_MS = 30_000;

/** After a drive was given back, the next one: the others have looked meanwhile. */
const GIVE_AGAIN_MS = 1000;

/** A process that could do nothing with a drive does not ask for so long, and lets all others go first. */
const ASIDE_MS = 120_000;

/** One for all drives that a process has of a library: engines share those of each library by themselves. */
export class DriveShare {
  private readonly ctx: Context;
  private readonly process: EngineProcess;
  // all by the process's own clock, in milliseconds
  private askedAt = Number.NEGATIVE_INFINITY;
  private asideUntil = 0;
  /** By the ids of drives that others may take first: since when they are free. */
  private freeSince = new Map<number, number>();
  private keptUntil = 0;
  private giveAgainAt = 0;
  private isRetiring = false;
  private saying: Promise<void> = Promise.resolve();

  constructor(ctx: Context, process: EngineProcess) {
    this.ctx = ctx;
    this.process = process;
  }

  /** Before it works. */
  async join(): Promise<void> {
    await forgetGoneProcesses(this.ctx);
  }

  /**
   * To be asked before a drive is claimed, every now and then: says that the process asks for one.
   * @returns the ids of free drives that others go first to; undefined where these are all that are free
   */
  async leftToOthers(): Promise<number[] | undefined> {
    if (performance.now() - this.askedAt >= ASK_AGAIN_MS) await this.say();
    const seen = await this.look();
    const others = freeForOthers(this.engine, seen);
    const now = performance.now();
    this.freeSince = new Map(others.map(({ id }) => [id, this.freeSince.get(id) ?? now]));
    const left = [...this.freeSince].filter(([, since]) => now - since < WAIT_MS).map(([id]) => id);
    if (left.length < others.length) this.keptUntil = now + KEPT_MS;
    return left.length > 0 && left.length === freeFor(this.engine, seen.drives).length ? undefined : left;
  }

  /** To be asked where nothing is mounted. @returns whether the drive is to be given back now, for another engine; one drive at a time */
  async isToGiveBack(driveName: string): Promise<boolean> {
    const number = Number(driveName.slice(driveName.lastIndexOf('-') + 1));
    const isOthers = isToGiveBack(this.engine, number, await this.look());
    const now = performance.now();
    if (!isOthers || now < this.keptUntil || now < this.giveAgainAt) return false;
    this.giveAgainAt = now + GIVE_AGAIN_MS;
    return true;
  }

  /** The process could do nothing with a drive. Does not wait. */
  stepAside(): void {
    this.asideUntil = performance.now() + ASIDE_MS;
    this.saySoon();
  }

  /** It is about to stop. Does not wait. */
  retire(): void {
    this.isRetiring = true;
    this.saySoon();
  }

  /** After `retire`, when its drives are given back. Never rejects: what is not forgotten here is forgotten when others start. */
  async leave(): Promise<void> {
    await this.saying; // or it would be noted again after it was forgotten
    await forgetEngineProcess(this.ctx, this.process.id).catch((error) => logFailure(this.ctx.log, error, 'drives'));
  }

  private get isAside(): boolean {
    return this.isRetiring || performance.now() < this.asideUntil;
  }

  private get engine(): SharingEngine {
    const { engineId: id, weight, reach } = this.process;
    return { id, weight: this.isAside ? 0 : weight, reach };
  }

  private async look() {
    return await readDrivesAndAskers(this.ctx, this.process);
  }

  private saySoon(): void {
    this.say().catch((error) => logFailure(this.ctx.log, error, 'drives'));
  }

  /** One after the other, so that what holds last is said last. */
  private say(): Promise<void> {
    this.askedAt = performance.now(); // before it is said: of several drives one says it
    const said = this.saying.then(() => noteEngineProcess(this.ctx, this.process, this.isAside ? 0 : ASK_SECONDS));
    this.saying = said.catch(() => {
      this.askedAt = Number.NEGATIVE_INFINITY; // nobody knows of it: it is said again before a drive is claimed
    });
    return said;
  }
}
