/** Tapegate's own planner as a strategy of the simulator: what src/engine/drive/volume.ts does, under the virtual clock. */
import type { Backlog, VolumeQueue } from '../planner/backlog.js';
import type { Medium } from '../planner/media.js';
import { orderReads } from '../planner/order.js';
import {
  chooseNext,
  defaultPolicy,
  firstUsers,
  isTimeToLeave,
  openBacklog,
  type SchedulePolicy,
} from '../planner/schedule.js';
import { decay } from '../planner/shares.js';
import type { Drive, Strategy } from './simulate.js';
import { WaitingFiles } from './waiting-files.js';
import type { Arrival } from './workload.js';

export interface PlannedOptions {
  policy?: SchedulePolicy;
  /** False: all users are the same to the planner. */
  isFair?: boolean;
  /** User to priority; 0 unless given. */
  priorities?: ReadonlyMap<string, number>;
}

export function createPlanned(medium: Medium, options: PlannedOptions = {}): Strategy {
  const { policy = defaultPolicy, isFair = true, priorities = new Map<string, number>() } = options;
  const waiting = new Map<string, WaitingFiles>();
  const shares = new Map<string, number>();
  /** What each drive reads, in order, and for whom. */
  const plans = new Map<number, { order: Arrival[]; users: string }>();
  const hasNew = new Set<string>();
  let sharesAt = 0;

  const decayAll = (now: number) => {
    for (const [user, seconds] of shares) shares.set(user, decay(seconds, now - sharesAt));
    sharesAt = now;
  };
  const elsewhere = (drive: Drive, mounted: ReadonlySet<string>, now: number): Backlog<VolumeQueue> => {
    const free = [...waiting].filter(
      ([volume, files]) => volume !== drive.volume && !mounted.has(volume) && !files.isEmpty,
    );
    const queues = free.map(([volume, files]) => ({ volume, medium, users: files.byUser() }));
    return openBacklog(queues, { shares, now, policy });
  };
  /** The next file of a volume; the plan is made anew when it has run out or somebody else's turn has come. */
  const take = (drive: Drive, volume: string, now: number): Arrival | undefined => {
    const files = waiting.get(volume);
    if (!files || files.isEmpty) return undefined;
    const users = firstUsers(files.byUser(), { shares, now, policy });
    let plan = drive.volume === volume ? plans.get(drive.index) : undefined;
    if (!plan || plan.order.length === 0 || plan.users !== users.join('\n') || hasNew.delete(volume)) {
      const extents = files.of(users);
      const { order } = orderReads(medium, drive.volume === volume ? drive.head : 0, extents);
      plan = { order: order.flatMap((index) => extents[index] ?? []), users: users.join('\n') };
      plans.set(drive.index, plan);
    }
    const file = plan.order.shift();
    if (file) files.remove(file);
    return file;
  };

  return {
    arrive: (file) => {
      const files = waiting.get(file.volume) ?? new WaitingFiles(priorities);
      files.add(file);
      waiting.set(file.volume, files);
      hasNew.add(file.volume);
    },
    charge: (user, seconds, now) => {
      if (!isFair) return;
      decayAll(now);
      shares.set(user, (shares.get(user) ?? 0) + seconds);
    },
    next: (drive, now, mounted) => {
      decayAll(now);
      const state = { shares, now, policy };
      const here = drive.volume === undefined ? undefined : waiting.get(drive.volume);
      if (drive.volume !== undefined && here && !here.isEmpty) {
        const isYoung = now - drive.mountedAt < policy.quantumSeconds;
        const session = { since: drive.mountedAt, here: here.byUser() };
        if (isYoung || !isTimeToLeave(session, elsewhere(drive, mounted, now), state))
          return take(drive, drive.volume, now);
      }
      const choice = chooseNext(elsewhere(drive, mounted, now), state);
      return choice && take(drive, choice.queue.volume, now);
    },
    // a small batch waits for more, and no arrival may come to end that
    wakeAt: (now) =>
      [...waiting.values()].every((files) => files.isEmpty) ? undefined : now + policy.collectSeconds / 2,
  };
}
