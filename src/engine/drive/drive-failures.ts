/**
 * Suspends failing drives, libraries and volumes. A drive that throws a DriveError is suspended for a while, and is
 * then tried again. A library that throws a PERMANENT or POLICY error is treated in the same way. A volume is suspended
 * after repeated mount failures or several consecutive unreadable files.
 */

import { type ErrorClass, isExhausted, logFailure, messageOf, oneLine, UnavailableError } from '../../core/errors.js';
import { addSeconds, isBefore } from '../../core/time.js';
import type { Context } from '../../domain/context.js';
import { closeCircuit, countFailures, openCircuit } from '../../domain/health/circuits.js';
import { resetDriveFailures, suspendFailingDrive } from '../../domain/health/failing-drives.js';
import { recordLibraryFailure, suspendFailingLibrary } from '../../domain/health/failing-libraries.js';
import { beginTrial, readOpening, suspendFailing } from '../../domain/health/suspensions.js';
import { type DriveRange, isReadElsewhere, setMount } from '../../domain/recalls/drives.js';
import type { RecallOutcome } from '../../domain/recalls/ends.js';
import { postponeVolume } from '../../domain/recalls/queue.js';
import type { RunningRecall } from '../../domain/recalls/starts.js';
import { DriveError, LibraryError } from '../../tape/drive-library.js';
import { RetryLaterError } from '../../tape/staging.js';
import type { HeldLease } from './lease.js';
import { breakdownPauseSeconds, classifyError, EXHAUSTED_PAUSE_SECONDS, maxTries, pauseSeconds } from './retry.js';

/**
 * Number of consecutive mount failures after which a volume is suspended. Error classes that allow more tries have a
 * higher limit.
 */
const MAX_MOUNTS = 3;

/**
 * Returns the error class that determines the pause after a failed mount. Mounts are retried even after PERMANENT and
 * POLICY errors, because some libraries use these classes for temporary failures.
 */
const pauseClassOf = (errorClass: ErrorClass) =>
  errorClass === 'PERMANENT' || errorClass === 'POLICY' ? 'MEDIA' : errorClass;

/**
 * Pause before a drive returns to a volume on which no recall could start. The pause doubles after each visit during
 * which no recall starts.
 */
const IDLE_PAUSE_MS = { first: 1000, most: 10_000 };

const LIBRARY_PAUSE_SECONDS = { first: 1, most: 30 };

/** Number of consecutive files with MEDIA errors after which the volume is suspended. */
const MAX_BAD_FILES = 3;

/**
 * Number of failed tries before an operator resumed the volume. If a file failed this often, its further failures do
 * not count against the volume.
 */
const MAX_EARLIER_TRIES = 3;

interface MountFailure {
  errorClass: ReturnType<typeof classifyError>['errorClass'];
  error: string;
  notBefore: string | undefined;
  suspensionReason: string | undefined;
}

/** Failure counts and pauses of volumes, by volume name. All drives of an engine share these counts and pauses. */
export class VolumeFailures {
  private readonly mounts = new Map<string, number>();
  private readonly pauses = new Map<string, string>();
  private readonly badFiles = new Map<string, Set<bigint>>();
  /** Time, by the monotonic clock, after which a drive can return to a volume on which no recall could start. */
  private readonly idle = new Map<string, { until: number; ms: number }>();

  private libraryPause: { until: number; seconds: number } | undefined;

  get isLibraryPaused(): boolean {
    return (this.libraryPause?.until ?? 0) > performance.now();
  }

  /** Returns whether drives must still wait before they mount the volume again after a failed mount. */
  isPaused(volume: string, now: string): boolean {
    const until = this.pauses.get(volume);
    return until !== undefined && isBefore(now, until);
  }

  pausedAt(now: string): string[] {
    return [...this.pauses.keys()].filter((volume) => this.isPaused(volume, now));
  }

  /**
   * Returns whether a drive must wait before it reads the volume again, because no recall could start on the last
   * visit.
   */
  isIdle(volume: string): boolean {
    return (this.idle.get(volume)?.until ?? 0) > performance.now();
  }

  /**
   * Records that a drive has left a volume. If no recall could start on the volume, drives return to the volume only
   * after a pause.
   */
  recordVisit(volume: string, hasRead: boolean): void {
    const ms = Math.min((this.idle.get(volume)?.ms ?? IDLE_PAUSE_MS.first / 2) * 2, IDLE_PAUSE_MS.most);
    if (hasRead) this.idle.delete(volume);
    else this.idle.set(volume, { until: performance.now() + ms, ms });
  }

  endPauses(): void {
    this.pauses.clear();
    this.idle.clear();
    this.libraryPause = undefined;
  }

