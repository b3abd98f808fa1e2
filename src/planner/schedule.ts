/**
 * Which volume a free drive mounts next, and when it leaves it again. Pure: the queue by volume and user, the shares
 * and the time in, the choice and its reason out.
 *
 * - The user goes first who has had the fewest drive seconds of late, divided by the user's weight; of the volumes that
 *   hold files of that user, the one that brings the most bytes a drive second, whoever wants them.
 * - Higher priorities go before all shares. What has waited longer than `maxWaitSeconds` is past that: no priority goes
 *   before it any more, and of its user's volumes the one that has waited longest is next, whatever it yields.
 * - A small and young queue waits a while for more, so that a mount pays.
 * - A drive stays on its volume while there is work, but after `quantumSeconds` only as long as nobody who has had
 *   less waits elsewhere.
 *
 * So nothing starves: bound.ts says how long a file waits at most.
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
  /** What waits longer is no longer passed over for a priority or a better yield. */
  maxWaitSeconds: number;
  /** A drive stays at least so long on a volume that has work. */
  quantumSeconds: number;
  /** A queue of fewer files and fewer bytes waits up to `collectSeconds` for more, where a mount costs time. */
  collectFiles: number;
  collectBytes: number;
  collectSeconds: number;
}

/** LTO-8 takes two minutes for a mount and an unmount, in which it streams `collectBytes`; a quantum is five times that. */
export const defaultPolicy: SchedulePolicy = {
  maxWaitSeconds: 24 * 3600,
  quantumSeconds: 600,
  collectFiles: 10,
  collectBytes: 45e9,
  collectSeconds: 120,
};

/** Drive seconds that each user has had of late, divided by the user's weight; a user not in it has had none. */
export type Shares = ReadonlyMap<string, number>;

export interface ScheduleState {
  shares: Shares;
  /** Seconds. */
  now: number;
  policy: SchedulePolicy;
}

export interface Choice<Queue extends VolumeQueue> {
  queue: Queue;
  /** For people. */
  reason: string;
}

/** @returns undefined when nothing is to be mounted now */
export function chooseNext<Queue extends VolumeQueue>(
  queues: readonly Queue[],
  state: ScheduleState,
): Choice<Queue> | undefined {
  const ripe = queues.filter((queue) => isRipe(queue, state));
  const judge = createJudge(
    ripe.flatMap((queue) => queue.users),
    state,
  );
  const first = judge.first;
  if (!first) return undefined;
  const isWanted = (entry: UserQueue) => entry.user === first.user && judge.rankOf(entry) === judge.rankOf(first);
  const isLate = judge.isOverdue(first);
  let best: { queue: Queue; oldest: number; yield: number } | undefined;
  for (const queue of ripe) {
    const wanted = queue.users.filter(isWanted);
    if (wanted.length === 0) continue;
    const oldest = isLate ? Math.min(...wanted.map((entry) => entry.oldest)) : 0;
    const candidate = { queue, oldest, yield: yieldOf(queue) };
    if (!best || oldest < best.oldest || (oldest === best.oldest && candidate.yield > best.yield)) best = candidate;
  }
  const why = isLate ? 'the volume has waited longest, and longer than the bound' : 'the volume yields most';
  return best && { queue: best.queue, reason: `user ${first.user} has had the least drive time; ${why}` };
}

/**
 * Is it time for a drive to leave a volume that still has work?
 * @param here the users with work on the mounted volume
 * @param others the queues of the volumes that no drive has
 */
export function isTimeToLeave(
  mounted: { since: number; here: readonly UserQueue[] },
  others: readonly VolumeQueue[],
  state: ScheduleState,
): boolean {
  if (state.now - mounted.since < state.policy.quantumSeconds) return false;
  const elsewhere = others.filter((queue) => isRipe(queue, state)).flatMap((queue) => queue.users);
  const judge = createJudge([...elsewhere, ...mounted.here], state);
  const first = elsewhere.reduce<UserQueue | undefined>((a, b) => (a && !judge.isBefore(b, a) ? a : b), undefined);
  if (!first) return false;
  const isLate = judge.isOverdue(first);
  return mounted.here.every((entry) => {
    const rank = judge.rankOf(entry) - judge.rankOf(first);
    if (rank !== 0) return rank < 0;
    const share = judge.shareOf(entry.user) - judge.shareOf(first.user);
    return share > 0 || (share === 0 && isLate && first.oldest < entry.oldest);
  });
}

/** Users whose turn comes about the same time are read in one sweep, so that fairness costs few locates. */
const SAME_TURN_SECONDS = 600;

/** The users of a volume who are to be read first, all of one turn. */
export function firstUsers(here: readonly UserQueue[], state: ScheduleState): string[] {
  const { first, rankOf, shareOf } = createJudge(here, state);
  if (!first) return [];
  const least = shareOf(first.user);
  return here
    .filter((entry) => rankOf(entry) === rankOf(first) && shareOf(entry.user) <= least + SAME_TURN_SECONDS)
    .map((entry) => entry.user);
}

/** Who comes before whom: by priority, then by share, then by age. */
function createJudge(entries: readonly UserQueue[], { shares, now, policy }: ScheduleState) {
  const shareOf = (user: string) => shares.get(user) ?? 0;
  const isOverdue = (entry: UserQueue) => now - entry.oldest > policy.maxWaitSeconds;
  const highest = entries.reduce((rank, entry) => Math.max(rank, entry.priority), Number.NEGATIVE_INFINITY);
  const rankOf = (entry: UserQueue) => (isOverdue(entry) ? Math.max(highest, entry.priority) : entry.priority);
  const isBefore = (a: UserQueue, b: UserQueue) => {
    const rank = rankOf(a) - rankOf(b);
    if (rank !== 0) return rank > 0;
    const difference = shareOf(a.user) - shareOf(b.user);
    return difference !== 0 ? difference < 0 : a.oldest < b.oldest;
  };
  let first: UserQueue | undefined;
  for (const entry of entries) if (!first || isBefore(entry, first)) first = entry;
  return { first, isBefore, isOverdue, rankOf, shareOf };
}

function isRipe(queue: VolumeQueue, { now, policy }: ScheduleState): boolean {
  if (queue.users.length === 0) return false;
  if (queue.medium.mountSeconds === 0) return true;
  const { files, bytes, oldest } = sumOf(queue);
  return files >= policy.collectFiles || bytes >= policy.collectBytes || now - oldest >= policy.collectSeconds;
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

/** Bytes a drive second, with the mount. */
function yieldOf(queue: VolumeQueue): number {
  const { files, bytes } = sumOf(queue);
  return bytes / estimateSeconds(queue.medium, files, bytes);
}

/** About how long a drive is busy with a queue, mount and unmount included. */
export function estimateSeconds(medium: Medium, files: number, bytes: number): number {
  return medium.mountSeconds + medium.unmountSeconds + estimateReading(medium, files, bytes);
}

/** About how long a drive reads files of a volume that it has mounted. */
export function estimateReading(medium: Medium, files: number, bytes: number): number {
  return bytes / medium.streamBytesPerSecond + files * typicalLocateSeconds(medium, files);
}
