/**
 * Simulates how drives read the current queue according to the rules in schedule.ts. For each user and volume, returns
 * the times at which the drives will read the user's files. All functions are pure.
 *
 * The simulation assumes that no new requests and no failures occur.
 */
import { Backlog, sumOf, type UserQueue } from './backlog.js';
import { estimateReading, type Medium } from './media.js';
import type { WaitingVolume } from './queue.js';
import {
  chooseNext,
  chooseSweep,
  decay,
  isTimeToLeave,
  readingSeconds,
  ripeAt,
  type SchedulePolicy,
  type ScheduleState,
  type Shares,
  type Sweep,
} from './schedule.js';

interface DriveAhead {
  name: string;
  libraryId: number;
  volumeId: number | null;
  /** The medium of the mounted volume, with its measured speed; undefined if no volume is mounted. */
  mounted: Medium | undefined;
  /** Returns a medium with the drive's own measured speed; undefined if the drive has read too few files. */
  measure?: ((medium: Medium) => Medium) | undefined;
  /** The files that the drive is reading when the simulation starts. */
  running: { files: number; bytes: number };
}

/** The period during which one volume is in a drive. Times are in seconds. */
export interface Stay {
  drive: string;
  volumeId: number;
  volume: string;
  start: number;
  end: number;
  files: number;
  bytes: number;
  reason: string;
}

/** Times at which drives start and finish reading one user's files on one volume, in seconds. */
interface Turn {
  start: number;
  end: number;
}

export interface Ahead {
  /** The periods during which volumes are in drives, sorted by start time. */
  stays: Stay[];
  /**
   * Returns the times at which one user's files on a volume will be read; undefined if no drive will read the volume.
   */
  turnOf(volumeId: number, user: string): Turn | undefined;
}

interface AheadInput {
  queues: readonly WaitingVolume[];
  drives: readonly DriveAhead[];
  shares: Shares;
  now: number;
  policy: SchedulePolicy;
}

interface UnripeVolume {
  queue: WaitingVolume;
  ripeAt: number;
}

interface SimulatedDrive {
  name: string;
  /** Volumes that the library's drives can mount. */
  backlog: Backlog<WaitingVolume>;
  /** Volumes that drives do not mount yet, because few files wait on them, ordered by time. */
  unripe: UnripeVolume[];
  volumeId: number | null;
  freeAt: number;
  stay: Stay | undefined;
  unmountSeconds: number;
  measure: DriveAhead['measure'];
}

export function planAhead(input: AheadInput): Ahead {
  const drives = new DrivesAhead(input);
  drives.run();
  return { stays: drives.stays, turnOf: (volumeId, user) => drives.turnOf(volumeId, user) };
}

class DrivesAhead {
  readonly stays: Stay[] = [];
  private readonly turns = new Map<string, Turn>();
  private readonly queue: QueueAhead;
  private readonly drives: SimulatedDrive[];

  constructor(input: AheadInput) {
    this.queue = new QueueAhead(input.queues, input);
    const free = this.queue.without(new Set(input.drives.map((drive) => drive.volumeId)));
    const backlogs = groupByLibrary(input.drives, free, input);
    this.drives = input.drives.map((drive) => {
      const backlog = backlogs.get(drive.libraryId) ?? { backlog: new Backlog<WaitingVolume>(), unripe: [] };
      return placeDrive(drive, { ...backlog, now: input.now });
    });
  }

  /**
   * Simulates the drives until no drive can read another file. Each step simulates the next action of the drive that
   * becomes free first.
   */
  run(): void {
    for (;;) {
      const drive = findFirstFree(this.drives);
      if (!drive || this.queue.isEmpty) return;
      this.work(drive, this.queue.stateAt(drive.freeAt));
    }
  }

  turnOf(volumeId: number, user: string): Turn | undefined {
    return this.turns.get(keyOf(volumeId, user));
  }

  private work(drive: SimulatedDrive, state: ScheduleState): void {
    const here = this.queue.of(drive.volumeId);
    if (here) {
      drive.stay ??= this.begin(drive, here, 'the volume is mounted');
      const session = { since: drive.stay.start, medium: here.medium, here: here.users };
      if (!isTimeToLeave(session, drive.backlog, state)) {
        drive.freeAt = this.read(here, drive.stay, { medium: mediumIn(drive, here), state });
        return;
      }
    }
    if (drive.stay) this.leave(drive, here);
    else this.mountNext(drive, state);
  }

  private begin(drive: SimulatedDrive, { volumeId, volume }: WaitingVolume, reason: string): Stay {
    const at = { start: drive.freeAt, end: drive.freeAt };
    const stay = { drive: drive.name, volumeId, volume, ...at, files: 0, bytes: 0, reason };
    this.stays.push(stay);
    return stay;
  }

  /** @returns the time at which the simulated drive finishes reading */
  private read(here: WaitingVolume, stay: Stay, { medium, state }: { medium: Medium; state: ScheduleState }): number {
    const { users, files, bytes, end } = this.queue.read(here, medium, state);
    for (const user of users) {
      const key = keyOf(stay.volumeId, user);
      this.turns.set(key, { start: this.turns.get(key)?.start ?? state.now, end });
    }
    stay.files += files;
    stay.bytes += bytes;
    stay.end = end;
    return end;
  }