  succeeded(volume: string): void {
    this.mounts.delete(volume);
    this.pauses.delete(volume);
    this.libraryPause = undefined;
  }

  failed(volume: string, thrown: unknown, at: { now: string; random: number }): MountFailure {
    const { errorClass, error } = classifyError(thrown);
    if (isExhausted(thrown)) {
      const notBefore = addSeconds(at.now, EXHAUSTED_PAUSE_SECONDS);
      this.pauses.set(volume, notBefore);
      return { errorClass, error, notBefore, suspensionReason: undefined };
    }
    if (thrown instanceof LibraryError) {
      const notBefore = addSeconds(at.now, this.pauseLibrary(thrown));
      return { errorClass, error, notBefore, suspensionReason: undefined };
    }
    const before = this.mounts.get(volume) ?? 0;
    const isLastTry = before + 1 >= Math.max(MAX_MOUNTS, maxTries(errorClass));
    this.mounts.delete(volume);
    this.pauses.delete(volume);
    if (isLastTry) {
      const suspensionReason = `mounting failed ${before + 1} times: ${error}`;
      return { errorClass, error, notBefore: undefined, suspensionReason };
    }
    const pause = pauseSeconds(pauseClassOf(errorClass), before, at.random);
    const notBefore = pause === undefined ? undefined : addSeconds(at.now, pause);
    this.mounts.set(volume, before + 1);
    if (notBefore !== undefined) this.pauses.set(volume, notBefore);
    return { errorClass, error, notBefore, suspensionReason: undefined };
  }

  /**
   * Starts the pause before the library is tried again.
   * @returns the length of the pause in seconds
   */
  pauseLibrary(thrown: LibraryError): number {
    const seconds = this.nextLibraryPause(thrown);
    this.libraryPause = { until: performance.now() + seconds * 1000, seconds };
    return seconds;
  }

  /**
   * Returns the seconds until the library is tried again: the time that the library requested, or twice the previous
   * pause.
   */
  private nextLibraryPause(thrown: LibraryError): number {
    if (thrown instanceof RetryLaterError) return thrown.retryAfterSeconds;
    return Math.min((this.libraryPause?.seconds ?? LIBRARY_PAUSE_SECONDS.first / 2) * 2, LIBRARY_PAUSE_SECONDS.most);
  }

  /**
   * Returns a function that receives the outcomes of a batch's recalls and returns the reason to suspend the volume, if
   * any. The function processes the outcomes in the order in which the files were read.
   */
  followReads(
    volume: string,
    batch: readonly RunningRecall[],
  ): (outcomes: readonly RecallOutcome[]) => string | undefined {
    const ended = new Map<bigint, RecallOutcome>();
    let next = 0;
    return (outcomes) => {
      let suspensionReason: string | undefined;
      for (const outcome of outcomes) ended.set(outcome.fileId, outcome);
      for (; ; next++) {
        const recall = batch[next];
        const outcome = recall && ended.get(recall.fileId);
        if (!outcome) return suspensionReason;
        if (outcome.kind === 'restored') this.badFiles.delete(volume);
        suspensionReason = this.countBadFile(volume, recall, outcome) ?? suspensionReason;
      }
    };
  }

  /**
   * Counts a file as bad only when its first try fails. Before the file's next try, drives might read other files
   * successfully.
   * @returns the reason to suspend the volume, if any
   */
  private countBadFile(volume: string, recall: RunningRecall, outcome: RecallOutcome): string | undefined {
    if (outcome.kind !== 'retry' || outcome.errorClass !== 'MEDIA') return undefined;
    if (recall.attempts > 0 || recall.earlierTries >= MAX_EARLIER_TRIES) return undefined;
    const bad = (this.badFiles.get(volume) ?? new Set()).add(recall.fileId);
    this.badFiles.set(volume, bad);
    if (bad.size < MAX_BAD_FILES) return undefined;
    this.badFiles.delete(volume);
    return `${bad.size} consecutive files could not be read from this volume, the last of them ${recall.path}: ${outcome.error}`;
  }
}

/**
 * Records a failed mount, or a mounted volume that became unreadable. Postpones the volume's recalls, or suspends the
 * volume. If the library failed, records the library's problem, unless another drive reads from the library.
 */
