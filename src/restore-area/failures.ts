/**
 * Detects failing restore disks: interprets failed calls, probes disks, and suspends failing disks. A disk is suspended
 * as soon as a probe fails, or after several consecutive failed calls. A full disk does not count as failing.
 */
import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { open, unlink } from 'node:fs/promises';
import { hostname } from 'node:os';
import path from 'node:path';
import { codeOf, type ErrorClass, isExhausted, messageOf, TapeError } from '../core/errors.js';
import type { Context } from '../domain/context.js';
import { listInService, recordMeasurements } from '../domain/disks/disks.js';
import { listUnmarked, type UnmarkedDisk } from '../domain/disks/markings.js';
import { describeFull, recordFullDisk } from '../domain/health/circuits.js';
import {
  type FailingDisk,
  leaveToOthers,
  recordStillFailing,
  returnDisk,
  suspendAbsent,
  suspendDisk,
  takeRetries,
} from '../domain/health/failing-disks.js';
import { BoundedCalls, CallWatch, HungError, limitsOf } from './call-watch.js';
import { describeUntrusted, findUntrusted } from './exposure.js';
import { AbsentError, type MarkedDisk, markerName, rootOf } from './marker.js';
import { ensureMarked } from './setup.js';
import { DiskGauge, type DiskProblem } from './space.js';

/** Error codes for which the disk is not at fault, but a file, a directory or this process is. */
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

export function diskClassOf(error: unknown): ErrorClass {
  return CLASSES[codeOf(error) ?? ''] ?? 'TRANSIENT';
}

/** Error of a failed call on a restore disk, if the disk might have caused the failure. */
export class DiskError extends TapeError {
  constructor(cause: unknown) {
    super(cause instanceof TapeError ? cause.errorClass : diskClassOf(cause), messageOf(cause), { cause });
  }
}

/**
 * Makes a call on a restore disk. Throws a DiskError if the disk might be at fault, or a FullError if the disk is full.
 * @param call receives a function that reports progress, which restarts the time limit
 */
export async function callDisk<T>(
  calls: CallWatch,
  { mountpoint }: { mountpoint: string },
  call: (tick: () => void) => Promise<T>,
): Promise<T> {
  try {
    return await calls.follow({ kind: 'disk', mountpoint }, call);
  } catch (error) {
    if (diskClassOf(error) === 'SPACE') throw new FullError(error);
    throw mayBeDiskFault(error) ? new DiskError(error) : error;
  }
}

function mayBeDiskFault(error: unknown): boolean {
  // the disk is not at fault if this process has too many open files
  if (isExhausted(error)) return false;
  // a TapeError with class TRANSIENT comes from the check of the disk's marker
  if (error instanceof TapeError) return error.errorClass === 'TRANSIENT' && !(error instanceof DiskError);
  const code = codeOf(error) ?? '';
  const isSystem = /^E(?!RR_)[A-Z0-9]+$|^Unknown system error/.test(code);
  return isSystem && !OTHER_CODES.includes(code);
}

/** Number of consecutive failed calls after which a disk is suspended even if all probes succeed. */
const MAX_FAILURES = 3;

/** Milliseconds for which a disk's last probe result is reused if another call on the disk fails. */
const PROBE_FRESH_MS = 1000;

const PROBE_MS = 10_000;

/**
 * Shortest and longest pause, in milliseconds, before this host retries an absent disk. The pause doubles with each
 * retry.
 */
const ABSENT_PAUSE_MS = { first: 5000, most: 600_000 };

export class FailingDisks {
  /** Sets time limits for the calls on disks that do not belong to a recall, such as calls that remove copies. */
  readonly calls: CallWatch;
  /** Error and time (`performance.now()`) of the last call that found a disk full, keyed by disk id. */
  private readonly full = new Map<number, { at: number; error: string }>();
  private readonly ctx: Context;
  private readonly gauge: DiskGauge;
  private readonly host: string;
  private readonly counts = new Map<number, number>();
  private readonly probes = new BoundedCalls();
  private readonly retries = new BoundedCalls();
  private readonly judged = new WeakMap<DiskError, Promise<string | undefined>>();
  private readonly markings = new BoundedCalls();
  private readonly recentProbes = new Map<number, { at: number; problem: Promise<DiskProblem | undefined> }>();
  /**
   * Disks that are absent from this host, keyed by disk id. This host retries such a disk after the time `until`,
   * measured by `performance.now()`.
   */
  private readonly absent = new Map<number, { until: number; ms: number }>();

  constructor(
    ctx: Context,
    gauge = new DiskGauge({ group: ctx.config.restoreGroup }),
    of: { calls?: CallWatch; host?: string | undefined } = {},
  ) {
    this.ctx = ctx;
    this.gauge = gauge;
    this.calls = of.calls ?? new CallWatch(limitsOf(ctx));
    this.host = of.host ?? hostname();
  }

