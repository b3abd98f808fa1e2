/** Recall strategies of other tape archives, for comparison with Tapegate's strategy (planned.ts). */
import { locateSeconds, type Medium, pointAt } from '../planner/media.js';
import type { Strategy } from './simulate.js';
import { type Arrival, createRandom } from './workload.js';

/** Reads files in the order of the requests, and mounts another volume whenever the next file is on another volume. */
export function createArrivalOrder(): Strategy {
  const queue: Arrival[] = [];
  return {
    arrive: (file) => void queue.push(file),
    next: (_drive, _now, mounted) => {
      const index = queue.findIndex((file) => !mounted.has(file.volume));
      return index < 0 ? undefined : queue.splice(index, 1)[0];
    },
  };
}

/** Number of requests that django-nla_control processes concurrently for one user (its setting MAX_SLOTS_PER_USER). */
const SLOTS_PER_USER = 2;

/**
 * The recall strategy of django-nla_control. Each drive takes a random request, and reads its files in the order in
 * which the request lists them. At most two drives serve the same user.
 */
export function createRandomSlots(seed: number): Strategy {
  const random = createRandom(seed);
  const requests: { user: string; files: Arrival[] }[] = [];
  const slots = new Map<number, { user: string; files: Arrival[] }>();
  let latest: { user: string; at: number; files: Arrival[] } | undefined;
  return {
    arrive: (file) => {
      if (latest?.user !== file.user || latest.at !== file.at) {
        latest = { user: file.user, at: file.at, files: [] };
        requests.push(latest);
      }
      latest.files.push(file);
    },
    next: (drive, _now, mounted) => {
      let slot = slots.get(drive.index);
      if (!slot || slot.files.length === 0) {
        slots.delete(drive.index);
        const running = [...slots.values()].map((other) => other.user);
        const free = requests.filter(({ user }) => running.filter((other) => other === user).length < SLOTS_PER_USER);
        slot = free[Math.floor(random() * free.length)];
        if (!slot) return undefined;
        requests.splice(requests.indexOf(slot), 1);
        slots.set(drive.index, slot);
      }
      const index = slot.files.findIndex((file) => !mounted.has(file.volume));
      return index < 0 ? undefined : slot.files.splice(index, 1)[0];
    },
  };
}

type Order = (medium: Medium, head: number, files: Arrival[]) => Arrival[];

export const orders = {
  arrival: (_medium: Medium, _head: number, files: Arrival[]) => files,
  position: (_medium: Medium, _head: number, files: Arrival[]) => [...files].sort((a, b) => a.start - b.start),
  nearest: orderNearest,
} satisfies Record<string, Order>;

function orderNearest(medium: Medium, head: number, files: Arrival[]): Arrival[] {
  const left = files.map((file) => ({ file, point: pointAt(medium, file.start) }));
  const order: Arrival[] = [];
  let at = pointAt(medium, head);
  while (left.length > 0) {
    let best = 0;
    let least = Number.POSITIVE_INFINITY;
    for (const [index, { point }] of left.entries()) {
      const seconds = locateSeconds(medium, at, point);
      if (seconds < least) [best, least] = [index, seconds];
    }
    const [taken] = left.splice(best, 1);
    if (!taken) break;
    order.push(taken.file);
    at = pointAt(medium, taken.file.start + taken.file.size);
  }
  return order;
}

/**
 * Reads all waiting files of a volume together, beginning with the volume of the file that has waited longest. Before
 * unmounting a volume, also reads files that users have requested since the mount.
 */
export function createGrouping(medium: Medium, order: Order): Strategy {
  const waiting = new Map<string, Arrival[]>();
  const running = new Map<number, Arrival[]>();
  return {
    arrive: (file) => void waiting.set(file.volume, [...(waiting.get(file.volume) ?? []), file]),
    next: (drive, _now, mounted) => {
      const here = running.get(drive.index);
      if (here && here.length > 0) return here.shift();
      const own = drive.volume !== undefined ? waiting.get(drive.volume) : undefined;
      const volume = own ? drive.volume : oldestVolume(waiting, mounted);
      const files = volume === undefined ? undefined : waiting.get(volume);
      if (volume === undefined || !files) return undefined;
      waiting.delete(volume);
      const ordered = order(medium, own ? drive.head : 0, files);
      running.set(drive.index, ordered);
      return ordered.shift();
    },
  };
}

function oldestVolume(waiting: ReadonlyMap<string, Arrival[]>, mounted: ReadonlySet<string>): string | undefined {
  let best: { volume: string; at: number } | undefined;
  for (const [volume, [first]] of waiting) {
    if (first && !mounted.has(volume) && (!best || first.at < best.at)) best = { volume, at: first.at };
  }
  return best?.volume;
}
