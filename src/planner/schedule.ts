/**
 * Chooses the next volume for a free drive, and decides when a drive leaves a volume. All functions are pure.
 *
 * A free drive reads next for the user with the lowest share. A user's share is the user's recent drive seconds divided
 * by the user's weight. Among the volumes with this user's files, the drive chooses the volume with the most requested
 * bytes per drive second. The requested bytes include those of other users.
 *
 * Files with a higher priority are read first, regardless of their users' shares. Files that have waited longer than
 * `maxWaitSeconds` get the highest priority. If some files of the next user have waited longer than `maxWaitSeconds`,
 * the drive chooses the volume with this user's oldest request.
 *
 * To serve more files with one mount, a drive does not mount a volume while the volume's queue is small and recent.
 *
 * A drive reads the files on a volume in sweeps. A sweep contains the files of all users in the next turn. The sweep
 * also contains the files of users in later turns, as long as all its files can be read within `sweepSeconds`. Users
 * whose shares differ by at most `turnSeconds` have the same turn.
 *
 * A drive stays on its volume for `quantumSeconds`, or longer if all the volume's files can be read within
 * `sweepSeconds`. Afterwards, the drive leaves the volume if a user with files on another volume has a share that is
 * lower by more than `turnSeconds`.
 */
import { Backlog, type Demand, sumOf, type UserQueue, type VolumeQueue } from './backlog.js';
import { estimateReading, type Medium } from './media.js';

export interface SchedulePolicy {
  /** Seconds after which waiting files get the highest priority. */
  maxWaitSeconds: number;
  /** Minimum seconds that a drive stays on a volume with waiting files. */
  quantumSeconds: number;
  /**
   * Users whose shares differ by at most this many seconds have the same turn. The files of users in the same turn are
   * read together.
   */
  turnSeconds: number;
  /**
   * Duration of a sweep over the files on a volume, in seconds. A sweep includes files of users in later turns only if
   * there is enough time.
   */
  sweepSeconds: number;
  /**
   * A volume with fewer waiting files than `collectFiles`, and fewer bytes than `collectBytes`, is not mounted until
   * its oldest request is `collectSeconds` old. This rule does not apply to media without a mount time.
   */
  collectFiles: number;
  collectBytes: number;
  collectSeconds: number;
}

/**
 * The default policy. `collectBytes` is about what an LTO-8 drive can stream in the two minutes that it takes to mount
 * and unmount a volume.
 */
export const defaultPolicy: SchedulePolicy = {
  maxWaitSeconds: 24 * 3600,
  quantumSeconds: 600,
  turnSeconds: 1800,
  sweepSeconds: 3600,
  collectFiles: 10,
  collectBytes: 45e9,
  collectSeconds: 120,
};

/**
 * Each user's recent drive seconds, divided by the user's weight. A user without an entry has no recent drive seconds.
 */
export type Shares = ReadonlyMap<string, number>;

export interface ScheduleState {
  shares: Shares;
  now: number;
  policy: SchedulePolicy;
}

interface Choice<Queue extends VolumeQueue> {
  queue: Queue;
  reason: string;
}

/** Returns the next volume to mount, with the reason; undefined if no file waits. */
export function chooseNext<Queue extends VolumeQueue>(
  backlog: Backlog<Queue>,
  state: ScheduleState,
): Choice<Queue> | undefined {
  const users = [...backlog.users()];
  const judge = createJudge(users, state);
  const first = judge.first(users);
  if (!first) return undefined;
  const rank = judge.rankOf(first);
  const isLate = judge.isOverdue(first);
  let best: { queue: Queue; oldest: number; yield: number } | undefined;
  for (const candidate of backlog.volumesOf(first.user)) {
    if (judge.rankOf(candidate.entry) < rank) continue;
    const oldest = isLate ? candidate.entry.oldest : 0;
    const isBetter = !best || oldest < best.oldest || (oldest === best.oldest && candidate.yield > best.yield);
    if (isBetter) best = { queue: candidate.queue, oldest, yield: candidate.yield };
  }
  const why = isLate
    ? 'the volume has waited the longest, and its waiting time exceeds the limit'
    : 'the volume yields the most bytes per second';
  return best && { queue: best.queue, reason: `user ${first.user} has had the least drive time; ${why}` };
}

/** A volume in a drive, the time of its mount, and the users whose files wait on it. */
interface MountedQueue {
  since: number;
  medium: Medium;
  here: readonly UserQueue[];
}

/** Returns whether a drive stays on a volume with waiting files, regardless of the backlog of other volumes. */
export function mustStay(
  { since, medium, here }: MountedQueue,
  { now, policy }: Omit<ScheduleState, 'shares'>,
): boolean {
  const stayed = now - since;
  return stayed < policy.quantumSeconds || stayed + readingSeconds(medium, here) <= policy.sweepSeconds;
}

/**
 * Returns whether a drive should leave a volume that still has waiting files.
 * @param others the backlog of unmounted volumes
 */
