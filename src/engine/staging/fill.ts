/**
 * Chooses the next files to request from a staging library, in fair-share order and volume by volume. Stops when the
 * library's depth (its maximum number of staged files) is reached, or the restore area is full. Files that are already
 * requested from the library count toward their users' shares. If requested files did not count, a user with a long
 * queue could use the library's whole depth.
 */

import { secondsOf } from '../../core/time.js';
import type { Context } from '../../domain/context.js';
import type { MeasureDisks } from '../../domain/disks/reservations.js';
import { readShares } from '../../domain/quotas/shares.js';
import {
  countStaged,
  intendFiles,
  intendReadBacks,
  readUnasked,
  readUnaskedOf,
  readWeights,
  type Staged,
  type Unasked,
} from '../../domain/staging/intend.js';
import type { StagerLease } from '../../domain/staging/stagers.js';
import { estimateReading, findMedium } from '../../planner/media.js';
import { groupByVolume, type WaitingVolume } from '../../planner/queue.js';
import { chooseNext, chooseSweep, defaultPolicy, openBacklog, type ScheduleState } from '../../planner/schedule.js';
import type { OpenStagingLibrary } from './open-library.js';

/**
 * Scheduling policy that switches to another user as often as possible. A stage request cannot be changed later, so a
 * single user's files must not fill the whole request.
 */
const policy = { ...defaultPolicy, turnSeconds: 0, sweepSeconds: 0 };

/** The library's depth divided by this number is the maximum number of files that are chosen at a time. */
const SLICE_FRACTION = 10;

const MAX_SLICES = 50;

/**
 * Fraction of the library's depth (maximum number of staged files) above which a run requests no files. The run waits
 * until less of the depth is used, so that the next stage request is larger.
 */
const FULL_FRACTION = 0.9;

/** Maximum number of tape copies that a run requests for verification. */
const READ_BACKS = 100;

/** Marks files to be requested from the library. */
export async function fillDepth(
  ctx: Context,
  lease: StagerLease,
  { library: staging, measure }: { library: OpenStagingLibrary; measure: MeasureDisks },
): Promise<number> {
  const staged = await countStaged(ctx, staging.id);
  if (staged.files > staging.depth.files * FULL_FRACTION) return 0;
  const entries = await readUnasked(ctx, staging.id);
  const room = Math.min(staging.depth.files - staged.files, READ_BACKS);
  if (entries.length === 0) return staged.files < READ_BACKS ? await intendReadBacks(ctx, lease, room) : 0;
  const fill = new Fill(ctx, lease, { library: staging, measure, staged });
  return await fill.run(groupByVolume(entries));
}

class Fill {
  private readonly ctx: Context;
  private readonly lease: StagerLease;
  private readonly staging: OpenStagingLibrary;
  private readonly measure: MeasureDisks;
  private readonly staged: Staged;
  private readonly shares = new Map<string, number>();
  private weights = new Map<string, number>();
  private files = 0;
  private bytes = 0n;

  constructor(
    ctx: Context,
    lease: StagerLease,
    { library: staging, measure, staged }: { library: OpenStagingLibrary; measure: MeasureDisks; staged: Staged },
  ) {
    this.ctx = ctx;
    this.lease = lease;
    this.staging = staging;
    this.measure = measure;
    this.staged = staged;
  }

  async run(all: WaitingVolume[]): Promise<number> {
    await this.readShares(all);
    let queues = all;
    for (let slice = 0; slice < MAX_SLICES && queues.length > 0 && this.room.files > 0; slice++) {
      const state: ScheduleState = { shares: this.shares, now: secondsOf(this.ctx.now()), policy };
      const volume = chooseNext(openBacklog(queues, state), state)?.queue;
      if (!volume) break;
      const { users } = chooseSweep(volume, state);
      const limit = Math.min(this.room.files, Math.max(Math.ceil(this.staging.depth.files / SLICE_FRACTION), 1));
      const { volumeId } = volume;
      const found = await readUnaskedOf(this.ctx, { libraryId: this.staging.id, volumeId, users: [...users], limit });
      const { isFull, taken } = await this.intend(found);
      this.charge(volume, taken);
      if (isFull) break;
      const remaining = { ...volume, users: volume.users.filter(({ user }) => !users.has(user)) };
      queues = queues.filter((queue) => queue !== volume);
      if (found.length === limit) queues.push({ ...volume });
      else if (remaining.users.length > 0) queues.push(remaining);
    }
    return this.files;
  }

  private async readShares(queues: readonly WaitingVolume[]): Promise<void> {
    const users = [...queues.flatMap((queue) => queue.users.map(({ user }) => user)), ...this.staged.users.keys()];
    this.weights = await readWeights(this.ctx, [...new Set(users)]);
    for (const [user, share] of await readShares(this.ctx)) this.shares.set(user, share);
    const medium = findMedium('linear');
    for (const [user, { files, bytes }] of this.staged.users) this.add(user, estimateReading(medium, files, bytes));
  }

  private async intend(found: readonly Unasked[]): Promise<{ isFull: boolean; taken: Unasked[] }> {
    if (found.length === 0) return { isFull: false, taken: [] };
    const fileIds = found.map(({ fileId }) => fileId);
    const { intended, isFull } = await intendFiles(this.ctx, this.lease, {
      fileIds,
      room: this.room,
      measure: this.measure,
    });
    const taken = found.filter(({ fileId }) => intended.has(fileId));
    this.files += taken.length;
    this.bytes += taken.reduce((sum, { size }) => sum + size, 0n);
    return { isFull, taken };
  }

  private get room() {
    const { files, bytes } = this.staging.depth;
    return {
      files: files - this.staged.files - this.files,
      bytes: bytes === null ? null : bytes - this.staged.bytes - this.bytes,
      isEmpty: this.staged.files + this.files === 0,
    };
  }

  private charge({ medium }: WaitingVolume, taken: readonly Unasked[]): void {
    for (const { user, size } of taken) this.add(user, estimateReading(medium, 1, Number(size)));
  }

  private add(user: string, seconds: number): void {
    this.shares.set(user, (this.shares.get(user) ?? 0) + seconds / (this.weights.get(user) ?? 1));
  }
}