  /**
   * Finds out whether the disk caused the error of a call. If it did, suspends the disk before returning.
   * @returns the disk's problem as text for users; undefined if the disk works, or did not cause the error
   */
  async blame(disk: MarkedDisk, thrown: unknown): Promise<string | undefined> {
    if (!(thrown instanceof DiskError)) return undefined;
    // count a failed call only once, even if several recalls report its error, as for a failed directory sync
    const judged = this.judged.get(thrown) ?? this.judge(disk, thrown);
    this.judged.set(thrown, judged);
    return await judged;
  }

  private async judge(disk: MarkedDisk, thrown: DiskError): Promise<string | undefined> {
    // do not probe a hung disk, because the probe would hang too
    const hung = thrown.cause instanceof HungError ? thrown.cause : undefined;
    if (hung && !hung.isFaultOf(disk.mountpoint)) return undefined;
    const problem = hung?.message ?? (await this.probe(disk)) ?? this.count(disk, thrown);
    if (problem === undefined) return undefined;
    const found = typeof problem === 'string' ? { text: problem, isAbsent: false } : problem;
    await this.suspend(disk.mountpoint, found);
    return found.text;
  }

  private async suspend(mountpoint: string, { text, isAbsent }: DiskProblem): Promise<void> {
    if (isAbsent) await suspendAbsent(this.ctx, { host: this.host, mountpoint }, text);
    else await suspendDisk(this.ctx, mountpoint, text);
  }

  /** Starts to suspend a disk that could not be measured, and returns before the disk is suspended. */
  suspendSoon(mountpoint: string, problem: DiskProblem): void {
    this.suspend(mountpoint, problem).catch((error: unknown) => {
      this.ctx.log.error({ err: error, disk: mountpoint }, `cannot suspend a failing disk: ${messageOf(error)}`);
    });
  }

  clearCache(): void {
    this.recentProbes.clear();
    this.gauge.clearCache();
  }

  /** Records that a disk is full. After this call returns, the disk does not receive new copies. */
  async recordFull({ diskId, mountpoint }: MarkedDisk, { message }: FullError): Promise<void> {
    await recordFullDisk(this.ctx, diskId, message);
    this.full.set(diskId, { at: performance.now(), error: `${mountpoint} is ${describeFull(message)}` });
  }

  /**
   * Returns an error message if a call has found the disk full at or after the time `at`, measured by
   * `performance.now()`.
   */
  findFull({ diskId }: Pick<MarkedDisk, 'diskId'>, at: number): string | undefined {
    const noted = this.full.get(diskId);
    return noted && noted.at >= at ? noted.error : undefined;
  }

  succeeded(diskId: number): void {
    this.counts.delete(diskId);
  }

  async retry(): Promise<void> {
    const now = performance.now();
    const paused = [...this.absent].filter(([, { until }]) => until > now).map(([id]) => id);
    await Promise.all((await takeRetries(this.ctx, paused)).map((disk) => this.retryOne(disk)));
  }

  /** Creates a marker on each new disk that is certainly mounted. Suspends a new disk that might not be mounted. */
  async markNew(): Promise<void> {
    const mark = async (disk: UnmarkedDisk) => {
      let found: string | undefined;
      const silence = await this.markings.run(PROBE_MS, disk, async () => {
        found = await ensureMarked(this.ctx, disk);
      });
      const problem = silence ?? found;
      if (problem !== undefined) await suspendDisk(this.ctx, disk.mountpoint, problem);
      this.gauge.clearCache();
    };
    await Promise.all((await listUnmarked(this.ctx)).map(mark));
  }

  /**
   * Probes the disks in service, and suspends a disk that rejects writes. Does not suspend an absent disk, because the
   * first recall to this disk does so. Does not suspend a slow disk, because it might only be busy.
   */
  async probeAll(): Promise<void> {
    const probeOne = async ({ id, mountpoint }: Pick<FailingDisk, 'id' | 'mountpoint'>) => {
      let rejected: string | undefined;
      await this.probes.run(PROBE_MS, { id, mountpoint }, async () => {
        await tryWriting({ diskId: id, mountpoint }, this.ctx.config.restoreGroup).catch((error: unknown) => {
          const errorClass = error instanceof TapeError ? error.errorClass : diskClassOf(error);
          if (errorClass === 'POLICY') rejected = messageOf(error);
        });
      });
      if (rejected !== undefined) await suspendDisk(this.ctx, mountpoint, rejected);
    };
    await Promise.all((await listInService(this.ctx)).map(probeOne));
  }

