/**
 * Which volume a free drive mounts next, and when it leaves it again. Pure: the backlog by volume and user, the shares
 * and the time in, the choice and its reason out.
 *
 * - The user goes first who has had the fewest drive seconds of late, divided by the user's weight; of the volumes that
 *   hold files of that user, the one that brings the most bytes a drive second, whoever wants them.
 * - Higher priorities go before all shares. What has waited longer than `maxWaitSeconds` is past that: no priority goes
 *   before it any more, and of its user's volumes the one that has waited longest is next, whatever it yields.
 * - A small and young queue waits a while for more, so that a mount pays.
 * - On the volume, what all users wait for is read in one sweep as far as that takes no longer than `sweepSeconds`, in order
 *   of their turns; users whose shares differ by less than `turnSeconds` have the same turn.
 * - A drive stays on its volume while there is work, but after `quantumSeconds`, and when a sweep would not end in time, only
 *   as long as nobody waits elsewhere who has had less by `turnSeconds`.
 *
 * So nothing starves: bound.ts says how long a file waits at most.
 */
import { Backlog, type Demand, sumOf, type UserQueue, type VolumeQueue } from './backlog.js';
import { estimateReading, type Medium } from './media.js';

export interface SchedulePolicy {
  /** What waits longer is no longer passed over for a priority or a better yield. */
  maxWaitSeconds: number;
  /** A drive stays at least so long on a volume that has work. */
  quantumSeconds: number;
  /** Who has had so much less drive time has the turn: others who are nearer are read together, and left for nobody. */
  turnSeconds: number;
  /** What all users wait for on a volume is read in one sweep, and the drive stays for it, where that takes no longer. */
  sweepSeconds: number;
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
  sweepSeconds: 3600,
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

interface Choice<Queue extends VolumeQueue> {
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
  mounted: { since: number; medium: Medium; here: readonly UserQueue[] },
  others: Backlog<VolumeQueue>,
  state: ScheduleState,
): boolean {
  const stayed = state.now - mounted.since;
  if (stayed < state.policy.quantumSeconds) return false;
  if (stayed + readingSeconds(mounted.medium, mounted.here) <= state.policy.sweepSeconds) return false;
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

/** The users of a volume whose files are read in one sweep, and since when; seconds. */
export interface Sweep {
  users: ReadonlySet<string>;
  since: number;
}

/**
 * The users of a volume who are to be read next: those of one turn, and who comes after them, as far as all of it takes no
 * longer than a sweep. A sweep that has begun is ended as it was begun, but for a higher priority; who fits joins it.
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

/** Users, and those in the order of their turns who fit into the time with them. */
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

function readingSeconds(medium: Medium, users: readonly UserQueue[]): number {
  const { files, bytes } = sumOf({ users });
  return estimateReading(medium, files, bytes);
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
  const compare = (a: Demand, b: Demand) => (isBefore(a, b) ? -1 : isBefore(b, a) ? 1 : 0);
  return { compare, first, isOverdue, rankOf, shareOf };
}

/** Of the drive seconds that a user has had, half counts no longer after this time. */
export const HALF_LIFE_SECONDS = 24 * 3600;

/** What is left of a number of drive seconds after a while; seconds. */
export function decay(driveSeconds: number, seconds: number): number {
  return driveSeconds * 0.5 ** (Math.max(seconds, 0) / HALF_LIFE_SECONDS);
}
