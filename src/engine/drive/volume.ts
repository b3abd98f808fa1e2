/** One volume in a drive: planned, read batch by batch, planned anew when the queue has changed, and left in time. */
import type { Context } from '../../context.js';
import { chargeDriveTime, readShares } from '../../operations/quotas/shares.js';
import { finishRecalls, type RecallOutcome } from '../../operations/recalls/ends.js';
import { postponeVolume, readQueues, readVolumeQueue } from '../../operations/recalls/queue.js';
import { type RunningRecall, startRecalls } from '../../operations/recalls/starts.js';
import { holdFailing, isSuspended } from '../../operations/suspensions.js';
import {
  batchFilesAfter,
  groupByVolume,
  orderRecalls,
  type QueuedRecall,
  takeBatch,
  type WaitingVolume,
} from '../../planner/queue.js';
import { defaultPolicy, firstUsers, isTimeToLeave, openBacklog } from '../../planner/schedule.js';
import type { MountedVolume, TapeBackend } from '../../tape/backend.js';
import { secondsOf } from '../../time.js';
import { Budget } from '../disk/partial-file.js';
import { type Batch, runBatch } from './batch.js';
import type { HeldLease } from './lease.js';
import type { DriveOptions } from './options.js';
import { outcomeOf, toReturned } from './recall.js';
import type { VolumeFailures } from './volume-failures.js';

/** How often a plan is made anew at most, while files go on arriving or other users wait. */
const REPLAN_MS = 5000;

export async function workVolume(
  ctx: Context,
  backend: TapeBackend,
  lease: HeldLease,
  work: { volume: WaitingVolume; options: DriveOptions },
): Promise<void> {
  const { volume, options } = work;
  const since = secondsOf(ctx.now());
  let mounted: MountedVolume | undefined;
  let head = 0;
  let plan: QueuedRecall[] = [];
  let plannedAt = 0;
  let batchFiles: number | undefined;
  let hasStarted = true;
  // the outcomes of a batch are written down, in order, while the next one is read
  let finishing: Promise<unknown> = Promise.resolve();
  const finish = (write: () => Promise<unknown>) => {
    finishing = finishing.then(write);
    finishing.catch(() => {}); // awaited below
  };
  const report = (outcomes: RecallOutcome[], holdReason?: string) => {
    finish(() => finishRecalls(ctx, lease, outcomes));
    if (holdReason !== undefined) finish(() => holdFailing(ctx, volume.volume, holdReason));
  };
  const isPlanOver = () => plan.length === 0 || performance.now() - plannedAt >= REPLAN_MS;
  const startNext = async (): Promise<Batch> => {
    const chosen = takeBatch(plan, batchFiles);
    plan = plan.slice(chosen.length);
    const last = chosen.at(-1);
    if (last) head = Number(last.start + last.size);
    const recalls = await startRecalls(ctx, lease, {
      fileIds: chosen.map((recall) => recall.fileId),
      measure: (disks) => options.gauge.measure(disks),
    });
    return { recalls, ...options.running.begin(recalls.map(toFileId), lease.signal) };
  };
  // of the batch before: a drive reads on while what it has read is written and synced
  let writing: Promise<unknown> = Promise.resolve();
  const budget = new Budget();
  // the next batch of a plan is started while one is read, so that the drive does not wait for the database
  let ahead: Promise<Batch> | undefined;
  const takeAhead = () => {
    const batch = ahead;
    ahead = undefined;
    return batch;
  };
  const giveBackAhead = async () => {
    const unread = await takeAhead();
    unread?.end();
    if (unread) report(unread.recalls.map(toReturned));
  };
  try {
    while (!options.stop.aborted && !lease.signal.aborted) {
      if (!ahead && isPlanOver()) {
        if (plan.length === 0 && !hasStarted) break; // what is left cannot start now
        hasStarted = false;
        plan = await planVolume(ctx, lease, { volume, head, since });
        plannedAt = performance.now();
        if (plan.length === 0) break;
      }
      const startedAt = performance.now();
      const batch = await (takeAhead() ?? startNext());
      ahead = isPlanOver() ? undefined : startNext();
      ahead?.catch(() => {}); // awaited in the next round, or below
      const { recalls } = batch;
      if (recalls.length === 0) {
        batch.end();
        continue;
      }
      hasStarted = true;
      const [finishingBefore, writingBefore] = [finishing, writing];
      const findHoldReason = options.failures.followReads(volume.volume, recalls);
      const reportReads = (outcomes: RecallOutcome[]) => report(outcomes, findHoldReason(outcomes));
      const giveUp = (error: unknown) =>
        // what has been reported already is not touched by this
        report(recalls.map((recall) => (batch.signal.aborted ? toReturned(recall) : outcomeOf(ctx, recall, error))));
      try {
        mounted ??= await backend.mount(volume.volume, lease.driveName, batch.signal);
        options.failures.mountSucceeded(volume.volume);
        const readAt = performance.now();
        const { written } = await runBatch(ctx, lease, mounted, { batch, report: reportReads, budget });
        writing = written.catch(giveUp).finally(batch.end);
        batchFiles = batchFilesAfter(recalls.length, (performance.now() - readAt) / 1000);
      } catch (error) {
        giveUp(error);
        batch.end();
        if (!mounted && !batch.signal.aborted) {
          await giveBackAhead();
          await finishing; // what is given back waits as well
          await noteMountFailure(ctx, options.failures, volume, error);
          plan = [];
          hasStarted = false;
        }
      }
      await writingBefore;
      await finishingBefore;
      const seconds = (performance.now() - startedAt) / 1000;
      finish(() => chargeDriveTime(ctx, { fileIds: recalls.map(toFileId), seconds }));
    }
  } finally {
    try {
      await writing;
      await mounted?.unmount();
      await giveBackAhead();
    } finally {
      await finishing;
    }
  }
}

/** A volume that fails again and again is taken out of service; until then all of its files wait for the next mount. */
async function noteMountFailure(
  ctx: Context,
  failures: VolumeFailures,
  { volume, volumeId }: WaitingVolume,
  thrown: unknown,
): Promise<void> {
  const at = { now: ctx.now(), random: Math.random() };
  const { errorClass, error, notBefore, holdReason } = failures.mountFailed(volume, thrown, at);
  if (holdReason !== undefined) await holdFailing(ctx, volume, holdReason);
  if (notBefore !== undefined) await postponeVolume(ctx, volumeId, { errorClass, error, notBefore });
}

function toFileId({ fileId }: RunningRecall): bigint {
  return fileId;
}

/** The files to read next; none when the volume has no work, or it is time for another one. */
async function planVolume(
  ctx: Context,
  lease: HeldLease,
  at: { volume: WaitingVolume; head: number; since: number },
): Promise<QueuedRecall[]> {
  if (await isSuspended(ctx, lease.driveName)) return [];
  const volumes = groupByVolume(await readQueues(ctx));
  const here = volumes.find((volume) => volume.volumeId === at.volume.volumeId);
  if (!here) return [];
  const shares = await readShares(ctx);
  const state = { shares, now: secondsOf(ctx.now()), policy: defaultPolicy };
  const others = volumes.filter((volume) => !volume.isMounted);
  if (isTimeToLeave({ since: at.since, here: here.users }, openBacklog(others, state), state)) return [];
  const users = firstUsers(here.users, state);
  const recalls = await readVolumeQueue(ctx, { volumeId: here.volumeId, users });
  return orderRecalls(here.medium, at.head, recalls);
}
