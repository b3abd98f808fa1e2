/**
 * The plan ahead: what the drives will do with the queue as it is, by the rules of schedule.ts under a virtual clock,
 * and when each user's files on each volume are done. Pure.
 *
 * Nobody arrives and nothing fails in it, small queues wait for no more, and times are those of the cost model.
 */
import { Backlog, type UserQueue } from './backlog.js';
import { estimateReading } from './media.js';
import type { WaitingVolume } from './queue.js';
import {
  chooseNext,
  firstUsers,
  isTimeToLeave,
  type SchedulePolicy,
  type ScheduleState,
  type Shares,
} from './schedule.js';
import { decay } from './shares.js';

/** A drive that may work. */
export interface DriveAhead {
  name: string;
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
export interface Turn {
  start: number;
  end: number;
}

export interface Ahead {
  /** In order of their beginnings. */
  stays: Stay[];
  /** Nothing for a volume that no drive will take. */
  turnOf(volumeId: number, user: string): Turn | undefined;
}

export interface AheadInput {
  queues: readonly WaitingVolume[];
  drives: readonly DriveAhead[];
  shares: Shares;
  now: number;
  policy: SchedulePolicy;
}

interface SimulatedDrive {
  name: string;
  volumeId: number | null;
  freeAt: number;
  stay: Stay | undefined;
  /** Of what it has mounted. */
  unmountSeconds: number;
}

/** A stay is looked at so often at most; what is longer is looked at in longer steps. */
const MAX_STEPS = 20_000;

export function planAhead(input: AheadInput): Ahead {
  const { now, policy } = input;
  const waiting = new Map(input.queues.map((queue) => [queue.volumeId, { ...queue, users: queue.users.map(copy) }]));
  const shares = new Map(input.shares);
  const stays: Stay[] = [];
  const turns = new Map<string, Turn>();
  let sharesAt = now;
  const drives = input.drives.map((drive): SimulatedDrive => {
    const medium = waiting.get(drive.volumeId ?? 0)?.medium;
    const reading = medium ? drive.runningBytes / medium.streamBytesPerSecond : 0;
    const { name, volumeId } = drive;
    return { name, volumeId, freeAt: now + reading, stay: undefined, unmountSeconds: medium?.unmountSeconds ?? 0 };
  });
  const step = Math.max(policy.quantumSeconds, sumSeconds(input.queues) / MAX_STEPS);

  const stateAt = (time: number): ScheduleState => {
    for (const [user, seconds] of shares) shares.set(user, decay(seconds, time - sharesAt));
    sharesAt = Math.max(sharesAt, time);
    return { shares, now: time, policy };
  };
  const taken = new Set(drives.map((drive) => drive.volumeId));
  const backlog = new Backlog([...waiting.values()].filter((queue) => !taken.has(queue.volumeId)));

  /** Reads for a while, and returns when that is over. */
  const read = (queue: WaitingVolume, stay: Stay, state: ScheduleState): number => {
    const names = new Set(firstUsers(queue.users, state));
    const chosen = queue.users.filter((entry) => names.has(entry.user));
    const [files, bytes] = [sum(chosen, (entry) => entry.files), sum(chosen, (entry) => entry.bytes)];
    const whole = estimateReading(queue.medium, files, bytes);
    const part = Math.min(step / whole, 1);
    const end = state.now + whole * part;
    for (const entry of chosen) {
      const key = keyOf(queue.volumeId, entry.user);
      turns.set(key, { start: turns.get(key)?.start ?? state.now, end });
      const weight = bytes > 0 ? entry.bytes / bytes : entry.files / files;
      shares.set(entry.user, (shares.get(entry.user) ?? 0) + whole * part * weight);
      entry.files -= entry.files * part;
      entry.bytes -= entry.bytes * part;
    }
    stay.files += files * part;
    stay.bytes += bytes * part;
    stay.end = end;
    queue.users = queue.users.filter((entry) => entry.files > 0 && (part < 1 || !names.has(entry.user)));
    if (queue.users.length === 0) waiting.delete(queue.volumeId);
    return end;
  };

  for (;;) {
    const drive = drives.reduce<SimulatedDrive | undefined>((a, b) => (a && a.freeAt <= b.freeAt ? a : b), undefined);
    if (!drive || waiting.size === 0) break;
    const state = stateAt(drive.freeAt);
    const here = waiting.get(drive.volumeId ?? 0);
    if (here) {
      drive.stay ??= begin(stays, drive, here, 'the volume is mounted');
      const session = { since: drive.stay.start, here: here.users };
      if (!isTimeToLeave(session, backlog, state)) {
        drive.freeAt = read(here, drive.stay, state);
        continue;
      }
    }
    if (drive.stay) {
      drive.freeAt += drive.unmountSeconds;
      if (here) backlog.add(here);
      Object.assign(drive, { volumeId: null, stay: undefined });
      continue;
    }
    const choice = chooseNext(backlog, state);
    if (choice) {
      backlog.remove(choice.queue);
      drive.volumeId = choice.queue.volumeId;
      drive.stay = begin(stays, drive, choice.queue, choice.reason);
      drive.unmountSeconds = choice.queue.medium.unmountSeconds;
      drive.freeAt += choice.queue.medium.mountSeconds;
    } else drives.splice(drives.indexOf(drive), 1); // what is left is in the other drives
  }
  return { stays, turnOf: (volumeId, user) => turns.get(keyOf(volumeId, user)) };
}

function begin(stays: Stay[], drive: SimulatedDrive, queue: WaitingVolume, reason: string): Stay {
  const { volumeId, volume } = queue;
  const stay = {
    drive: drive.name,
    volumeId,
    volume,
    start: drive.freeAt,
    end: drive.freeAt,
    files: 0,
    bytes: 0,
    reason,
  };
  stays.push(stay);
  return stay;
}

const copy = (entry: UserQueue): UserQueue => ({ ...entry });

const keyOf = (volumeId: number, user: string): string => `${volumeId} ${user}`;

function sum<T>(items: readonly T[], value: (item: T) => number): number {
  return items.reduce((total, item) => total + value(item), 0);
}

function sumSeconds(queues: readonly WaitingVolume[]): number {
  return sum(queues, ({ medium, users }) =>
    estimateReading(
      medium,
      sum(users, (entry) => entry.files),
      sum(users, (entry) => entry.bytes),
    ),
  );
}