  private async retryOne(disk: FailingDisk): Promise<void> {
    const { id, mountpoint } = disk;
    let isAbsent = false;
    const problem = await this.retries.run(PROBE_MS, disk, async () => {
      const missing = await ensureMarked(this.ctx, disk);
      const space = await this.gauge.readSpace(disk).catch((error: unknown) => {
        isAbsent = error instanceof AbsentError;
        throw missing === undefined ? error : new Error(missing);
      });
      await tryWriting({ diskId: id, mountpoint }, this.ctx.config.restoreGroup);
      // record the measurement before resuming the disk, so that other hosts know that the disk is on this host
      const free = 'freeBytes' in space ? space.freeBytes : null;
      await recordMeasurements(this.ctx, this.host, [{ diskId: id, free, problem: null }]);
      await returnDisk(this.ctx, mountpoint); // resume the disk even if this call has exceeded its time limit
    });
    if (problem === undefined) this.absent.delete(id);
    else if (isAbsent && (await leaveToOthers(this.ctx, { host: this.host, mountpoint }))) this.pauseAbsent(id);
    else await recordStillFailing(this.ctx, mountpoint, problem);
  }

  private pauseAbsent(diskId: number): void {
    const ms = Math.min((this.absent.get(diskId)?.ms ?? ABSENT_PAUSE_MS.first / 2) * 2, ABSENT_PAUSE_MS.most);
    this.absent.set(diskId, { until: performance.now() + ms, ms });
  }

  private async probe(disk: MarkedDisk): Promise<DiskProblem | undefined> {
    const known = this.recentProbes.get(disk.diskId);
    if (known && performance.now() - known.at < PROBE_FRESH_MS) return await known.problem;
    const { diskId: id, mountpoint } = disk;
    let isAbsent = false;
    const tried = this.probes.run(PROBE_MS, { id, mountpoint }, async () => {
      await tryWriting(disk, this.ctx.config.restoreGroup).catch((error: unknown) => {
        isAbsent = error instanceof AbsentError;
        throw error;
      });
    });
    const problem = tried.then((text) => (text === undefined ? undefined : { text, isAbsent }));
    this.recentProbes.set(id, { at: performance.now(), problem });
    return await problem;
  }

  /**
   * Counts a failed call. After `MAX_FAILURES` consecutive failures, returns the problem. Ignores POLICY errors,
   * because a POLICY error concerns only one directory.
   */
  private count({ diskId }: MarkedDisk, { errorClass, message }: DiskError): string | undefined {
    if (errorClass === 'POLICY') return undefined;
    const count = (this.counts.get(diskId) ?? 0) + 1;
    this.counts.set(diskId, count);
    if (count < MAX_FAILURES) return undefined;
    this.counts.delete(diskId);
    return `${count} consecutive calls failed on this disk; the last error was: ${message}`;
  }
}

/**
 * Prefix of probe files' names. The prefix begins with the marker's name, so that no job treats a probe file as a copy.
 */
const PROBE_NAME = `${markerName}-try`;

/**
 * Probes a disk: creates, writes and syncs a file, as a recall would. If the disk is full, the probe still succeeds.
 * @throws an error if the disk is absent, untrusted or not writable
 */
async function tryWriting(disk: MarkedDisk, group: number | undefined): Promise<void> {
  const root = await rootOf(disk);
  const untrusted = await findUntrusted({ root }, group);
  if (untrusted) throw new TapeError('TRANSIENT', describeUntrusted(untrusted));
  const file = path.join(root, `${PROBE_NAME}-${randomUUID()}`);
  try {
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    const handle = await open(file, flags, 0o600);
    try {
      // remove the probe file while it is still open, so that it does not remain if the process is killed
      await unlink(file);
      await handle.writeFile('.');
      await handle.sync();
    } finally {
      await handle.close();
    }
  } catch (error) {
    await unlink(file).catch(() => {});
    if (codeOf(error) === 'EROFS') throw explainReadOnly(disk, error);
    if (diskClassOf(error) !== 'SPACE' && codeOf(error) !== 'ENOENT') throw error;
  }
}

/**
 * Adds a hint to the error for a read-only disk: systemd's sandbox might have made the disk read-only for this service.
 */
function explainReadOnly({ mountpoint }: MarkedDisk, cause: unknown): Error {
  const remedy = `if systemd runs Tapegate, add ${mountpoint} to ReadWritePaths= and restart Tapegate`;
  return new TapeError('POLICY', `EROFS: ${mountpoint} is read-only for this process; ${remedy}`, { cause });
}

/**
 * Error of a call that failed because the restore disk is full. A disk can be full although it still reports free
 * space.
 */
export class FullError extends TapeError {
  constructor(cause: unknown) {
    super('SPACE', messageOf(cause), { cause });
  }
}
