/** The ways in which archives recall, and Tapegate's own, as strategies of the simulator. */
import { locateSeconds, type Medium, pointAt } from '../engine/media.js';
import { orderReads } from '../engine/order.js';
import {
  chooseNext,
  defaultPolicy,
  isTimeToLeave,
  type SchedulePolicy,
  type UserQueue,
  type VolumeQueue,
} from '../engine/schedule.js';
import type { Drive, Strategy } from './simulate.js';
import { type Arrival, createRandom } from './workload.js';

/** Whatever was asked for first is read first; the volume is changed when the next file is on another one. */
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

/** Requests that run at the same time for one user in the original (its MAX_SLOTS_PER_USER). */
const SLOTS_PER_USER = 2;

/** The original: each slot takes a request at random, at most two of a user, and reads its files as they are listed. */
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

/** How a mounted volume's files are put in order. */
type Order = (medium: Medium, head: number, files: Arrival[]) => Arrival[];

export const orders = {
  arrival: (_medium: Medium, _head: number, files: Arrival[]) => files,
  position: (_medium: Medium, _head: number, files: Arrival[]) => [...files].sort((a, b) => a.start - b.start),
  nearest: orderNearest,
} satisfies Record<string, Order>;

/** Shortest locate first. */
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

/** Files of a volume together, the volume of the oldest file first; what arrives meanwhile joins the mount. */
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

/** A user's drive seconds count half after this time. */
const HALF_LIFE_SECONDS = 24 * 3600;

/** Tapegate's planner. */
export function createPlanned(medium: Medium, policy: SchedulePolicy = defaultPolicy): Strategy {
  const volumes = new Map<string, Set<Arrival>>();
  const shares = new Map<string, number>();
  const sessions = new Map<number, { order: Arrival[]; files: Set<Arrival> }>();
  let sharesAt = 0;
  const isFresh = new Set<string>();

  const decay = (now: number) => {
    const factor = 0.5 ** ((now - sharesAt) / HALF_LIFE_SECONDS);
    for (const [user, seconds] of shares) shares.set(user, seconds * factor);
    sharesAt = now;
  };
  const queues = (mounted: ReadonlySet<string>, except?: string): VolumeQueue[] =>
    [...volumes].flatMap(([volume, files]) =>
      files.size === 0 || mounted.has(volume) || volume === except ? [] : [{ volume, medium, users: byUser(files) }],
    );

  const begin = (drive: Drive, volume: string, now: number): void => {
    const files = [...(volumes.get(volume) ?? [])];
    const head = drive.volume === volume ? drive.head : 0;
    sessions.set(drive.index, { order: orderForUsers(medium, head, files, shares), files: new Set(files) });
    isFresh.delete(volume);
    if (drive.volume === volume) return;
    drive.mountedAt = now;
  };

  return {
    arrive: (file) => {
      volumes.set(file.volume, (volumes.get(file.volume) ?? new Set()).add(file));
      isFresh.add(file.volume);
    },
    charge: (user, seconds, now) => {
      decay(now);
      shares.set(user, (shares.get(user) ?? 0) + seconds);
    },
    next: (drive, now, mounted) => {
      decay(now);
      const state = { shares, now, policy };
      const here = drive.volume === undefined ? undefined : volumes.get(drive.volume);
      if (drive.volume !== undefined && here && here.size > 0) {
        const isOver =
          now - drive.mountedAt >= policy.quantumSeconds &&
          isTimeToLeave({ since: drive.mountedAt, here: byUser(here) }, queues(mounted, drive.volume), state);
        if (!isOver) {
          if (isFresh.has(drive.volume) || !sessions.get(drive.index)?.order.length) begin(drive, drive.volume, now);
          return take(drive);
        }
      }
      const choice = chooseNext(queues(mounted), state);
      if (!choice) return undefined;
      begin(drive, choice.queue.volume, now);
      return take(drive, choice.queue.volume);
    },
  };

  function take(drive: Drive, volume = drive.volume): Arrival | undefined {
    const file = sessions.get(drive.index)?.order.shift();
    if (file && volume !== undefined) volumes.get(volume)?.delete(file);
    return file;
  }
}

function byUser(files: Iterable<Arrival>): UserQueue[] {
  const users = new Map<string, UserQueue>();
  for (const file of files) {
    const entry = users.get(file.user) ?? { user: file.user, files: 0, bytes: 0, oldest: file.at, priority: 0 };
    entry.files++;
    entry.bytes += file.size;
    entry.oldest = Math.min(entry.oldest, file.at);
    users.set(file.user, entry);
  }
  return [...users.values()];
}

/** Users who have had much less of late are read first; within a rank, the order is the cheapest. */
function orderForUsers(medium: Medium, head: number, files: Arrival[], shares: ReadonlyMap<string, number>): Arrival[] {
  const shareOf = (file: Arrival) => shares.get(file.user) ?? 0;
  const least = Math.min(...files.map(shareOf));
  const first = files.filter((file) => shareOf(file) <= 2 * least + 3600);
  const rest = files.filter((file) => shareOf(file) > 2 * least + 3600);
  const ordered: Arrival[] = [];
  for (const group of [first, rest]) {
    const last = ordered.at(-1);
    const from = last ? last.start + last.size : head;
    ordered.push(...orderReads(medium, from, group).order.map((index) => group[index] as Arrival));
  }
  return ordered;
}
