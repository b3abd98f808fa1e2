/**
 * Shares a library's drives among engine processes (src/planner/drive-shares.ts). A process without a drive requests a
 * drive through the database. A process with more drives than its fair share releases a drive in which no volume is
 * mounted. For a few seconds after the release, only processes that requested a drive can claim the released drive.
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
 * Seconds after which a request for a drive expires. A process that still needs a drive repeats its request earlier.
 */
const REQUEST_SECONDS = 10;
const REQUEST_INTERVAL_MS = 3000;

/**
 * Milliseconds for which other engines have priority for a free drive. If no other engine claims the drive within
 * `PRIORITY_MS`, this engine does not release another drive for `KEEP_MS`.
 */
const PRIORITY_MS = 5000;
const KEEP_MS = 30_000;

/**
 * Minimum milliseconds between the releases of two drives. Between the releases, another engine can claim the first
 * drive.
 */
const RELEASE_INTERVAL_MS = 1000;

/**
 * Milliseconds for which a process that could not use a drive gives all other processes priority and requests no
 * drives.
 */
const YIELD_MS = 120_000;

/** A process's share of the drives in one library. Drives are shared separately in each library. */
export class DriveShare {
  private readonly ctx: Context;
  private readonly process: EngineProcess;
  // the following times are measured by the monotonic clock
  private requestedAt = Number.NEGATIVE_INFINITY;
  private yieldsUntil = 0;
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
   * Requests a drive for this process. Called periodically, before the process claims a drive.
   * @returns the ids of free drives for which other engines have priority; undefined if other engines have priority
   *   for every free drive
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
   * Returns whether the caller must release the drive for another engine. Returns true for at most one drive per
   * `RELEASE_INTERVAL_MS`. Must be called only while no volume is mounted in the drive.
   */
  async mustRelease(driveName: string): Promise<boolean> {
    const number = Number(driveName.slice(driveName.lastIndexOf('-') + 1));
    const isForOthers = isToGiveBack(this.engine, number, await this.readDrives());
    const now = performance.now();
    if (!isForOthers || now < this.keepsUntil || now < this.nextReleaseAt) return false;
    this.nextReleaseAt = now + RELEASE_INTERVAL_MS;
    return true;
  }

  /** Gives other processes priority for all drives, because this process could not use a drive. */
  yieldDrives(): void {
    this.yieldsUntil = performance.now() + YIELD_MS;
    this.writeSoon();
  }

  /** Gives other processes priority for all drives before this process stops. */
  retire(): void {
    this.isRetiring = true;
    this.writeSoon();
  }

  /** Deletes this process's database record after all drives are released. Never rejects. */
  async leave(): Promise<void> {
    await this.writing; // wait for a pending write, because a write after the deletion would recreate the record
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

  /** Writes drive requests one after another, so that the latest state is written last. */
  private writeRequest(): Promise<void> {
    // set `requestedAt` before the write, so that the process's other drives do not write the same request
    this.requestedAt = performance.now();
    const written = this.writing.then(() =>
      recordEngineProcess(this.ctx, this.process, this.isYielding ? 0 : REQUEST_SECONDS),
    );
    this.writing = written.catch(() => {
      this.requestedAt = Number.NEGATIVE_INFINITY;
    });
    return written;
  }
}
