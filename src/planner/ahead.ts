/**
 * The plan ahead: what the drives will do with the current queue, by the rules of schedule.ts under a virtual clock, and when each user's files on each
 * volume are done. Pure.
 *
 * No request arrives and nothing fails in it, small queues wait for no more, and times are those of the cost model.
 */
import { Backlog, type UserQueue } from './backlog.js';
import { estimateReading, type Medium } from './media.js';
import type { WaitingVolume } from './queue.js';
import {
  chooseNext,
  chooseSweep,
  decay,
  isTimeToLeave,
  type SchedulePolicy,
  type ScheduleState,
  type Shares,
  type Sweep,
} from './schedule.js';

/** A drive that may work. */
interface DriveAhead {
  name: string;
  /** Of which volumes it takes. */
  libraryId: number;
  volumeId: number | null;
  /** Bytes of what it reads just now; they are in no queue any more. */
  runningBytes: number;
}

/** One stay of a volume in a drive. Times are seconds. */
export interface Stay {
  drive: string;
  volumeId: number;
  volume: string;
  start: number;
  end: number;
  files: number;
  bytes: number;
  /** For people. */
  reason: string;
}

/** When the files of one user on one volume begin and are done; seconds. */
interface Turn {
  start: number;
  end: number;
}

export interface Ahead {
  /** In order of their beginnings. */
  stays: Stay[];
  /** Nothing for a volume that no drive will take. */
  turnOf(volumeId: number, user: string): Turn | undefined;
}

interface AheadInput {
  queues: readonly WaitingVolume[];
  drives: readonly DriveAhead[];
  shares: Shares;
  now: number;
  policy: SchedulePolicy;
}

interface SimulatedDrive {
  name: string;
  /** What waits on the volumes of its library that no drive has. */
  backlog: Backlog<WaitingVolume>;
  volumeId: number | null;
  freeAt: number;
  stay: Stay | undefined;
  /** Of what it has mounted. */
  unmountSeconds: number;
}

export function planAhead(input: AheadInput): Ahead {
  const drives = new DrivesAhead(input);
  drives.run();
  return { stays: drives.stays, turnOf: (volumeId, user) => drives.turnOf(volumeId, user) };
}

/** The drives under the virtual clock, and what they do one after another. */
class DrivesAhead {
  readonly stays: Stay[] = [];
  private readonly turns = new Map<string, Turn>();
  private readonly queue: QueueAhead;
  private readonly drives: SimulatedDrive[];

  constructor(input: AheadInput) {
    this.queue = new QueueAhead(input.queues, input);
    const free = this.queue.without(new Set(input.drives.map((drive) => drive.volumeId)));
    const backlogs = groupByLibrary(input.drives, free);
    this.drives = input.drives.map((drive) => {
      const backlog = backlogs.get(drive.libraryId) ?? new Backlog();
      return placeDrive(drive, { medium: this.queue.of(drive.volumeId)?.medium, backlog, now: input.now });
    });
  }

  /** Works until all is read that a drive will take; the drive goes next that is free first. */
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

  /** One step of a drive: it reads for a while, leaves its volume, or takes another one. */
  private work(drive: SimulatedDrive, state: ScheduleState): void {
    const here = this.queue.of(drive.volumeId);
    if (here) {
      drive.stay ??= this.begin(drive, here, 'the volume is mounted');
      const session = { since: drive.stay.start, medium: here.medium, here: here.users };
      if (!isTimeToLeave(session, drive.backlog, state)) {
        drive.freeAt = this.read(here, drive.stay, state);
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

  /** @returns when the drive is free again */
  private read(here: WaitingVolume, stay: Stay, state: ScheduleState): number {
    const { users, files, bytes, end } = this.queue.read(here, state);
    for (const user of users) {
      const key = keyOf(stay.volumeId, user);
      this.turns.set(key, { start: this.turns.get(key)?.start ?? state.now, end });
    }
    stay.files += files;
    stay.bytes += bytes;
    stay.end = end;
    return end;
  }

  /** @param here what is left on the volume; any drive may take it then */
  private leave(drive: SimulatedDrive, here: WaitingVolume | undefined): void {
    drive.freeAt += drive.unmountSeconds;
    if (here) drive.backlog.add(here);
    drive.volumeId = null;
    drive.stay = undefined;
  }

  private mountNext(drive: SimulatedDrive, state: ScheduleState): void {
    const choice = chooseNext(drive.backlog, state);
    if (!choice) {
      this.drives.splice(this.drives.indexOf(drive), 1); // what is left is in the other drives
      return;
    }
    const { queue, reason } = choice;
    drive.backlog.remove(queue);
    drive.volumeId = queue.volumeId;
    drive.stay = this.begin(drive, queue, reason);
    drive.unmountSeconds = queue.medium.unmountSeconds;
    drive.freeAt += queue.medium.mountSeconds;
  }
}

/** One for all drives of a library. */
function groupByLibrary(
  drives: readonly DriveAhead[],
  volumes: readonly WaitingVolume[],
): Map<number, Backlog<WaitingVolume>> {
  const backlogs = new Map<number, Backlog<WaitingVolume>>();
  for (const { libraryId } of drives) if (!backlogs.has(libraryId)) backlogs.set(libraryId, new Backlog());
  for (const volume of volumes) backlogs.get(volume.libraryId)?.add(volume);
  return backlogs;
}

/** @param place.medium of the volume in the drive; undefined when there is none, or nothing waits on it */
function placeDrive(
  drive: DriveAhead,
  { medium, backlog, now }: { medium: Medium | undefined; backlog: Backlog<WaitingVolume>; now: number },
): SimulatedDrive {
  const { name, volumeId, runningBytes } = drive;
  const reading = medium ? runningBytes / medium.streamBytesPerSecond : 0;
  return {
    name,
    backlog,
    volumeId,
    freeAt: now + reading,
    stay: undefined,
    unmountSeconds: medium?.unmountSeconds ?? 0,
  };
}

/** Of those that are free at the same time, the first in the list. */
function findFirstFree(drives: readonly SimulatedDrive[]): SimulatedDrive | undefined {
  return drives.reduce<SimulatedDrive | undefined>((a, b) => (a && a.freeAt <= b.freeAt ? a : b), undefined);
}

const keyOf = (volumeId: number, user: string): string => `${volumeId} ${user}`;

/** What a drive reads of a volume in one step. */
interface Reading {
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
class QueueAhead {
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
