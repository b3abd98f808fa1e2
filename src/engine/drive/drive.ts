/** A drive's life cycle in an engine: claim, recover, mount, read, unmount. Detects tape calls that hang. */
import { setTimeout as sleep } from 'node:timers/promises';
import { logFailure } from '../../core/errors.js';
import { secondsOf } from '../../core/time.js';
import type { Context } from '../../domain/context.js';
import { suspendDisk } from '../../domain/health/failing-disks.js';
import { suspendFailing } from '../../domain/health/suspensions.js';
import { readShares } from '../../domain/quotas/shares.js';
import { claimDrive, type DriveRange, releaseDrive } from '../../domain/recalls/drives.js';
import { readQueues } from '../../domain/recalls/queue.js';
import type { Backlog } from '../../planner/backlog.js';
import { groupByVolume, type WaitingVolume } from '../../planner/queue.js';
import { chooseNext, defaultPolicy, openBacklog, type ScheduleState } from '../../planner/schedule.js';
import { type CallTarget, CallWatch, type HungError, limitsOf, tapeSeconds } from '../../restore-area/call-watch.js';
import { DriveError, type DriveLibrary, isRefusal, type MountedVolume } from '../../tape/drive-library.js';
import { openNow, suspendBroken, suspendRefusing, visitVolume } from './drive-failures.js';
import { type HeldLease, holdLease } from './lease.js';
import type { DriveOptions, LeaseOptions } from './options.js';
import { addRecallCounters } from './recall-counts.js';
import { cleanUp } from './stale-files.js';
import { verifyNext } from './verify.js';
import { workVolume } from './visit.js';

/** Milliseconds to wait before claiming a drive again, after a drive was released or an error occurred. */
const RESTART_MS = 1000;

/**
 * Function that reads files with a claimed drive until another engine should use the drive.
 * @returns whether only other hosts can do the remaining work
 */
export type DriveWork = (ctx: Context, lease: HeldLease, options: DriveOptions) => Promise<boolean>;

export function mountVolumes(library: DriveLibrary): DriveWork {
  return (ctx, lease, options) => workDrive(ctx, followLibrary(library, lease, ctx.config), lease, options);
}

/**
 * Repeats these steps until `stop` aborts: claims a drive, reads files with the drive, and releases the drive. After a
 * database or library error, logs the error and continues.
 */
export async function runDrive(ctx: Context, work: DriveWork, options: DriveOptions): Promise<void> {
  while (!options.stop.aborted) {
    let restMs = RESTART_MS;
    const report = (error: unknown) => logFailure(ctx.log, error, 'drive');
    await takeOver(ctx, options).catch(report);
    await claimAndWork(ctx, work, options).then((isForOtherHosts) => {
      if (isForOtherHosts) restMs = options.unusablePauseMs;
    }, report);
    await sleep(restMs, undefined, { signal: options.stop }).catch(() => {}); // the pause ends early if `stop` aborts
  }
}

/**
 * Claims and uses a drive unless other engines have priority.
 * @returns true if this host cannot use the drive, but another host might be able to use the drive
 */
async function claimAndWork(ctx: Context, work: DriveWork, options: DriveOptions): Promise<boolean> {
  const { library, share } = options;
  const except = await share.listReserved();
  if (!except) return false;
  let isForOtherHosts = false;
  await useDrive(ctx, options, { of: library, except }, async (lease) => {
    isForOtherHosts = await work(ctx, lease, options).catch(async (error: unknown) => {
      if (error instanceof DriveError) await suspendBroken(ctx, lease, error);
      else if (isRefusal(error)) await suspendRefusing(ctx, lease, options, error);
      else throw error;
      // return true, because another host might be able to use the drive
      return true;
    });
    if (isForOtherHosts) share.yieldDrives(); // give other hosts priority before the drive is released
  });
  return isForOtherHosts;
}

/** Recovers the drives of dead engines, including drives that were removed from the site's configuration. */
export async function takeOver(ctx: Context, options: LeaseOptions): Promise<void> {
  // ids of the drives that this call has tried to recover, whether or not the recovery succeeded
  const done: number[] = [];
  while (!options.stop.aborted) {
    const driveId = await useDrive(ctx, options, { except: done }, async () => {});
    if (driveId === undefined) return;
    done.push(driveId);
  }
}

/**
 * Claims, recovers, uses and releases a drive.
 * @returns the drive's id; undefined if no drive can be claimed
 */
async function useDrive(
  ctx: Context,
  options: LeaseOptions,
  { of, except = [] }: { of?: DriveRange; except?: readonly number[] },
  use: (lease: HeldLease) => Promise<void>,
): Promise<number | undefined> {
  const { engineId, leaseSeconds, held } = options;
  const claimedAt = performance.now();
  const claimed = await claimDrive(ctx, { engineId, of, leaseSeconds, except: [...held, ...except] });
  if (!claimed) return undefined;
  addRecallCounters(claimed.driveName);
  let end: (hung?: HungError) => void = () => {};
  const ended = new Promise<HungError | undefined>((resolve) => {
    end = resolve;
  });
  const calls = new CallWatch(limitsOf(ctx), (hung) => {
    lease.giveUp(); // if a hung call returns later, the code after the call must not change disks or the database
    end(hung);
  });
  const lease = holdLease(ctx, claimed, { leaseSeconds, claimedAt, stop: options.abort, held, calls });
  const onLeave = () => end();
  options.leave.addEventListener('abort', onLeave);
  const work = cleanUp(ctx, lease, options.disks).then(() => use(lease));
  try {
    const hung = await Promise.race([work.then(() => undefined), ended]);
    if (hung) await suspendHung(ctx, hung);
  } finally {
    options.leave.removeEventListener('abort', onLeave);
    lease.endRenewal();
    await releaseDrive(ctx, claimed, lease.meter.sums).finally(() => {
      if (calls.hasHung) options.onHang();
    });
  }
  return claimed.driveId;
}

