/**
 * An engine's share of the drives (src/planner/drive-shares.ts). A process without a drive requests one. A process with
 * more than its share releases a drive between two volumes, and gives requesters a few seconds of priority for a free
 * drive. After that it claims the drive itself, so that no drive waits for an engine that does not respond.
 */

import { logFailure } from '../../core/errors.js';
import type { Context } from '../../domain/context.js';
import {
  type EngineProcess,
  forgetEngineProcess,
  noteEngineProcess,
  readDrivesAndAskers,
} from '../../domain/recalls/drives.js';
import { freeFor, freeForOthers, isToGiveBack, type SharingEngine } from '../../planner/drive-shares.js';

/** A request is valid this long, and repeated after `ASK_AGAIN_MS`. An engine looks for a drive every second. */
const ASK_SECONDS = 10;
const ASK_AGAIN_MS = 3000;

/** Priority of other engines for a free drive. If none claims it, this engine releases no drive for `KEPT_MS`. */
const WAIT_MS = 5000;
const KEPT_MS = 30_000;

/** Pause between two released drives, in which other engines can look again. */
const GIVE_AGAIN_MS = 1000;

/** A process that could not use a drive makes no request for this time, and gives all others priority. */
const ASIDE_MS = 120_000;

/** One for all drives of a process in a library. Each library's drives are shared separately. */
export class DriveShare {
  private readonly ctx: Context;
  private readonly process: EngineProcess;
  // all in milliseconds of `performance.now()`
  private askedAt = Number.NEGATIVE_INFINITY;
  private asideUntil = 0;
  /** Time since when drives are free for other engines, by drive id. */
  private freeSince = new Map<number, number>();
  private keptUntil = 0;
  private giveAgainAt = 0;
  private isRetiring = false;
  private saying: Promise<void> = Promise.resolve();

  constructor(ctx: Context, process: EngineProcess) {
    this.ctx = ctx;
    this.process = process;
  }

  /**
   * Requests a drive; called regularly before a claim.
   * @returns ids of free drives for which other engines have priority; undefined if these are all free drives
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

  /** Called while nothing is mounted. @returns whether to release the drive for another engine; one drive at a time */
  async isToGiveBack(driveName: string): Promise<boolean> {
    const number = Number(driveName.slice(driveName.lastIndexOf('-') + 1));
    const isOthers = isToGiveBack(this.engine, number, await this.look());
    const now = performance.now();
    if (!isOthers || now < this.keptUntil || now < this.giveAgainAt) return false;
    this.giveAgainAt = now + GIVE_AGAIN_MS;
    return true;
  }

  /** Called if the process could not use a drive. Does not wait. */
  stepAside(): void {
    this.asideUntil = performance.now() + ASIDE_MS;
    this.saySoon();
  }

  /** Called before the process stops. Does not wait. */
  retire(): void {
    this.isRetiring = true;
    this.saySoon();
  }

  /** Called when all drives are released. Never rejects: other processes remove stale records. */
  async leave(): Promise<void> {
    await this.saying; // otherwise a pending write could recreate the record
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

  /** Writes in order, so that the latest state is written last. */
  private say(): Promise<void> {
    this.askedAt = performance.now(); // set before the write, so that only one of several drives writes
    const said = this.saying.then(() => noteEngineProcess(this.ctx, this.process, this.isAside ? 0 : ASK_SECONDS));
    this.saying = said.catch(() => {
      this.askedAt = Number.NEGATIVE_INFINITY; // not recorded: write again before the next claim
    });
    return said;
  }
}
