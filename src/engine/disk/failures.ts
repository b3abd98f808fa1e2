/**
 * Restore disks that fail: what a failed call says of its disk, how a disk is tried, and when it is suspended. A disk is suspended as soon as a try fails,
 * or when several calls in a row have failed on it although tries succeed. A disk that is full does not fail.
 */
import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { open, unlink } from 'node:fs/promises';
import { hostname } from 'node:os';
import path from 'node:path';
import type { Context } from '../../context.js';
import { codeOf, type ErrorClass, isExhausted, messageOf, TapeError } from '../../errors.js';
import { noteMeasurements } from '../../operations/disks/disks.js';
import {
  type FailingDisk,
  holdAbsent,
  holdDisk,
  leaveToOthers,
  noteStillFailing,
  putBackDisk,
  takeRetries,
} from '../../operations/disks/failing.js';
import { listUnmarked, type UnmarkedDisk } from '../../operations/disks/markings.js';
import { describeFull, noteFull } from '../../operations/health/circuits.js';
import { BoundedCalls, CallWatch, HungError, limitsOf } from '../calls.js';
import { describeUntrusted, findUntrusted } from './exposure.js';
import { AbsentError, type MarkedDisk, markerName, rootOf } from './marker.js';
import { meetDisk } from './setup.js';
import { DiskGauge, type DiskProblem } from './space.js';

/** Codes of a file, a folder, or this process, and not of the disk. */
const OTHER_CODES = [
  ...['ENOENT', 'EEXIST', 'EISDIR', 'ENOTDIR', 'ENAMETOOLONG', 'ELOOP', 'ENOTEMPTY', 'EMLINK', 'ETXTBSY', 'EBUSY'],
  ...['EMFILE', 'ENFILE', 'ENOMEM', 'EBADF', 'EINVAL', 'EILSEQ', 'EINTR', 'EAGAIN', 'EFBIG'],
];

const CLASSES: Record<string, ErrorClass> = {
  ENOSPC: 'SPACE',
  EDQUOT: 'SPACE',
  EACCES: 'POLICY',
  EPERM: 'POLICY',
  EROFS: 'POLICY',
  ENAMETOOLONG: 'POLICY',
};

/** The class of what a call on a restore disk threw, by its code. */
export function diskClassOf(error: unknown): ErrorClass {
  return CLASSES[codeOf(error) ?? ''] ?? 'TRANSIENT';
}

/** A call on a restore disk has failed, and what is wrong may be the disk: `FailingDisks.blame` finds out. */
export class DiskError extends TapeError {
  constructor(cause: unknown) {
    super(cause instanceof TapeError ? cause.errorClass : diskClassOf(cause), messageOf(cause), { cause });
  }
}

/**
 * What a call on a restore disk came to; it is thrown as a DiskError where the disk may be what is wrong, and as a FullError
 * where it takes no more.
 * @param call is given what it calls to show progress, when it is long
 */
export async function ofDisk<T>(
  calls: CallWatch,
  { mountpoint }: { mountpoint: string },
  call: (tick: () => void) => Promise<T>,
): Promise<T> {
  try {
    return await calls.follow({ kind: 'disk', mountpoint }, call);
  } catch (error) {
    if (diskClassOf(error) === 'SPACE') throw new FullError(error);
    throw mayBeDisk(error) ? new DiskError(error) : error;
  }
}

function mayBeDisk(error: unknown): boolean {
  if (isExhausted(error)) return false; // whatever it was that could not be opened
  if (error instanceof TapeError) return error.errorClass === 'TRANSIENT' && !(error instanceof DiskError); // the marker
  const code = codeOf(error) ?? '';
  const isSystem = /^E(?!RR_)[A-Z0-9]+$|^Unknown system error/.test(code);
  return isSystem && !OTHER_CODES.includes(code);
}

/** Calls that may fail one after the other while each try says that the disk works. */
const MAX_FAILURES = 3;

/** So long a try counts for all calls that fail together. */
const FRESH_MS = 1000;

const PROBE_MS = 10_000;

/** A disk that is not there is left to other hosts for a while that doubles from time to time. */
const LEFT_MS = { first: 5000, most: 600_000 };

