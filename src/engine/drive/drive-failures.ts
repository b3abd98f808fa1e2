/**
 * Drives, volumes and libraries that fail. A drive that reports a DriveError is suspended with the time of its next try, and other drives read its files.
 * Volumes are suspended when they cannot be mounted, or when one file after another cannot be read: counted in memory over the drives of an engine.
 */
import type { Context } from '../../context.js';
import { type ErrorClass, isExhausted, logFailure, messageOf, oneLine, UnavailableError } from '../../errors.js';
import { closeCircuit, countFailures, openCircuit, trialSeconds } from '../../operations/health/circuits.js';
import { countDriveFailure, forgetDriveFailures, setMount } from '../../operations/recalls/drives.js';
import type { RecallOutcome } from '../../operations/recalls/ends.js';
import type { RunningRecall } from '../../operations/recalls/starts.js';
import { beginTrial, holdFailing, readOpening } from '../../operations/suspensions.js';
import { DriveError, LibraryError } from '../../tape/backend.js';
import { RetryLaterError } from '../../tape/staging.js';
import { addSeconds, isBefore } from '../../time.js';
import type { HeldLease } from './lease.js';
import { breakdownPauseSeconds, classifyError, EXHAUSTED_PAUSE_SECONDS, maxTries, pauseSeconds } from './retry.js';

/** Mounts that may fail one after another; more where the class of the error is tried more often. */
const MAX_MOUNTS = 3;

/** Of a mount, which no file is given up for, whatever is wrong: a library that is closed for a while may say anything. */
const pauseClassOf = (errorClass: ErrorClass) =>
  errorClass === 'PERMANENT' || errorClass === 'POLICY' ? 'MEDIA' : errorClass;

/** The queue of a volume of which nothing could start is looked at again after a while that doubles from visit to visit. */
const IDLE_MS = { first: 1000, most: 10_000 };

/** A library that is not there is looked for again after a while that doubles from time to time. */
const LIBRARY_SECONDS = { first: 1, most: 30 };

/** Nor is it left alone for longer, whatever it says itself. */
const RETRY_LATER_SECONDS = 3600;

/** Files, one read after the other, that may fail with MEDIA before the volume itself is what is wrong. */
const MAX_BAD_FILES = 3;

/**
 * Tries of a file, each after its volume was put back into service, from which on it is what is bad, whatever else can be read there:
 * where nothing but bad files is left of a volume, no other one would ever show that it is sound.
 */
const MOST_EARLIER_TRIES = 10;

/** What recalls that have ended say of their volume. */
export interface Verdict {
  /** Why it is to be held, when it is. */
  holdReason: string | undefined;
  /** One file after another could not be read from it, and nothing since (true), or something was read again (false). */
  isDoubtful: boolean | undefined;
}

/** What a mount that failed means for its volume. */
interface MountFailure {
  errorClass: ReturnType<typeof classifyError>['errorClass'];
  error: string;
  /** When the next mount is worth trying; nothing when the volume is to be held. */
  notBefore: string | undefined;
  /** Why the volume is to be held, when it is. */
  holdReason: string | undefined;
}

/** Shared by the drives of an engine. Volumes go by their names. */
export class VolumeFailures {
  private readonly mounts = new Map<string, number>();
  private readonly pauses = new Map<string, string>();
  /** Files that failed one after another, each once. */
  private readonly badFiles = new Map<string, Set<bigint>>();
  /** Volumes that this engine has held for these: the number of the batch that was read then. */
  private readonly doubts = new Map<string, number>();
  /** Volumes of which something was restored since they had been held: what was noted of the doubt. */
  private readonly trusted = new Map<string, string>();
  private batches = 0;
  /** Of volumes of which nothing could start: until when they are left alone, by the process's own clock. */
  private readonly idle = new Map<string, { until: number; ms: number }>();

  private library: { until: number; seconds: number } | undefined;

  /** Is the library away, as seen from this process, and too early to look for it again? */
  get isLibraryAway(): boolean {
    return (this.library?.until ?? 0) > performance.now();
  }

  /** Is it too early for the next mount? Also for what was asked for after the last one had failed. */
  isPaused(volume: string, now: string): boolean {
    const until = this.pauses.get(volume);
    return until !== undefined && isBefore(now, until);
  }

