/**
 * Indexes the waiting files on unmounted volumes by user, so that the planner can choose a volume without examining all
 * volumes.
 */
import { estimateSeconds, type Medium } from './media.js';

export interface UserQueue {
  user: string;
  files: number;
  bytes: number;
  /** Time of the user's oldest request, in seconds. */
  oldest: number;
  /** Highest priority among the user's requests. The default priority is 0. */
  priority: number;
}

export interface VolumeQueue {
  volume: string;
  medium: Medium;
  users: UserQueue[];
}

export type Demand = Pick<UserQueue, 'user' | 'oldest' | 'priority'>;

interface Candidate<Queue> {
  queue: Queue;
  entry: UserQueue;
  /**
   * Bytes per drive second: the bytes that all users have requested from the volume, divided by the drive seconds to
   * mount, read and unmount the volume.
   */
  yield: number;
}

export class Backlog<Queue extends VolumeQueue> {
  private readonly candidates = new Map<string, Map<string, Candidate<Queue>>>();
  private readonly demands = new Map<string, Demand>();

  constructor(queues: Iterable<Queue> = []) {
    for (const queue of queues) this.add(queue);
  }

  /** Adds a volume's queue. The caller must not change the queue while the backlog contains it. */
  add(queue: Queue): void {
    const { files, bytes } = sumOf(queue);
    const rate = bytes / estimateSeconds(queue.medium, files, bytes);
    for (const entry of queue.users) {
      const known = this.candidates.get(entry.user) ?? new Map<string, Candidate<Queue>>();
      this.candidates.set(entry.user, known.set(queue.volume, { queue, entry, yield: rate }));
      const demand = this.demands.get(entry.user);
      if (known.size === 1 || demand) this.demands.set(entry.user, join(demand, entry));
    }
  }

  remove(queue: Queue): void {
    for (const { user } of queue.users) {
      const known = this.candidates.get(user);
      if (known?.delete(queue.volume)) this.demands.delete(user);
      if (known?.size === 0) this.candidates.delete(user);
    }
  }

  *users(): Generator<Demand> {
    for (const [user, candidates] of this.candidates) {
      let demand = this.demands.get(user);
      if (!demand) {
        for (const { entry } of candidates.values()) demand = join(demand, entry);
        if (!demand) continue;
        this.demands.set(user, demand);
      }
      yield demand;
    }
  }

  volumesOf(user: string): Iterable<Candidate<Queue>> {
    return this.candidates.get(user)?.values() ?? [];
  }
}

function join(demand: Demand | undefined, { user, oldest, priority }: Demand): Demand {
  if (!demand) return { user, oldest, priority };
  return { user, oldest: Math.min(demand.oldest, oldest), priority: Math.max(demand.priority, priority) };
}

export function sumOf(queue: { readonly users: readonly UserQueue[] }): {
  files: number;
  bytes: number;
  oldest: number;
} {
  let [files, bytes, oldest] = [0, 0, Number.POSITIVE_INFINITY];
  for (const entry of queue.users) {
    files += entry.files;
    bytes += entry.bytes;
    oldest = Math.min(oldest, entry.oldest);
  }
  return { files, bytes, oldest };
}