/** One for all drives of an engine. */
export class FailingDisks {
  /** For calls that belong to no drive. */
  readonly calls: CallWatch;
  /** Disks that fail at nothing but taking more. */
  readonly full: FullDisks;
  private readonly ctx: Context;
  private readonly gauge: DiskGauge;
  private readonly host: string;
  private readonly counts = new Map<number, number>();
  private readonly probes = new BoundedCalls();
  private readonly retries = new BoundedCalls();
  private readonly judged = new WeakMap<DiskError, Promise<string | undefined>>();
  private readonly meetings = new BoundedCalls();
  private readonly tries = new Map<number, { at: number; problem: Promise<DiskProblem | undefined> }>();
  /** Disks that are not there on this host, and that others try: until when, by the process's own clock. */
  private readonly left = new Map<number, { until: number; ms: number }>();

  /** @param of.calls follows the calls that belong to no drive; `host`: as whose what is seen counts */
  constructor(
    ctx: Context,
    gauge = new DiskGauge({ group: ctx.config.restoreGroup }),
    of: { calls?: CallWatch; host?: string | undefined } = {},
  ) {
    this.ctx = ctx;
    this.full = new FullDisks(ctx);
    this.gauge = gauge;
    this.calls = of.calls ?? new CallWatch(limitsOf(ctx));
    this.host = of.host ?? hostname();
  }

  /**
   * Is the disk what was wrong when a call on it failed? Then it is out of service when this returns.
   * @returns why, for people; undefined where the disk works, or nothing of the disk had failed
   */
  async blame(disk: MarkedDisk, thrown: unknown): Promise<string | undefined> {
    if (!(thrown instanceof DiskError)) return undefined;
    // one call that many recalls depend on, as that which syncs their folder, has failed once
    const judged = this.judged.get(thrown) ?? this.judge(disk, thrown);
    this.judged.set(thrown, judged);
    return await judged;
  }

  private async judge(disk: MarkedDisk, thrown: DiskError): Promise<string | undefined> {
    const hung = thrown.cause instanceof HungError ? thrown.message : undefined; // a try would only hang as well
    const problem = hung ?? (await this.probe(disk)) ?? this.count(disk, thrown);
    if (problem === undefined) return undefined;
    const found = typeof problem === 'string' ? { text: problem, isAbsent: false } : problem;
    await this.hold(disk.mountpoint, found);
    return found.text;
  }

  private async hold(mountpoint: string, { text, isAbsent }: DiskProblem): Promise<void> {
    if (isAbsent) await holdAbsent(this.ctx, { host: this.host, mountpoint }, text);
    else await holdDisk(this.ctx, mountpoint, text);
  }

  /** A disk could not even be measured. Does not wait. */
  holdSoon(mountpoint: string, problem: DiskProblem): void {
    this.hold(mountpoint, problem).catch((error: unknown) => {
      this.ctx.log.error({ err: error, disk: mountpoint }, `a failing disk is still in service: ${messageOf(error)}`);
    });
  }

  /** An operator has changed something: it is too early to say that a disk fails still. */
  forget(): void {
    this.tries.clear();
    this.gauge.forget();
  }

  /** A copy was put on it. */
  succeeded(diskId: number): void {
    this.counts.delete(diskId);
  }

  /** Tries disks that are out of service, where their pauses are over. */
  async retry(): Promise<void> {
    const now = performance.now();
    const leftToOthers = [...this.left].filter(([, { until }]) => until > now).map(([id]) => id);
    await Promise.all((await takeRetries(this.ctx, leftToOthers)).map((disk) => this.retryOne(disk)));
  }

  /** Disks that were never marked are, where it is plain that they are what is mounted; else they are out of service. */
  async meetNew(): Promise<void> {
    const meet = async (disk: UnmarkedDisk) => {
      let found: string | undefined;
      const silence = await this.meetings.run(PROBE_MS, disk, async () => {
        found = await meetDisk(this.ctx, disk);
      });
      const problem = silence ?? found;
      if (problem !== undefined) await holdDisk(this.ctx, disk.mountpoint, problem);
      this.gauge.forget();
    };
    await Promise.all((await listUnmarked(this.ctx)).map(meet));
  }

  private async retryOne(disk: FailingDisk): Promise<void> {
    const { id, mountpoint } = disk;
    let isAbsent = false;
    const problem = await this.retries.run(PROBE_MS, disk, async () => {
      const missing = await meetDisk(this.ctx, disk);
      const space = await this.gauge.look(disk).catch((error: unknown) => {
        isAbsent = error instanceof AbsentError;
        throw missing === undefined ? error : new Error(missing);
      });
      await tryWriting({ diskId: id, mountpoint }, this.ctx.config.restoreGroup);
      // first, so that a host where it is not there knows that it is elsewhere
      const free = 'freeBytes' in space ? space.freeBytes : null;
      await noteMeasurements(this.ctx, this.host, [{ diskId: id, free, problem: null }]);
      await putBackDisk(this.ctx, mountpoint); // also when the answer comes after the pause
    });
    if (problem === undefined) this.left.delete(id);
    else if (isAbsent && (await leaveToOthers(this.ctx, { host: this.host, mountpoint }))) this.leave(id);
    else await noteStillFailing(this.ctx, mountpoint, problem);
  }