export function isTimeToLeave(mounted: MountedQueue, others: Backlog<VolumeQueue>, state: ScheduleState): boolean {
  if (mustStay(mounted, state)) return false;
  const elsewhere = [...others.users()];
  const judge = createJudge([...elsewhere, ...mounted.here], state);
  const first = judge.first(elsewhere);
  if (!first) return false;
  const isLate = judge.isOverdue(first);
  return mounted.here.every((entry) => {
    const rank = judge.rankOf(entry) - judge.rankOf(first);
    if (rank !== 0) return rank < 0;
    const share = judge.shareOf(entry.user) - judge.shareOf(first.user);
    return share > state.policy.turnSeconds || (share >= 0 && isLate && first.oldest < entry.oldest);
  });
}

/** Users whose files on a volume are read in one sweep, and the time, in seconds, at which the sweep started. */
export interface Sweep {
  users: ReadonlySet<string>;
  since: number;
}

/**
 * Returns the users whose files on a volume are read next: users in the next turn and, if the sweep has time, in later
 * turns. The users of a running sweep change only if a user with a higher priority joins.
 */
export function chooseSweep(
  { medium, users }: Pick<VolumeQueue, 'medium' | 'users'>,
  state: ScheduleState,
  begun?: Sweep | undefined,
): Sweep {
  const judge = createJudge(users, state);
  const first = judge.first(users);
  if (!first) return { users: new Set(), since: state.now };
  const inOrder = users.filter((entry) => judge.rankOf(entry) === judge.rankOf(first)).sort(judge.compare);
  const going = inOrder.filter((entry) => begun?.users.has(entry.user));
  const secondsLeft = begun ? begun.since + state.policy.sweepSeconds - state.now : 0;
  const goesOn = begun && going.length > 0 && readingSeconds(medium, going) <= secondsLeft;
  const most = judge.shareOf(first.user) + state.policy.turnSeconds;
  const turn = goesOn ? going : inOrder.filter((entry) => judge.shareOf(entry.user) <= most);
  const all = join(medium, turn, inOrder, goesOn ? secondsLeft : state.policy.sweepSeconds);
  const isBegun = begun && all.length === going.length && all.every((entry) => begun.users.has(entry.user));
  return { users: new Set(all.map((entry) => entry.user)), since: goesOn || isBegun ? begun.since : state.now };
}

/**
 * Adds users to `chosen` in the order of their turns, as long as the files of all these users can be read within
 * `seconds`.
 */
function join(
  medium: Medium,
  chosen: readonly UserQueue[],
  inOrder: readonly UserQueue[],
  seconds: number,
): readonly UserQueue[] {
  const all = new Set(chosen);
  let { files, bytes } = sumOf({ users: chosen });
  for (const entry of inOrder) {
    if (all.has(entry)) continue;
    files += entry.files;
    bytes += entry.bytes;
    if (estimateReading(medium, files, bytes) > seconds) break;
    all.add(entry);
  }
  return [...all];
}

export function readingSeconds(medium: Medium, users: readonly UserQueue[]): number {
  const { files, bytes } = sumOf({ users });
  return estimateReading(medium, files, bytes);
}

/** Returns a backlog that contains only queues that are large enough, or old enough, to justify a mount. */
export function openBacklog<Queue extends VolumeQueue>(queues: readonly Queue[], state: ScheduleState): Backlog<Queue> {
  return new Backlog(queues.filter((queue) => isRipe(queue, state)));
}

const isRipe = (queue: VolumeQueue, { now, policy }: ScheduleState): boolean => ripeAt(queue, policy) <= now;

/** Returns the time from which a volume's queue is large enough, or old enough, to justify a mount. */
export function ripeAt(queue: VolumeQueue, policy: SchedulePolicy): number {
  if (queue.medium.mountSeconds === 0) return Number.NEGATIVE_INFINITY;
  const { files, bytes, oldest } = sumOf(queue);
  if (files >= policy.collectFiles || bytes >= policy.collectBytes) return Number.NEGATIVE_INFINITY;
  return oldest + policy.collectSeconds;
}

/**
 * Returns functions that compare users by the priority of their files, then by share, and then by the age of their
 * oldest request.
 */
function createJudge(all: readonly Demand[], { shares, now, policy }: ScheduleState) {
  const shareOf = (user: string) => shares.get(user) ?? 0;
  const isOverdue = (demand: Demand) => now - demand.oldest > policy.maxWaitSeconds;
  const highest = all.reduce((rank, { priority }) => Math.max(rank, priority), Number.NEGATIVE_INFINITY);
  const rankOf = (demand: Demand) => (isOverdue(demand) ? highest : demand.priority);
  const isBefore = (a: Demand, b: Demand) => {
    const rank = rankOf(a) - rankOf(b);
    if (rank !== 0) return rank > 0;
    const difference = shareOf(a.user) - shareOf(b.user);
    return difference !== 0 ? difference < 0 : a.oldest < b.oldest;
  };
  const first = <D extends Demand>(demands: readonly D[]): D | undefined =>
    demands.reduce<D | undefined>((best, demand) => (best && !isBefore(demand, best) ? best : demand), undefined);
  const compare = (a: Demand, b: Demand) => (isBefore(a, b) ? -1 : isBefore(b, a) ? 1 : 0);
  return { compare, first, isOverdue, rankOf, shareOf };
}

export const HALF_LIFE_SECONDS = 24 * 3600;

export function decay(driveSeconds: number, seconds: number): number {
  return driveSeconds * 0.5 ** (Math.max(seconds, 0) / HALF_LIFE_SECONDS);
}
