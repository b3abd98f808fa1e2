/** The queue of the plan ahead: what is left of it as it is read, and what drive time each user has had by then. Pure. */
import type { UserQueue } from './backlog.js';
import { estimateReading } from './media.js';
import type { WaitingVolume } from './queue.js';
import { chooseSweep, type SchedulePolicy, type ScheduleState, type Sweep } from './schedule.js';
import { decay } from './shares.js';

/** What a drive reads of a volume in one step. */
export interface Reading {
  /** Whose files they are. */
  users: string[];
  /** Rarely a whole number: a step may end within a file. */
  files: number;
  bytes: number;
  /** Seconds. */
  end: number;
}

/** A stay is looked at so often at most; what is longer is looked at in longer steps. */
const MAX_STEPS = 20_000;

/** Works on copies: the queues and shares it is made of stay as they are. */
export class QueueAhead {
  /** By volume; a volume goes when nothing is left on it. */
  private readonly waiting: Map<number, WaitingVolume>;
  private readonly policy: SchedulePolicy;
  private readonly stepSeconds: number;
  /** By volume: what is read of it, or was. */
  private readonly sweeps = new Map<number, Sweep>();
  private readonly shares: Map<string, number>;
  /** The time that `shares` are of; seconds. */
  private sharesAt: number;

  constructor(queues: readonly WaitingVolume[], { shares, now, policy }: ScheduleState) {
    this.waiting = new Map(queues.map((queue) => [queue.volumeId, { ...queue, users: queue.users.map(copy) }]));
    this.policy = policy;
    this.stepSeconds = Math.max(policy.quantumSeconds, sumSeconds(queues) / MAX_STEPS);
    this.shares = new Map(shares);
    this.sharesAt = now;
  }

  get isEmpty(): boolean {
    return this.waiting.size === 0;
  }

  /** What is left on a volume; null is no volume. */
  of(volumeId: number | null): WaitingVolume | undefined {
    return this.waiting.get(volumeId ?? 0);
  }

  /** What is left on all other volumes. */
  without(volumeIds: ReadonlySet<number | null>): WaitingVolume[] {
    return [...this.waiting.values()].filter((queue) => !volumeIds.has(queue.volumeId));
  }

  /** Times must not go back. The shares of an earlier state change with this one. */
  stateAt(time: number): ScheduleState {
    for (const [user, seconds] of this.shares) this.shares.set(user, decay(seconds, time - this.sharesAt));
    this.sharesAt = Math.max(this.sharesAt, time);
    return { shares: this.shares, now: time, policy: this.policy };
  }

  /** Reads for a step, for those whose turn it is, and charges them. */
  read(queue: WaitingVolume, state: ScheduleState): Reading {
    const sweep = chooseSweep(queue, state, this.sweeps.get(queue.volumeId));
    this.sweeps.set(queue.volumeId, sweep);
    const names = sweep.users;
    const chosen = queue.users.filter((entry) => names.has(entry.user));
    const all = sumUp(chosen);
    const whole = estimateReading(queue.medium, all.files, all.bytes);
    const part = Math.min(this.stepSeconds / whole, 1);
    for (const entry of chosen) {
      const weight = all.bytes > 0 ? entry.bytes / all.bytes : entry.files / all.files;
      this.shares.set(entry.user, (this.shares.get(entry.user) ?? 0) + whole * part * weight);
      entry.files -= entry.files * part;
      entry.bytes -= entry.bytes * part;
    }
    queue.users = queue.users.filter((entry) => entry.files > 0 && (part < 1 || !names.has(entry.user)));
    if (queue.users.length === 0) this.waiting.delete(queue.volumeId);
    const users = chosen.map((entry) => entry.user);
    return { users, files: all.files * part, bytes: all.bytes * part, end: state.now + whole * part };
  }
}

const copy = (entry: UserQueue): UserQueue => ({ ...entry });

function sumUp(users: readonly UserQueue[]): { files: number; bytes: number } {
  let [files, bytes] = [0, 0];
  for (const entry of users) {
    files += entry.files;
    bytes += entry.bytes;
  }
  return { files, bytes };
}

/** Of drive time, the mounts apart. */
function sumSeconds(queues: readonly WaitingVolume[]): number {
  return queues.reduce((total, { medium, users }) => {
    const { files, bytes } = sumUp(users);
    return total + estimateReading(medium, files, bytes);
  }, 0);
}
