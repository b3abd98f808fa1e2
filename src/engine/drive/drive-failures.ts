/**
 * A drive with a DriveError, and a library that refuses, are suspended until their next try. A volume is suspended if
 * it cannot be mounted, or if several files in a row are unreadable. The counts are in memory, for all drives of an
 * engine.
 */

import { type ErrorClass, isExhausted, logFailure, messageOf, oneLine, UnavailableError } from '../../core/errors.js';
import { addSeconds, isBefore } from '../../core/time.js';
import type { Context } from '../../domain/context.js';
import { closeCircuit, countFailures, openCircuit } from '../../domain/health/circuits.js';
import { resetDriveFailures, suspendFailingDrive } from '../../domain/health/failing-drives.js';
import { suspendFailingLibrary } from '../../domain/health/failing-libraries.js';
import { beginTrial, readOpening, suspendFailing } from '../../domain/health/suspensions.js';
import { type DriveRange, isReadElsewhere, setMount } from '../../domain/recalls/drives.js';
import type { RecallOutcome } from '../../domain/recalls/ends.js';
import { postponeVolume } from '../../domain/recalls/queue.js';
import type { RunningRecall } from '../../domain/recalls/starts.js';
import { DriveError, LibraryError } from '../../tape/drive-library.js';
import { RetryLaterError } from '../../tape/staging.js';
import type { HeldLease } from './lease.js';
import { breakdownPauseSeconds, classifyError, EXHAUSTED_PAUSE_SECONDS, maxTries, pauseSeconds } from './retry.js';

/** Consecutive mount failures before a volume is suspended; more if the error class allows more retries. */
const MAX_MOUNTS = 3;

/** Class for the pause after a failed mount. A closed library may report anything, so every class is retried. */
const pauseClassOf = (errorClass: ErrorClass) =>
  errorClass === 'PERMANENT' || errorClass === 'POLICY' ? 'MEDIA' : errorClass;

/** Pause before another visit to a volume on which nothing could start; doubles with each visit. */
const IDLE_PAUSE_MS = { first: 1000, most: 10_000 };

/** Pause before an unavailable library is tried again; doubles with each try. */
const LIBRARY_PAUSE_SECONDS = { first: 1, most: 30 };

/** Consecutive files with MEDIA errors before the volume itself is suspended. */
const MAX_BAD_FILES = 3;

/**
 * After this many tries before its volume was resumed, a file no longer counts against the volume. Otherwise files that
 * stay bad would suspend it after each resume.
 */
const MAX_EARLIER_TRIES = 3;

interface MountFailure {
  errorClass: ReturnType<typeof classifyError>['errorClass'];
  error: string;
  /** Time of the next mount; undefined if the volume must be suspended. */
  notBefore: string | undefined;
  /** Why the volume must be suspended, if so. */
  suspensionReason: string | undefined;
}

/** Shared by the drives of an engine. Volumes are identified by name. */
export class VolumeFailures {
  private readonly mounts = new Map<string, number>();
  private readonly pauses = new Map<string, string>();
  /** Consecutive bad files; each counts once. */
  private readonly badFiles = new Map<string, Set<bigint>>();
  /** When volumes on which nothing could start may be visited again, by `performance.now()`. */
  private readonly idle = new Map<string, { until: number; ms: number }>();

  private libraryPause: { until: number; seconds: number } | undefined;

  /** Whether this process found the library unavailable, and must not try it yet. */
  get isLibraryPaused(): boolean {
    return (this.libraryPause?.until ?? 0) > performance.now();
  }

  /** Whether the next mount must wait, also for requests made after the failure. */
  isPaused(volume: string, now: string): boolean {
    const until = this.pauses.get(volume);
    return until !== undefined && isBefore(now, until);
  }

  /** Returns the volumes whose next mount must wait. */
  pausedAt(now: string): string[] {
    return [...this.pauses.keys()].filter((volume) => this.isPaused(volume, now));
  }

  /** Whether the next visit must wait, because nothing could start on the volume. */
  isIdle(volume: string): boolean {
    return (this.idle.get(volume)?.until ?? 0) > performance.now();
  }

  /** Records a visit. A visit without a read starts a pause, regardless of the reason. */
  recordVisit(volume: string, hasRead: boolean): void {
    const ms = Math.min((this.idle.get(volume)?.ms ?? IDLE_PAUSE_MS.first / 2) * 2, IDLE_PAUSE_MS.most);
    if (hasRead) this.idle.delete(volume);
    else this.idle.set(volume, { until: performance.now() + ms, ms });
  }