  /**
   * Simulates an unmount of the drive's volume. @param here files that still wait on the volume; any drive can read
   * them later
   */
  private leave(drive: SimulatedDrive, here: WaitingVolume | undefined): void {
    drive.freeAt += drive.unmountSeconds;
    if (here) drive.backlog.add(here);
    drive.volumeId = null;
    drive.stay = undefined;
  }

  private mountNext(drive: SimulatedDrive, state: ScheduleState): void {
    const { unripe } = drive;
    while (unripe[0] && unripe[0].ripeAt <= state.now) drive.backlog.add((unripe.shift() as UnripeVolume).queue);
    const choice = chooseNext(drive.backlog, state);
    if (!choice && unripe[0]) {
      drive.freeAt = unripe[0].ripeAt;
      return;
    }
    if (!choice) {
      // remove the drive from the simulation, because all remaining files are on volumes that other drives have mounted
      this.drives.splice(this.drives.indexOf(drive), 1);
      return;
    }
    const { queue, reason } = choice;
    drive.backlog.remove(queue);
    drive.volumeId = queue.volumeId;
    drive.stay = this.begin(drive, queue, reason);
    const { mountSeconds, unmountSeconds } = mediumIn(drive, queue);
    drive.unmountSeconds = unmountSeconds;
    drive.freeAt += mountSeconds;
  }
}

/** Returns the volume's medium with the drive's own measured speed, or else with the speed of the library's drives. */
const mediumIn = ({ measure }: SimulatedDrive, { medium, measured }: WaitingVolume): Medium =>
  measure?.(medium) ?? measured;

type LibraryBacklog = Pick<SimulatedDrive, 'backlog' | 'unripe'>;

function groupByLibrary(
  drives: readonly DriveAhead[],
  volumes: readonly WaitingVolume[],
  { now, policy }: { now: number; policy: SchedulePolicy },
): Map<number, LibraryBacklog> {
  const backlogs = new Map<number, LibraryBacklog>();
  for (const { libraryId } of drives) {
    if (!backlogs.has(libraryId)) backlogs.set(libraryId, { backlog: new Backlog(), unripe: [] });
  }
  for (const queue of volumes) {
    const at = ripeAt(queue, policy);
    const library = backlogs.get(queue.libraryId);
    if (at > now) library?.unripe.push({ queue, ripeAt: at });
    else library?.backlog.add(queue);
  }
  for (const { unripe } of backlogs.values()) unripe.sort((a, b) => a.ripeAt - b.ripeAt);
  return backlogs;
}

function placeDrive(drive: DriveAhead, { backlog, unripe, now }: LibraryBacklog & { now: number }): SimulatedDrive {
  const { name, volumeId, mounted: medium, running, measure } = drive;
  const reading = medium ? estimateReading(medium, running.files, running.bytes) : 0;
  return {
    name,
    backlog,
    unripe,
    volumeId,
    freeAt: now + reading,
    stay: undefined,
    unmountSeconds: medium?.unmountSeconds ?? 0,
    measure,
  };
}

function findFirstFree(drives: readonly SimulatedDrive[]): SimulatedDrive | undefined {
  return drives.reduce<SimulatedDrive | undefined>((a, b) => (a && a.freeAt <= b.freeAt ? a : b), undefined);
}

const keyOf = (volumeId: number, user: string): string => `${volumeId} ${user}`;

interface VolumeRead {
  users: string[];
  /** Number of files that the drive reads in this simulation step. The number can be a fraction. */
  files: number;
  bytes: number;
  end: number;
}

/** Approximate maximum number of simulation steps. For a longer queue, each step covers more time. */
const MAX_STEPS = 20_000;

class QueueAhead {
  private readonly waiting: Map<number, WaitingVolume>;
  private readonly policy: SchedulePolicy;
  private readonly stepSeconds: number;
  private readonly sweeps = new Map<number, Sweep>();
  private readonly shares: Map<string, number>;
  /** Time at which the decay of `shares` was last computed, in seconds. */
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

  of(volumeId: number | null): WaitingVolume | undefined {
    return this.waiting.get(volumeId ?? 0);
  }

  without(volumeIds: ReadonlySet<number | null>): WaitingVolume[] {
    return [...this.waiting.values()].filter((queue) => !volumeIds.has(queue.volumeId));
  }

  /**
   * Returns the schedule's state at `time`, which must not be earlier than in the previous call. All returned states
   * contain the same map `shares`, which this method updates.
   */
  stateAt(time: number): ScheduleState {
    for (const [user, seconds] of this.shares) this.shares.set(user, decay(seconds, time - this.sharesAt));
    this.sharesAt = Math.max(this.sharesAt, time);
    return { shares: this.shares, now: time, policy: this.policy };
  }

  /** Chooses the users whose files are read, and charges the drive time to these users. */
  read(queue: WaitingVolume, medium: Medium, state: ScheduleState): VolumeRead {
    const sweep = chooseSweep(queue, state, this.sweeps.get(queue.volumeId));
    this.sweeps.set(queue.volumeId, sweep);
    const names = sweep.users;
    const chosen = queue.users.filter((entry) => names.has(entry.user));
    const all = sumOf({ users: chosen });
    const whole = estimateReading(medium, all.files, all.bytes);
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

function sumSeconds(queues: readonly WaitingVolume[]): number {
  return queues.reduce((total, { measured, users }) => total + readingSeconds(measured, users), 0);
}