  /** Is it too early to turn to the volume again, since nothing of it could start? */
  isIdle(volume: string): boolean {
    return (this.idle.get(volume)?.until ?? 0) > performance.now();
  }

  /** A drive has turned to the volume; whatever kept it from reading, it does not turn there again without a pause. */
  noteVisit(volume: string, hasRead: boolean): void {
    const ms = Math.min((this.idle.get(volume)?.ms ?? IDLE_MS.first / 2) * 2, IDLE_MS.most);
    if (hasRead) this.idle.delete(volume);
    else this.idle.set(volume, { until: performance.now() + ms, ms });
  }

  /** An operator has changed something. */
  endPauses(): void {
    this.pauses.clear();
    this.idle.clear();
    this.library = undefined;
  }

  /** It was mounted, and could be read. */
  succeeded(volume: string): void {
    this.mounts.delete(volume);
    this.pauses.delete(volume);
    this.library = undefined;
  }

  /** It could not be mounted, or not be read on. */
  failed(volume: string, thrown: unknown, at: { now: string; random: number }): MountFailure {
    const { errorClass, error } = classifyError(thrown);
    if (isExhausted(thrown)) {
      const notBefore = addSeconds(at.now, EXHAUSTED_PAUSE_SECONDS);
      this.pauses.set(volume, notBefore);
      return { errorClass, error, notBefore, holdReason: undefined };
    }
    if (thrown instanceof LibraryError) {
      const seconds = this.librarySeconds(thrown);
      this.library = { until: performance.now() + seconds * 1000, seconds };
      return { errorClass, error, notBefore: addSeconds(at.now, seconds), holdReason: undefined };
    }
    const before = this.mounts.get(volume) ?? 0;
    const isWorn = before + 1 >= Math.max(MAX_MOUNTS, maxTries(errorClass));
    this.mounts.delete(volume); // the count begins anew, unless it goes on here
    this.pauses.delete(volume);
    if (isWorn) {
      const holdReason = `it could not be mounted ${before + 1} times: ${error}`;
      return { errorClass, error, notBefore: undefined, holdReason };
    }
    const pause = pauseSeconds(pauseClassOf(errorClass), before, at.random);
    const notBefore = pause === undefined ? undefined : addSeconds(at.now, pause);
    this.mounts.set(volume, before + 1);
    if (notBefore !== undefined) this.pauses.set(volume, notBefore);
    return { errorClass, error, notBefore, holdReason: undefined };
  }

  /** As long as it says itself, where it does. */
  private librarySeconds(thrown: LibraryError): number {
    if (thrown instanceof RetryLaterError) return Math.min(Math.max(thrown.retryAfterSeconds, 1), RETRY_LATER_SECONDS);
    return Math.min((this.library?.seconds ?? LIBRARY_SECONDS.first / 2) * 2, LIBRARY_SECONDS.most);
  }

  /**
   * A function that is told how the recalls of a batch end, and judges their volume. It judges
   * in the order in which the files were read: a good one is in place later than a bad one after it has failed.
   */
  followReads(volume: string, batch: readonly RunningRecall[]): (outcomes: readonly RecallOutcome[]) => Verdict {
    const number = ++this.batches;
    const ended = new Map<bigint, RecallOutcome>();
    let next = 0;
    return (outcomes) => {
      const verdict: Verdict = { holdReason: undefined, isDoubtful: undefined };
      for (const outcome of outcomes) ended.set(outcome.fileId, outcome);
      for (; ; next++) {
        const recall = batch[next];
        const outcome = recall && ended.get(recall.fileId);
        if (!outcome) return verdict;
        if (outcome.kind === 'restored' && this.noteRestored(volume, recall, number)) verdict.isDoubtful = false;
        const holdReason = this.noteBad(volume, recall, outcome);
        if (holdReason === undefined) continue;
        this.doubts.set(volume, number);
        Object.assign(verdict, { holdReason, isDoubtful: true });
      }
    };
  }

  /** @returns whether that ends a doubt: what was read before it arose does not, however late it is in place */
  private noteRestored(volume: string, recall: RunningRecall, batch: number): boolean {
    this.badFiles.delete(volume);
    const doubtedIn = this.doubts.get(volume);
    const endsDoubt = doubtedIn === undefined ? recall.doubtedSince !== null : batch >= doubtedIn;
    if (!endsDoubt) return false;
    this.doubts.delete(volume);
    if (recall.doubtedSince !== null) this.trusted.set(volume, recall.doubtedSince);
    return true;
  }