async function suspendHung(ctx: Context, { target, message }: HungError): Promise<void> {
  if (target.kind === 'disk') return await suspendDisk(ctx, target.mountpoint, message);
  await suspendFailing(ctx, { kind: 'VOLUME', name: target.volume }, { problem: message });
  await suspendFailing(ctx, { kind: 'DRIVE', name: target.drive }, { problem: message });
}

/**
 * Mounts and reads volumes until another engine should use the drive.
 * @returns whether only other hosts can do the remaining work
 */
async function workDrive(
  ctx: Context,
  library: DriveLibrary,
  lease: HeldLease,
  options: DriveOptions,
): Promise<boolean> {
  const stop = AbortSignal.any([options.stop, lease.signal]);
  let verifyAt = 0;
  while (!stop.aborted && !(await options.share.mustRelease(lease.driveName))) {
    const seen = options.work.count;
    const opening = await openNow(ctx, lease, options.library);
    const queues = opening?.isQueued ? groupByVolume(await readQueues(ctx, lease)) : [];
    const shares = queues.length > 0 ? await readShares(ctx) : new Map<string, number>();
    const state = { shares, now: secondsOf(ctx.now()), policy: defaultPolicy };
    const isFree = ({ volume, isMounted }: WaitingVolume) =>
      !isMounted &&
      !options.failures.isLibraryPaused &&
      !options.failures.isPaused(volume, ctx.now()) &&
      !options.failures.isIdle(volume);
    const free = queues.filter(isFree);
    const use = async (next: WaitingVolume) => await workVolume(ctx, library, lease, { volume: next, options });
    const { volume, hasRead } = await visitNext(ctx, lease, { backlog: openBacklog(free, state), state, stop }, use);
    if (volume && hasRead !== undefined) {
      options.failures.recordVisit(volume.volume, hasRead);
      if (options.failures.isLibraryPaused || (!hasRead && options.gauge.hasAbsent)) return true;
    } else if (opening && performance.now() >= verifyAt) {
      if (!(await verifyNext(ctx, library, lease, { stop, failures: options.failures })))
        verifyAt = performance.now() + options.verifyMs;
    } else await options.work.wait(seen, options.idleMs, stop);
  }
  return false;
}

/**
 * Visits the volume that the planner chooses. If other drives have mounted this volume since the queue was read, visits
 * the planner's next choice, because in a large queue, another read of the queue takes seconds.
 * @returns the last chosen volume; `hasRead`, the result of `use`; undefined if no volume was visited
 */
async function visitNext(
  ctx: Context,
  lease: HeldLease,
  { backlog, state, stop }: { backlog: Backlog<WaitingVolume>; state: ScheduleState; stop: AbortSignal },
  use: (volume: WaitingVolume) => Promise<boolean>,
): Promise<{ volume?: WaitingVolume; hasRead?: boolean }> {
  while (!stop.aborted) {
    const volume = chooseNext(backlog, state)?.queue;
    if (!volume) return {};
    const hasRead = await visitVolume(ctx, lease, { volumeId: volume.volumeId, stop }, () => use(volume));
    if (hasRead !== undefined) return { volume, hasRead };
    backlog.remove(volume);
  }
  return {};
}

type Follow = <T>(what: 'mount' | 'read' | 'unmount', call: () => Promise<T>) => Promise<T>;

/**
 * Applies a time limit to each call to a library.
 * @param limit default time limit, for calls without their own time limit
 */
function followLibrary(
  library: DriveLibrary,
  { calls, driveName }: HeldLease,
  limit: { tapeTimeout: number },
): DriveLibrary {
  return {
    mount: async (volume, drive, signal) => {
      const target: CallTarget = { kind: 'tape', volume, drive: driveName };
      const follow: Follow = (what, call) => calls.follow(target, call, tapeSeconds(limit, library.ownSeconds?.[what]));
      return followVolume(await follow('mount', () => library.mount(volume, drive, signal)), follow);
    },
  };
}

function followVolume(volume: MountedVolume, follow: Follow): MountedVolume {
  return {
    read: (file, signal) => followChunks(volume.read(file, signal), follow),
    unmount: () => follow('unmount', () => volume.unmount()),
  };
}

/**
 * Applies the time limit to each chunk separately. The time that the caller spends on processing a chunk does not count
 * toward the limit.
 */
async function* followChunks(chunks: AsyncIterable<Uint8Array>, follow: Follow): AsyncGenerator<Uint8Array> {
  const iterator = chunks[Symbol.asyncIterator]();
  let isOver = false;
  try {
    for (;;) {
      const { value, done } = await follow('read', () => iterator.next());
      if (done) {
        isOver = true;
        return;
      }
      yield value;
    }
  } catch (error) {
    isOver = true; // do not call the iterator's `return` after an error or a hung call
    throw error;
  } finally {
    if (!isOver) await follow('read', async () => await iterator.return?.());
  }
}
