/**
 * Shares the drives of a library among engine processes (src/planner/drive-shares.ts). A process without a drive
 * requests a drive. A process with more drives than its share releases a drive between two volumes. For a few seconds,
 * only processes that requested a drive may claim the released drive. Later, the process that released the drive may
 * claim the drive again, so that no drive stays unused.
 */

import { logFailure } from '../../core/errors.js';
import type { Context } from '../../domain/context.js';
import {
  deleteEngineProcess,
  type EngineProcess,
  readDrivesAndAskers,
  recordEngineProcess,
} from '../../domain/recalls/drives.js';
import { freeFor, freeForOthers, isToGiveBack, type SharingEngine } from '../../planner/drive-shares.js';

/**
 * Validity of a request for a drive. The request is repeated after `REQUEST_INTERVAL_MS`. An engine looks for a drive
 * every second.
 */
const REQUEST_SECONDS = 10;
const REQUEST_INTERVAL_MS = 3000;

/**
 * Time for which other engines have priority for a free drive. If no engine claims the drive within this time, this
 * engine releases no drive for `KEEP_MS`.
 */
const PRIORITY_MS = 5000;
const KEEP_MS = 30_000;

/** Pause between two releases. Gives other engines time to claim the first drive. */
const RELEASE_INTERVAL_MS = 1000;

/** A process that could not use a drive requests no drive for this time, and gives all other processes priority. */
const YIELD_MS = 120_000;

/** The drive share of a process in one library. Drives are shared separately in each library. */
export class DriveShare {
  private readonly ctx: Context;
  private readonly process: EngineProcess;
  // times in milliseconds of `performance.now()`
  private requestedAt = Number.NEGATIVE_INFINITY;
  private yieldsUntil = 0;
  /** Time at which a drive became free for other engines, by drive id. */
  private freeSince = new Map<number, number>();
  private keepsUntil = 0;
  private nextReleaseAt = 0;
  private isRetiring = false;
  private writing: Promise<void> = Promise.resolve();

  constructor(ctx: Context, process: EngineProcess) {
    this.ctx = ctx;
    this.process = process;
  }

  /**
   * Requests a drive. Called periodically before a claim.
   * @returns ids of free drives for which other engines have priority; undefined if other engines have priority for
   *   every free drive
   */
  async listReserved(): Promise<number[] | undefined> {
    if (performance.now() - this.requestedAt >= REQUEST_INTERVAL_MS) await this.writeRequest();
    const state = await this.readDrives();
    const others = freeForOthers(this.engine, state);
    const now = performance.now();
    this.freeSince = new Map(others.map(({ id }) => [id, this.freeSince.get(id) ?? now]));
    const reserved = [...this.freeSince].filter(([, since]) => now - since < PRIORITY_MS).map(([id]) => id);
    if (reserved.length < others.length) this.keepsUntil = now + KEEP_MS;
    return reserved.length > 0 && reserved.length === freeFor(this.engine, state.drives).length ? undefined : reserved;
  }

  /**
   * Called while no volume is mounted. @returns whether to release the drive for another engine; true for one drive at
   * a time
   */
  async mustRelease(driveName: string): Promise<boolean> {
    const number = Number(driveName.slice(driveName.lastIndexOf('-') + 1));
    const isForOthers = isToGiveBack(this.engine, number, await this.readDrives());
    const now = performance.now();
    if (!isForOthers || now < this.keepsUntil || now < this.nextReleaseAt) return false;
    this.nextReleaseAt = now + RELEASE_INTERVAL_MS;
    return true;
  }

  /** Gives other processes priority. Called if the process could not use a drive. Does not block. */
  yieldDrives(): void {
    this.yieldsUntil = performance.now() + YIELD_MS;
    this.writeSoon();
  }

  /** Gives other processes priority. Called before the process stops. Does not block. */
  retire(): void {
    this.isRetiring = true;
    this.writeSoon();
  }

  /**
   * Deletes the record of the process. Called when all drives are released. Never rejects, because other processes
   * delete stale records.
   */
  async leave(): Promise<void> {
    await this.writing; // a pending write could recreate the record
    await deleteEngineProcess(this.ctx, this.process.id).catch((error) => logFailure(this.ctx.log, error, 'drives'));
  }

  private get isYielding(): boolean {
    return this.isRetiring || performance.now() < this.yieldsUntil;
  }

  private get engine(): SharingEngine {
    const { engineId: id, weight, reach } = this.process;
    return { id, weight: this.isYielding ? 0 : weight, reach };
  }

  private async readDrives() {
    return await readDrivesAndAskers(this.ctx, this.process);
  }

  private writeSoon(): void {
    this.writeRequest().catch((error) => logFailure(this.ctx.log, error, 'drives'));
  }

  /** Writes requests one after the other, so that the latest state is written last. */
  private writeRequest(): Promise<void> {
    this.requestedAt = performance.now(); // set the time before the write, so that only one of several drives writes
    const written = this.writing.then(() =>
      recordEngineProcess(this.ctx, this.process, this.isYielding ? 0 : REQUEST_SECONDS),
    );
    this.writing = written.catch(() => {
      this.requestedAt = Number.NEGATIVE_INFINITY; // the write failed: write again before the next claim
    });
    return written;
  }
}
