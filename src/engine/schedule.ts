/**
 * Which volume a free drive mounts next, and when it leaves it again. Pure: the queue by volume and user, the shares
 * and the time in, the choice and its reason out.
 *
 * - What has waited longer than `maxWaitSeconds` goes first, oldest first: nothing starves.
 * - Otherwise the user goes first who has had the fewest drive seconds of late, divided by the user's weight; of the
 *   volumes that hold files of that user, the one that brings the most bytes a drive second, whoever wants them.
 * - A small and young queue waits a while for more, so that a mount pays.
 * - A drive stays on its volume while there is work, but after `quantumSeconds` only as long as nobody who has had
 *   less waits elsewhere.
 */
import { type Medium, typicalLocateSeconds } from './media.js';

/** What one user waits for on one volume. */
export interface UserQueue {
  user: string;
  files: number;
  bytes: number;
  /** When the oldest of them was asked for; seconds. */
  oldest: number;
  /** The highest among them; 0 is usual. */
  priority: number;
}

export interface VolumeQueue {
  volume: string;
  medium: Medium;
  users: UserQueue[];
}

export interface SchedulePolicy {
  /** What waits longer goes first, whoever asked for it. */
  maxWaitSeconds: number;
  /** A drive stays at least so long on a volume that has work. */
  quantumSeconds: number;
  /** A queue of fewer files and fewer bytes waits up to `collectSeconds` for more. */
  collectFiles: number;
  collectBytes: number;
  collectSeconds: number;
}

export const defaultPolicy: SchedulePolicy = {
  maxWaitSeconds: 24 * 3600,
  quantumSeconds: 1800,
  collectFiles: 0,
  collectBytes: 0,
  collectSeconds: 0,
};

/** Drive seconds that each user has had of late, divided by the user's weight; a user not in it has had none. */
export type Shares = ReadonlyMap<string, number>;

export interface Choice<Queue extends VolumeQueue> {
  queue: Queue;
  /** For people. */
  reason: string;
}

/** @returns undefined when nothing is to be mounted now */
export function chooseNext<Queue extends VolumeQueue>(
  queues: readonly Queue[],
  state: { shares: Shares; now: number; policy: SchedulePolicy },
): Choice<Queue> | undefined {
  const ripe = queues.filter((queue) => isRipe(queue, state));
  const overdue = findOldest(ripe);
  if (overdue && state.now - overdue.oldest > state.policy.maxWaitSeconds) {
    return { queue: overdue.queue, reason: 'its oldest file has waited longest, and longer than the bound' };
  }
  const first = findFirstUser(ripe, state.shares);
  if (!first) return undefined;
  let best: Queue | undefined;
  for (const queue of ripe) {
    const has = queue.users.some((entry) => entry.user === first.user && entry.priority === first.priority);
    if (has && (!best || yieldOf(queue) > yieldOf(best))) best = queue;
  }
  return best && { queue: best, reason: `user ${first.user} has had the least drive time; the volume yields most` };
}

/**
 * Is it time for a drive to leave a volume that still has work?
 * @param here the users with work on the mounted volume
 * @param others the queues of the volumes that no drive has
 */
export function isTimeToLeave(
  mounted: { since: number; here: readonly UserQueue[] },
  others: readonly VolumeQueue[],
  state: { shares: Shares; now: number; policy: SchedulePolicy },
): boolean {
  if (state.now - mounted.since < state.policy.quantumSeconds) return false;
  const ripe = others.filter((queue) => isRipe(queue, state));
  const oldest = findOldest(ripe);
  if (oldest && state.now - oldest.oldest > state.policy.maxWaitSeconds) {
    const here = Math.min(...mounted.here.map((entry) => entry.oldest));
    if (oldest.oldest < here) return true;
  }
  const first = findFirstUser(ripe, state.shares);
  if (!first) return false;
  return mounted.here.every(
    (entry) =>
      entry.priority < first.priority ||
      (entry.priority === first.priority && shareOf(entry.user, state.shares) > shareOf(first.user, state.shares)),
  );
}

function isRipe(queue: VolumeQueue, state: { now: number; policy: SchedulePolicy }): boolean {
  const { policy } = state;
  if (queue.users.length === 0) return false;
  const { files, bytes, oldest } = sumOf(queue);
  return files >= policy.collectFiles || bytes >= policy.collectBytes || state.now - oldest >= policy.collectSeconds;
}

function sumOf(queue: VolumeQueue): { files: number; bytes: number; oldest: number } {
  let [files, bytes, oldest] = [0, 0, Number.POSITIVE_INFINITY];
  for (const entry of queue.users) {
    files += entry.files;
    bytes += entry.bytes;
    oldest = Math.min(oldest, entry.oldest);
  }
  return { files, bytes, oldest };
}

function findOldest<Queue extends VolumeQueue>(queues: readonly Queue[]): { queue: Queue; oldest: number } | undefined {
  let best: { queue: Queue; oldest: number } | undefined;
  for (const queue of queues) {
    const { oldest } = sumOf(queue);
    if (!best || oldest < best.oldest) best = { queue, oldest };
  }
  return best;
}

/** The user whose turn it is: by priority, then by share, then by age. */
function findFirstUser(queues: readonly VolumeQueue[], shares: Shares): UserQueue | undefined {
  let best: UserQueue | undefined;
  for (const queue of queues) {
    for (const entry of queue.users) if (!best || isBefore(entry, best, shares)) best = entry;
  }
  return best;
}

function isBefore(a: UserQueue, b: UserQueue, shares: Shares): boolean {
  if (a.priority !== b.priority) return a.priority > b.priority;
  const difference = shareOf(a.user, shares) - shareOf(b.user, shares);
  return difference !== 0 ? difference < 0 : a.oldest < b.oldest;
}

function shareOf(user: string, shares: Shares): number {
  return shares.get(user) ?? 0;
}

/** Bytes a drive second, with the mount. */
function yieldOf(queue: VolumeQueue): number {
  const { files, bytes } = sumOf(queue);
  return bytes / estimateSeconds(queue.medium, files, bytes);
}

/** About how long a drive is busy with a queue, mount and unmount included. */
export function estimateSeconds(medium: Medium, files: number, bytes: number): number {
  const streaming = bytes / medium.streamBytesPerSecond;
  return medium.mountSeconds + medium.unmountSeconds + streaming + files * typicalLocateSeconds(medium, files);
}