  /** Called after an operator changed something. */
  endPauses(): void {
    this.pauses.clear();
    this.idle.clear();
    this.libraryPause = undefined;
  }

  /** Called after the volume was mounted and read. */
  succeeded(volume: string): void {
    this.mounts.delete(volume);
    this.pauses.delete(volume);
    this.libraryPause = undefined;
  }

  /** Called if a mount failed, or the volume became unreadable. */
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
    this.mounts.delete(volume); // the count restarts, unless it is set again below
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

  /** Called if the library is unavailable to this host. @returns the seconds until this process tries it again */
  pauseLibrary(thrown: LibraryError): number {
    const seconds = this.nextLibraryPause(thrown);
    this.libraryPause = { until: performance.now() + seconds * 1000, seconds };
    return seconds;
  }

  /** Seconds until the next try: as the library reports, or doubling. */
  private nextLibraryPause(thrown: LibraryError): number {
    if (thrown instanceof RetryLaterError) return thrown.retryAfterSeconds;
    return Math.min((this.libraryPause?.seconds ?? LIBRARY_PAUSE_SECONDS.first / 2) * 2, LIBRARY_PAUSE_SECONDS.most);
  }

  /**
   * Returns a function that receives the outcomes of a batch, and returns why the volume must be suspended, if so. It
   * judges them in read order, because a bad file fails before an earlier good one is in place.
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
   * Counts a file that was unreadable at its first try since the volume was resumed. Retries do not count: if few of
   * many files are bad, good ones are read between their retries.
   * @returns why the volume must be suspended, if so
   */
  private countBadFile(volume: string, recall: RunningRecall, outcome: RecallOutcome): string | undefined {
    if (outcome.kind !== 'retry' || outcome.errorClass !== 'MEDIA') return undefined;
    if (recall.attempts > 0 || recall.earlierTries >= MAX_EARLIER_TRIES) return undefined;
    const bad = (this.badFiles.get(volume) ?? new Set()).add(recall.fileId);
    this.badFiles.set(volume, bad);
    if (bad.size < MAX_BAD_FILES) return undefined;
    this.badFiles.delete(volume);
    return `${bad.size} consecutive files could not be read from it, the last of them ${recall.path}: ${outcome.error}`;
  }
}

/**
 * Charges a failed mount, or a later failure of the volume, to the volume. Its recalls wait for the next mount, or the
 * volume is suspended.
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
  else if (thrown instanceof LibraryError) ctx.log.error({ drive: lease.driveName }, error);
  if (notBefore !== undefined) await postponeVolume(ctx, volumeId, { errorClass, error, notBefore });
}

/** Suspends a failing drive. Called before the drive is released, so that no other engine uses it. */
export async function suspendBroken(ctx: Context, lease: HeldLease, thrown: DriveError): Promise<void> {
  await suspendFailingDrive(ctx, lease, classifyError(thrown));
}

/**
 * Suspends a library that refuses, for example because this host lacks one of its programs. Another host may have it:
 * if another drive reads from the library, only this process pauses.
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

/** Returns the result of `readOpening`. Puts drive and library back into service if their next tries are due. */
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

/** Called after a volume was mounted on the drive and read. */
export async function recordSuccess(ctx: Context, lease: HeldLease): Promise<void> {
  lease.hasRead = true;
  if (lease.failures === 0) return;
  await resetDriveFailures(ctx, lease);
  lease.failures = 0;
}

/**
 * Uses a volume. Unexpected errors are charged to the volume: the drive visits others first, and this one after a
 * pause.
 * @param use returns whether it read anything, which resets the count
 * @returns the result of `use`; undefined if another drive has the volume, or the lease is lost
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
    const isOtherFault = error instanceof DriveError || error instanceof LibraryError; // the volume is not at fault
    if (!stop.aborted && !isDatabaseAway && !isOtherFault && !isExhausted(error))
      await countBreakdown(ctx, volumeId, error);
    throw error; // the drive is released, and its next holder recovers unfinished recalls
  }
  if (hasRead) await closeCircuit(ctx, { of: 'volume', id: volumeId });
  if (lease.hasRead) await closeCircuit(ctx, { of: 'reads', id: lease.libraryId }); // and the volume was unmounted
  await setMount(ctx, lease, null);
  return hasRead;
}

/** Never rejects, so that the original error is thrown. */
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