  /** It is not there on this host, which looks for it ever less often. */
  private leave(diskId: number): void {
    const ms = Math.min((this.left.get(diskId)?.ms ?? LEFT_MS.first / 2) * 2, LEFT_MS.most);
    this.left.set(diskId, { until: performance.now() + ms, ms });
  }

  private async probe(disk: MarkedDisk): Promise<DiskProblem | undefined> {
    const known = this.tries.get(disk.diskId);
    if (known && performance.now() - known.at < FRESH_MS) return await known.problem;
    const { diskId: id, mountpoint } = disk;
    let isAbsent = false;
    const tried = this.probes.run(PROBE_MS, { id, mountpoint }, async () => {
      await tryWriting(disk, this.ctx.config.restoreGroup).catch((error: unknown) => {
        isAbsent = error instanceof AbsentError;
        throw error;
      });
    });
    const problem = tried.then((text) => (text === undefined ? undefined : { text, isAbsent }));
    this.tries.set(id, { at: performance.now(), problem });
    return await problem;
  }

  /** Only a folder is closed to us where the disk itself works. */
  private count({ diskId }: MarkedDisk, { errorClass, message }: DiskError): string | undefined {
    if (errorClass === 'POLICY') return undefined;
    const count = (this.counts.get(diskId) ?? 0) + 1;
    this.counts.set(diskId, count);
    if (count < MAX_FAILURES) return undefined;
    this.counts.delete(diskId);
    return `${count} calls one after another failed on it, the last of them: ${message}`;
  }
}

/** Of the marker's family, so that nobody takes it for a copy. */
const PROBE_NAME = `${markerName}-try`;

/**
 * Makes a file on a disk, removes it, and writes and syncs a few bytes to it, as a recall would. One that is full is none that fails.
 * @throws what says that the disk cannot be written to
 */
async function tryWriting(disk: MarkedDisk, group: number | undefined): Promise<void> {
  // a name of its own: another engine may try the same, and nothing that stands there is written to, or removed
  const root = await rootOf(disk);
  const untrusted = await findUntrusted({ root }, group);
  if (untrusted) throw new TapeError('TRANSIENT', describeUntrusted(untrusted));
  const file = path.join(root, `${PROBE_NAME}-${randomUUID()}`);
  try {
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    const handle = await open(file, flags, 0o600);
    try {
      await unlink(file); // before it takes its time: who is killed meanwhile leaves no name behind
      await handle.writeFile('.');
      await handle.sync();
    } finally {
      await handle.close();
    }
  } catch (error) {
    await unlink(file).catch(() => {}); // it may not be there, and what is wrong is known
    if (diskClassOf(error) !== 'SPACE' && codeOf(error) !== 'ENOENT') throw error;
  }
}

/** A call on a restore disk has failed since the disk takes no more, whatever it says to have free. */
export class FullError extends TapeError {
  constructor(cause: unknown) {
    super('SPACE', messageOf(cause), { cause });
  }
}

/** One for all drives of an engine. */
class FullDisks {
  private readonly ctx: Context;
  /** By the ids of disks: when one was noted last, by the process's own clock, and what it said. */
  private readonly noted = new Map<number, { at: number; error: string }>();

  constructor(ctx: Context) {
    this.ctx = ctx;
  }

  /** When this returns nothing new is put on the disk. */
  async note({ diskId, mountpoint }: MarkedDisk, { message }: FullError): Promise<void> {
    await noteFull(this.ctx, diskId, message);
    this.noted.set(diskId, { at: performance.now(), error: `${mountpoint} is ${describeFull(message)}` });
  }

  /**
   * Of what was to be started at that time: has its disk turned out to be full since? Then it would be read for nothing.
   * @param at by the process's own clock; what is started later has been given its disk by whoever knows better
   * @returns what is told of it
   */
  findSince({ diskId }: Pick<MarkedDisk, 'diskId'>, at: number): string | undefined {
    const noted = this.noted.get(diskId);
    return noted && noted.at >= at ? noted.error : undefined;
  }
}
