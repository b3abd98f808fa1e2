/** One volume in a drive: planned, read batch by batch, planned anew when the queue has changed, and left in time. */
import type { Context } from '../context.js';
import { postponeVolume, readQueues, readVolumeQueue } from '../operations/recall-queue.js';
import { finishRecalls, type RecallOutcome, type RunningRecall, startRecalls } from '../operations/recalls.js';
import { chargeDriveTime, readShares } from '../operations/shares.js';
import { holdFailing, isSuspended } from '../operations/suspensions.js';
import { groupByVolume, orderRecalls, type QueuedRecall, takeBatch, type WaitingVolume } from '../planner/queue.js';
import { defaultPolicy, firstUsers, isTimeToLeave, openBacklog } from '../planner/schedule.js';
import type { MountedVolume, TapeBackend } from '../tape/backend.js';
import { secondsOf } from '../time.js';
import type { DriveOptions } from './drive.js';
import type { HeldLease } from './lease.js';
import { judgeAll, runBatch } from './recall.js';
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
  let hasStarted = true;
  // the outcomes of a batch are written down, in order, while the next one is read
  let finishing: Promise<unknown> = Promise.resolve();
  const report = (outcomes: RecallOutcome[], holdReason?: string) => {
    finishing = finishing.then(() => finishRecalls(ctx, lease, outcomes));
    if (holdReason !== undefined) finishing = finishing.then(() => holdFailing(ctx, volume.volume, holdReason));
    finishing.catch(() => {}); // awaited below
  };
  try {
    while (!options.stop.aborted && !lease.signal.aborted) {
      if (plan.length === 0 || performance.now() - plannedAt >= REPLAN_MS) {
        if (plan.length === 0 && !hasStarted) break; // what is left cannot start now
        hasStarted = false;
        plan = await planVolume(ctx, lease, { volume, head, since });
        plannedAt = performance.now();
        if (plan.length === 0) break;
      }
      const startedAt = performance.now();
      const chosen = takeBatch(plan);
      plan = plan.slice(chosen.length);
      const last = chosen.at(-1);
      if (last) head = Number(last.start + last.size);
      const batch = await startRecalls(ctx, lease, {
        fileIds: chosen.map((recall) => recall.fileId),
        measure: (disks) => options.gauge.measure(disks),
      });
      if (batch.length === 0) continue;
      hasStarted = true;
      const before = finishing;
      const fileIds = batch.map((recall) => recall.fileId);
      const signal = options.running.beginMount(fileIds, lease.signal);
      const findHoldReason = options.failures.followReads(volume.volume, batch);
      const reportReads = (outcomes: RecallOutcome[]) => report(outcomes, findHoldReason(outcomes));
      try {
        mounted ??= await backend.mount(volume.volume, lease.driveName, signal);
        options.failures.mountSucceeded(volume.volume);
        await runBatch(ctx, lease, mounted, { batch, running: options.running, report: reportReads });
      } catch (error) {
        for (const fileId of fileIds) options.running.end(fileId);
        // what has been reported already is not touched by this
        report(signal.aborted ? batch.map(toReturned) : judgeAll(ctx, batch, error));
        if (!mounted && !signal.aborted) {
          await noteMountFailure(ctx, options.failures, volume, error);
          plan = [];
          hasStarted = false; // the others of the volume wait as well
        }
      }
      await before;
      await chargeDriveTime(ctx, { fileIds, seconds: (performance.now() - startedAt) / 1000 });
    }
  } finally {
    await mounted?.unmount();
    await finishing;
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

function toReturned({ fileId }: RunningRecall): RecallOutcome {
  return { fileId, kind: 'returned' };
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