export async function recordVolumeFailure(
  ctx: Context,
  lease: HeldLease,
  { volume, volumeId, failures }: { volume: string; volumeId: number; failures: VolumeFailures },
  thrown: unknown,
): Promise<void> {
  const at = { now: ctx.now(), random: Math.random() };
  const { errorClass, error, notBefore, suspensionReason } = failures.failed(volume, thrown, at);
  if (suspensionReason !== undefined)
    await suspendFailing(ctx, { kind: 'VOLUME', name: volume }, { problem: suspensionReason });
  else if (thrown instanceof LibraryError) {
    ctx.log.error({ drive: lease.driveName }, error);
    lease.hasRead = false; // do not clear the library's recorded problem when the drive leaves this volume
    if (notBefore !== undefined && !(await isReadElsewhere(ctx, lease)))
      await recordLibraryFailure(ctx, lease.libraryId, { problem: error, until: notBefore });
  }
  if (notBefore !== undefined) await postponeVolume(ctx, volumeId, { errorClass, error, notBefore });
}

/** Suspends a failing drive before it is released, so that no other engine uses the drive. */
export async function suspendBroken(ctx: Context, lease: HeldLease, thrown: DriveError): Promise<void> {
  await suspendFailingDrive(ctx, lease, classifyError(thrown));
}

/**
 * Suspends a library that this host cannot use, for example because the host lacks a program that the library needs. If
 * another drive is reading from the library, the library is not suspended, and only this process pauses.
 */
export async function suspendRefusing(
  ctx: Context,
  lease: HeldLease,
  { library, failures }: { library: DriveRange; failures: VolumeFailures },
  thrown: LibraryError,
): Promise<void> {
  const { error: problem } = classifyError(thrown);
  if (await isReadElsewhere(ctx, lease)) {
    const seconds = failures.pauseLibrary(thrown);
    ctx.log.error({ drive: lease.driveName, seconds }, `library ${library.name}: ${problem}`);
    return;
  }
  await suspendFailingLibrary(ctx, library, { problem, since: lease.visitedAt });
}

/** Resumes a suspended drive or library if the next trial is due. Then returns whether the drive can be used. */
export async function openNow(
  ctx: Context,
  lease: HeldLease,
  library: Pick<DriveRange, 'name'>,
): Promise<{ isQueued: boolean } | undefined> {
  const opening = await readOpening(ctx, lease);
  if (opening) return opening;
  const isDriveTried = await beginTrial(ctx, { kind: 'DRIVE', name: lease.driveName });
  const isLibraryTried = await beginTrial(ctx, { kind: 'LIBRARY', name: library.name });
  return isDriveTried || isLibraryTried ? await readOpening(ctx, lease) : undefined;
}

/** Resets the drive's failure count after the drive mounts and reads a volume. */
export async function recordSuccess(ctx: Context, lease: HeldLease): Promise<void> {
  lease.hasRead = true;
  if (lease.failures === 0) return;
  await resetDriveFailures(ctx, lease);
  lease.failures = 0;
}

/**
 * Records in the database that a volume is mounted, and then calls `use`. After an unexpected error, opens the volume's
 * circuit breaker, so that drives read other volumes until the pause ends.
 * @param use function that returns whether any recall or verification started
 * @returns the result of `use`; undefined if the volume is in another drive, or the lease is lost
 */
export async function visitVolume(
  ctx: Context,
  lease: HeldLease,
  { volumeId, stop }: { volumeId: number; stop: AbortSignal },
  use: () => Promise<boolean>,
): Promise<boolean | undefined> {
  if (!(await setMount(ctx, lease, volumeId))) return undefined;
  [lease.hasRead, lease.visitedAt] = [false, ctx.now()];
  let hasRead: boolean;
  try {
    hasRead = await use();
  } catch (error) {
    const isDatabaseAway = error instanceof UnavailableError && error.kind === 'away';
    // do not count drive and library errors, because the volume did not cause these errors
    const isOtherFault = error instanceof DriveError || error instanceof LibraryError;
    if (!stop.aborted && !isDatabaseAway && !isOtherFault && !isExhausted(error))
      await countBreakdown(ctx, volumeId, error);
    throw error; // the caller releases the drive, and the engine that claims the drive next recovers unfinished recalls
  }
  if (hasRead) await closeCircuit(ctx, { of: 'volume', id: volumeId });
  // reading and unmounting succeeded, so the library can be read
  if (lease.hasRead) await closeCircuit(ctx, { of: 'reads', id: lease.libraryId });
  await setMount(ctx, lease, null);
  return hasRead;
}

/**
 * Counts an unexpected error that occurred while a volume was mounted. Never rejects, so that the caller can throw the
 * original error.
 */
async function countBreakdown(ctx: Context, volumeId: number, thrown: unknown): Promise<void> {
  const random = Math.random();
  try {
    const circuit = { of: 'volume', id: volumeId } as const;
    const until = addSeconds(ctx.now(), breakdownPauseSeconds(await countFailures(ctx, circuit), random));
    await openCircuit(ctx, circuit, { until, problem: oneLine(messageOf(thrown)) });
  } catch (error) {
    logFailure(ctx.log, error, 'drive');
  }
}
