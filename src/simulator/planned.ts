/**
 * Tapegate's planner as a recall strategy for the simulator. Chooses volumes as src/engine/drive/drive.ts does, and
 * files as src/engine/drive/read-plan.ts does.
 */
import type { Backlog, VolumeQueue } from '../planner/backlog.js';
import type { Medium } from '../planner/media.js';
import { orderReads } from '../planner/order.js';
import {
  chooseNext,
  chooseSweep,
  decay,
  defaultPolicy,
  isTimeToLeave,
  openBacklog,
  type ScheduleState,
  type Sweep,
} from '../planner/schedule.js';
import type { Drive, Strategy } from './simulate.js';
import { WaitingFiles } from './waiting-files.js';
import type { Arrival } from './workload.js';

export interface PlannedOptions {
  /** Whether the planner gives users fair shares. */
  isFair?: boolean;
  /** Priorities, keyed by user name. Default: 0. */
  priorities?: ReadonlyMap<string, number>;
}

interface ReadPlan {
  order: Arrival[];
  sweep: Sweep;
}

export class PlannedStrategy implements Strategy {
  private readonly medium: Medium;
  private readonly policy = defaultPolicy;
  private readonly isFair: boolean;
  private readonly priorities: ReadonlyMap<string, number>;
  private readonly waiting = new Map<string, WaitingFiles>();
  /** Volumes whose read plans are out of date, because users have since requested more files on these volumes. */
  private readonly hasNew = new Set<string>();
  private readonly plans = new Map<number, ReadPlan>();
  private readonly shares = new Map<string, number>();
  /** Time of the last update of `shares`, in seconds on the virtual clock. */
  private sharesAt = 0;

  constructor(medium: Medium, { isFair = true, priorities = new Map() }: PlannedOptions = {}) {
    this.medium = medium;
    this.isFair = isFair;
    this.priorities = priorities;
  }

  arrive(file: Arrival): void {
    const files = this.waiting.get(file.volume) ?? new WaitingFiles(this.priorities);
    files.add(file);
    this.waiting.set(file.volume, files);
    this.hasNew.add(file.volume);
  }

  charge(user: string, seconds: number, now: number): void {
    if (!this.isFair) return;
    this.decayShares(now);
    this.shares.set(user, (this.shares.get(user) ?? 0) + seconds);
  }

  next(drive: Drive, now: number, mounted: ReadonlySet<string>): Arrival | undefined {
    const state = this.stateAt(now);
    const here = drive.volume === undefined ? undefined : this.waiting.get(drive.volume);
    if (drive.volume !== undefined && here && !here.isEmpty) {
      const isYoung = now - drive.mountedAt < this.policy.quantumSeconds;
      const session = { since: drive.mountedAt, medium: this.medium, here: here.byUser() };
      if (isYoung || !isTimeToLeave(session, this.openElsewhere(drive, mounted, state), state))
        return this.take(drive, drive.volume, state);
    }
    const choice = chooseNext(this.openElsewhere(drive, mounted, state), state);
    return choice && this.take(drive, choice.queue.volume, state);
  }

  /** Returns the time at which the simulator must offer work to idle drives again, even without a new request. */
  wakeAt(now: number): number | undefined {
    const isDone = [...this.waiting.values()].every((files) => files.isEmpty);
    return isDone ? undefined : now + this.policy.collectSeconds / 2;
  }

  queues(): VolumeQueue[] {
    const full = [...this.waiting].filter(([, files]) => !files.isEmpty);
    return full.map(([volume, files]) => ({ volume, medium: this.medium, users: files.byUser() }));
  }

  private decayShares(now: number): void {
    for (const [user, seconds] of this.shares) this.shares.set(user, decay(seconds, now - this.sharesAt));
    this.sharesAt = now;
  }

  /**
   * Returns the input for the planner: users' shares, current time and policy.
   * @param now seconds on the virtual clock; never earlier than in the previous call
   */
  stateAt(now: number): ScheduleState {
    this.decayShares(now);
    return { shares: this.shares, now, policy: this.policy };
  }

  private openElsewhere(drive: Drive, mounted: ReadonlySet<string>, state: ScheduleState): Backlog<VolumeQueue> {
    const free = this.queues().filter(({ volume }) => volume !== drive.volume && !mounted.has(volume));
    return openBacklog(free, state);
  }

  /** Returns the next file to read from a volume. */
  private take(drive: Drive, volume: string, state: ScheduleState): Arrival | undefined {
    const files = this.waiting.get(volume);
    if (!files || files.isEmpty) return undefined;
    const before = drive.volume === volume ? this.plans.get(drive.index) : undefined;
    const sweep = chooseSweep({ medium: this.medium, users: files.byUser() }, state, before?.sweep);
    let plan = before;
    const isNew =
      [...sweep.users].some((user) => !before?.sweep.users.has(user)) || sweep.since !== before?.sweep.since;
    if (!plan || plan.order.length === 0 || isNew || this.hasNew.delete(volume)) {
      const extents = files.of([...sweep.users]);
      const { order } = orderReads(this.medium, drive.volume === volume ? drive.head : 0, extents);
      plan = { order: order.flatMap((index) => extents[index] ?? []), sweep };
      this.plans.set(drive.index, plan);
    }
    const file = plan.order.shift();
    if (file) files.remove(file);
    return file;
  }
}
