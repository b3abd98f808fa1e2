/**
 * Which volume a free drive mounts next, and when it leaves it again. Pure: the backlog by volume and user, the shares
 * and the time in, the choice and its reason out.
 *
 * - The user goes first who has had the fewest drive seconds of late, divided by the user's weight; of the volumes that
 *   hold files of that user, the one that brings the most bytes a drive second, whoever wants them.
 * - Higher priorities go before all shares. What has waited longer than `maxWaitSeconds` is past that: no priority goes
 *   before it any more, and of its user's volumes the one that has waited longest is next, whatever it yields.
 * - A small and young queue waits a while for more, so that a mount pays.
 * - A drive stays on its volume while there is work, but after `quantumSeconds` only as long as nobody waits elsewhere
 *   who has had less by `turnSeconds`.
 *
 * So nothing starves: bound.ts says how long a file waits at most.
 */
import { Backlog, type Demand, sumOf, type UserQueue, type VolumeQueue } from './backlog.js';

export interface SchedulePolicy {
  /** What waits longer is no longer passed over for a priority or a better yield. */
  maxWaitSeconds: number;
  /** A drive stays at least so long on a volume that has work. */
  quantumSeconds: number;
  /** It leaves work for another user only when that one has had so much less drive time. */
  turnSeconds: number;
  /** A queue of fewer files and fewer bytes waits up to `collectSeconds` for more, where a mount costs time. */
  collectFiles: number;
  collectBytes: number;
  collectSeconds: number;
}

/**
 * LTO-8 takes two minutes for a mount and an unmount, in which it streams `collectBytes`. A quantum is five times that,
 * and a turn fifteen times: users who all want everything lose a fifteenth to mounts.
 */
export const defaultPolicy: SchedulePolicy = {
  maxWaitSeconds: 24 * 3600,
  quantumSeconds: 600,
  turnSeconds: 1800,
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

/** @returns undefined when nothing waits */
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
  const why = isLate ? 'the volume has waited longest, and longer than the bound' : 'the volume yields most';
  return best && { queue: best.queue, reason: `user ${first.user} has had the least drive time; ${why}` };
}

/**
 * Is it time for a drive to leave a volume that still has work?
 * @param mounted.here the users with work on the mounted volume
 * @param others what waits on the volumes that no drive has
 */
export function isTimeToLeave(
  mounted: { since: number; here: readonly UserQueue[] },
  others: Backlog<VolumeQueue>,
  state: ScheduleState,
): boolean {
  if (state.now - mounted.since < state.policy.quantumSeconds) return false;
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

/** Users whose turn comes about the same time are read in one sweep, so that fairness costs few locates. */
const SAME_TURN_SECONDS = 600;

/** The users of a volume who are to be read first, all of one turn. */
export function firstUsers(here: readonly UserQueue[], state: ScheduleState): string[] {
  const judge = createJudge(here, state);
  const first = judge.first(here);
  if (!first) return [];
  const most = judge.shareOf(first.user) + SAME_TURN_SECONDS;
  return here
    .filter((entry) => judge.rankOf(entry) === judge.rankOf(first) && judge.shareOf(entry.user) <= most)
    .map((entry) => entry.user);
}

/** What is to be served now: queues long enough or old enough to be worth their mounts. */
export function openBacklog<Queue extends VolumeQueue>(queues: readonly Queue[], state: ScheduleState): Backlog<Queue> {
  return new Backlog(queues.filter((queue) => isRipe(queue, state)));
}

function isRipe(queue: VolumeQueue, { now, policy }: ScheduleState): boolean {
  if (queue.medium.mountSeconds === 0) return true;
  const { files, bytes, oldest } = sumOf(queue);
  return files >= policy.collectFiles || bytes >= policy.collectBytes || now - oldest >= policy.collectSeconds;
}

/** Who comes before whom: by priority, then by share, then by age. */
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
  return { first, isOverdue, rankOf, shareOf };
}