  /** @returns why the volume is to be held, when it is */
  private noteBad(volume: string, recall: RunningRecall, outcome: RecallOutcome): string | undefined {
    if (outcome.kind !== 'retry' || outcome.errorClass !== 'MEDIA' || !this.mayTell(volume, recall)) return undefined;
    const bad = (this.badFiles.get(volume) ?? new Set()).add(recall.fileId);
    this.badFiles.set(volume, bad);
    if (bad.size < MAX_BAD_FILES) return undefined;
    this.badFiles.delete(volume);
    return `${bad.size} files one after another could not be read from it, the last of them ${recall.path}: ${outcome.error}`;
  }

  /**
   * Whether the volume is judged by the file, when it cannot be read. Only a file's first try counts: where some bad files lie among many
   * good ones, the good ones are read by the time that the bad ones are all tried again, one after the other. So does the first one
   * after the volume was put back into service, as long as nothing was restored from it since it was held: whatever was wrong with it may be
   * wrong still. Once something was, they are what is bad, else nothing behind them would ever be read.
   */
  private mayTell(volume: string, { attempts, earlierTries, doubtedSince }: RunningRecall): boolean {
    if (attempts > 0) return false;
    if (earlierTries === 0) return true;
    const isDoubtful = doubtedSince !== null && this.trusted.get(volume) !== doubtedSince;
    return isDoubtful && earlierTries < MOST_EARLIER_TRIES;
  }
}

/** What does not pass by itself is tried so often, one time after another, and then left to an operator: it may spoil cartridges. */
const MOST_TRIES = 3;
const LASTING: readonly ErrorClass[] = ['MEDIA', 'POLICY', 'PERMANENT'];

/** Before the drive is given back, so that nobody else walks into it. */
export async function holdBroken(ctx: Context, lease: HeldLease, thrown: DriveError): Promise<void> {
  const failures = await countDriveFailure(ctx, lease);
  if (failures === undefined) return;
  const { errorClass, error: problem } = classifyError(thrown);
  const isLeft = LASTING.includes(errorClass) && failures >= MOST_TRIES;
  const retryAt = isLeft ? null : addSeconds(ctx.now(), trialSeconds(failures - 1));
  await holdFailing(ctx, { kind: 'DRIVE', name: lease.driveName }, { problem, retryAt });
}

/** Returns what `readOpening` says of the drive. A drive whose next try is due is in service again with this. */
export async function openNow(ctx: Context, lease: HeldLease): Promise<{ isQueued: boolean } | undefined> {
  const opening = await readOpening(ctx, lease);
  if (opening) return opening;
  const isTried = await beginTrial(ctx, { kind: 'DRIVE', name: lease.driveName });
  return isTried ? await readOpening(ctx, lease) : undefined;
}

/** A volume was mounted on it, and read. */
export async function noteWorks(ctx: Context, lease: HeldLease): Promise<void> {
  if (lease.failures === 0) return;
  await forgetDriveFailures(ctx, lease);
  lease.failures = 0;
}

/**
 * What `use` throws is nobody's fault that is known, and would be thrown again: it counts against the volume, so that
 * the drive turns to others first, and to this one after a pause that grows.
 * @param use returns whether it has read anything, which ends the count
 * @returns what it returned; nothing where another drive has the volume, or the lease is lost
 */
export async function visitVolume(
  ctx: Context,
  lease: HeldLease,
  { volumeId, stop }: { volumeId: number; stop: AbortSignal },
  use: () => Promise<boolean>,
): Promise<boolean | undefined> {
  if (!(await setMount(ctx, lease, volumeId))) return undefined;
  let hasRead: boolean;
  try {
    hasRead = await use();
  } catch (error) {
    const isAway = error instanceof UnavailableError && error.kind === 'away';
    const isElse = error instanceof DriveError || error instanceof LibraryError; // of which the volume is none
    if (!stop.aborted && !isAway && !isElse && !isExhausted(error)) await countBreakdown(ctx, volumeId, error);
    throw error; // the drive is given back, and whoever has it next puts in order what was in hand
  }
  if (hasRead) await closeCircuit(ctx, { of: 'volume', id: volumeId });
  await setMount(ctx, lease, null);
  return hasRead;
}

/** Never rejects: what is thrown is what broke the visit. */
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
