/**
 * Recalls the files of a batch from a mounted volume, one after the other, while earlier ones are still written and synced.
 *
 * | state | step | next |
 * |---|---|---|
 * | STARTED | the directory is opened, made if missing | OPENED |
 * | OPENED | the file is read, checksummed and written to its partial file (`readInto`) | READ |
 * | READ | the partial file is synced (`finishCopy`) | SYNCED |
 * | SYNCED | the database records inode and mtime, and confirms the lease | CONFIRMED |
 * | CONFIRMED | the partial file is put in place, replacing nothing | PLACED |
 * | PLACED | the directory, and those above it, are synced (`settle`) | REPORTED |
 *
 * An error in any state discards the partial file and ends the recall as `judge` says. An engine that is killed leaves a recall that is RUNNING: the next
 * holder of the drive (left-behind.ts) removes the partial file, takes a copy that is PLACED as restored, and queues the others again.
 */
import { once } from 'node:events';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../context.js';
import { messageOf, UnavailableError } from '../../errors.js';
import type { RecallOutcome } from '../../operations/recalls/ends.js';
import type { RunningRecall } from '../../operations/recalls/starts.js';
import { count } from '../../signals.js';
import { type MountedVolume, VolumeError } from '../../tape/backend.js';
import { NotReadyError } from '../../tape/staging.js';
import { type Span, startPart } from '../../traces.js';
import type { CallWatch } from '../calls.js';
import { wantedAttributes } from '../disk/attributes.js';
import { type FailingDisks, FullError, ofDisk } from '../disk/failures.js';
import { OpenFolders } from '../disk/made-folders.js';
import { type Budget, partialName, removePartial } from '../disk/partial-file.js';
import type { LinkKeeper } from '../links/pass.js';
import type { HeldLease } from './lease.js';
import { Confirmations, NotHeldError } from './lease.js';
import { beginCopy, finishCopy, outcomeOf, readInto, toReturned, toUnplaced, UnseenError } from './recall.js';
import { PutOffError, toPutOff } from './retry.js';

/** Recalls that were started together. */
export interface Batch {
  recalls: readonly RunningRecall[];
  /** Before they were given their disks, by the process's own clock, in milliseconds. */
  since: number;
  /** In which traces they are, by the ids of files; undefined where nothing is traced. */
  traces?: ReadonlyMap<bigint, string> | undefined;
  /** Of each recall: aborts when the recall, or all work of the drive, is to stop. */
  signals: readonly AbortSignal[];
  /** Aborts when nothing of the batch is left to do. */
  signal: AbortSignal;
  /** To be called when no recall of the batch runs any more. */
  end(): void;
}

/** What it takes to read a batch. */
interface BatchWork {
  batch: Batch;
  /** May be called several times; it must not wait. */
  report: (outcomes: RecallOutcome[]) => void;
  /** Of the drive: what is read and not yet written. */
  budget: Budget;
  disks: FailingDisks;
  links: LinkKeeper;
  /** Of the volume, or of the staging library. */
  name: string;
}

/**
 * Reads recalls in the order given, and reports one outcome for each; what its signal stops is `returned`.
 * @returns once all are read; `written` settles when all outcomes are reported, and must be awaited. Where it rejects,
 *   those that are not reported have no outcome. `failure` is why the volume could not be read on: what was left is `returned`
 */
export async function runBatch(
  ctx: Context,
  lease: HeldLease,
  volume: MountedVolume,
  work: BatchWork,
): Promise<{ written: Promise<void>; failure: VolumeError | undefined }> {
  const run = new BatchRun(ctx, lease, volume, work);
  await run.read();
  return { written: run.finish(), failure: run.failure };
}

class BatchRun {
  private readonly ctx: Context;
  private readonly lease: HeldLease;
  private readonly volume: MountedVolume;
  private readonly work: BatchWork;
  private readonly folders: OpenFolders;
  private readonly leftovers: Leftovers;
  private readonly confirmations: Confirmations;
  private readonly reports: Reports;
  /** Of files that are read, and written, synced and put in place meanwhile; none of them rejects. */
  private readonly finishing: Promise<void>[] = [];
  /** What has shown that it is not a file that cannot be read, but the volume. */
  failure: VolumeError | undefined;

  constructor(ctx: Context, lease: HeldLease, volume: MountedVolume, work: BatchWork) {
    this.ctx = { ...ctx, log: ctx.log.child({ drive: lease.driveName, volume: work.name }) };
    this.lease = lease;
    this.volume = volume;
    this.work = work;
    this.folders = new OpenFolders(ctx, lease.calls);
    this.leftovers = new Leftovers(lease, this.folders, work.disks.calls);
    this.confirmations = new Confirmations(ctx, lease);
    this.reports = new Reports((ended) => this.settle(ended), work.report);
  }

  async read(): Promise<void> {
    const { recalls, signals } = this.work.batch;
    for (const [index, recall] of recalls.entries()) await this.readOne(recall, signals[index] ?? this.lease.signal);
  }

  /** Never rejects: a bad file holds up no other. */
  private async readOne(recall: RunningRecall, signal: AbortSignal): Promise<void> {
    const span = this.startSpan(recall);
    const end = (outcome: RecallOutcome) => {
      span?.end({ 'tapegate.outcome': outcome.kind }, 'error' in outcome ? outcome.error : undefined);
      this.reports.add({ recall, signal, outcome });
    };
    const fail = async (error: unknown) => end(await this.judge(recall, error, signal));
    if (this.failure) return end(toReturned(recall));
    const full = this.work.disks.full.findSince(recall, this.work.batch.since);
    if (full !== undefined) return end(toUnplaced(recall, full));
    try {
      signal.throwIfAborted();
      // who has stood still must not make a folder either: others have looked for what it left already
      const folder = await this.folders.open(recall, () => this.confirmations.confirmOpening());
      const how = { folder, budget: this.work.budget, attributes: wantedAttributes(this.ctx.config, recall) };
      const copy = await beginCopy(this.lease, this.confirmations, recall, how);
      const { noteBytes } = this.lease;
      const reading = startPart('read', span?.traceparent);
      const checksum = await readInto(copy, this.volume, recall, { signal, noteBytes }).finally(() => reading?.end());
      count('tapegate_recalled_bytes_total', { drive: this.lease.driveName }, Number(recall.size));
      const placing = startPart('put in place', span?.traceparent);
      const placed = finishCopy(this.ctx, this.confirmations, recall, { copy, checksum }).finally(() => placing?.end());
      this.finishing.push(placed.then(end, fail));
    } catch (error) {
      await fail(error);
    }
  }

  private startSpan({ fileId, logicalPath, size, attempts }: RunningRecall): Span | undefined {
    const at = { 'tapegate.drive': this.lease.driveName, 'tapegate.volume': this.work.name };
    const file = { 'tapegate.file': String(fileId), 'tapegate.path': logicalPath, 'tapegate.size': Number(size) };
    return startPart('recall', this.work.batch.traces?.get(fileId), { ...at, ...file, 'tapegate.attempts': attempts });
  }

  /**
   * Syncs the folders, so that what was put into them lasts. A copy below one that cannot be synced is in its place, and may
   * be gone after the next failure of its host: the recall ends as one whose copy could not be looked at. So it does where a folder that was
   * made for it cannot be tidied away. Never rejects.
   */
  private async settle(ended: readonly EndedRecall[]): Promise<RecallOutcome[]> {
    const failureOf = await this.folders.sync();
    const clear = this.leftovers.ofMany();
    const settleOne = async ({ recall, signal, outcome }: EndedRecall) => {
      const { kind, isUnseen = false } = outcome;
      const isInPlace = kind === 'standing' || kind === 'restored';
      const isCleared = (isInPlace && !isUnseen) || (await clear({ recall, isUnseen }));
      if (!isInPlace) return isCleared ? outcome : { ...outcome, isUnseen: true };
      if (outcome.kind === 'standing') return outcome;
      const failure = failureOf(recall);
      if (failure) return await this.judge(recall, new UnseenError(messageOf(failure), { cause: failure }), signal);
      this.work.disks.succeeded(recall.diskId);
      return outcome;
    };
    const outcomes = await Promise.all(ended.map(settleOne));
    await this.work.links.makeEarly(placedOf(ended, outcomes));
    return outcomes;
  }

  /** How a recall ends that has failed. Never rejects. */
  private async judge(recall: RunningRecall, thrown: unknown, signal: AbortSignal): Promise<RecallOutcome> {
    if (!(thrown instanceof UnseenError)) return await this.judgeReason(recall, thrown, signal);
    return { ...(await this.judgeReason(recall, thrown.cause, signal)), isUnseen: true };
  }

  private async judgeReason(recall: RunningRecall, error: unknown, signal: AbortSignal): Promise<RecallOutcome> {
    if (signal.aborted || error instanceof NotHeldError) return toReturned(recall);
    if (error instanceof UnavailableError) return toReturned(recall); // the database is away: of the file it says nothing
    if (error instanceof NotReadyError) return toReturned(recall); // it is staged again, and holds up no other
    if (error instanceof PutOffError) return toPutOff(this.ctx, recall, error);
    if (error instanceof VolumeError) {
      this.failure = error;
      return toReturned(recall);
    }
    try {
      const problem = await this.work.disks.blame(recall, error);
      if (error instanceof FullError) {
        await this.work.disks.full.note(recall, error);
        return toUnplaced(recall, error.message);
      }
      if (problem === undefined) return outcomeOf(this.ctx, recall, error);
      return { fileId: recall.fileId, kind: 'postponed', errorClass: 'TRANSIENT', error: problem };
    } catch {
      return toReturned(recall); // the database is away, and so is what would be told
    }
  }

  /** Returns when the last file is in place and reported; the folders are closed then, whatever happens. */
  async finish(): Promise<void> {
    try {
      await Promise.all(this.finishing);
      await this.reports.finish();
    } finally {
      this.reports.stop();
      await this.folders.close();
    }
  }
}

/** What is told as restored now, and where. */
function placedOf(
  ended: readonly EndedRecall[],
  outcomes: readonly RecallOutcome[],
): Pick<RunningRecall, 'fileId' | 'diskId'>[] {
  return ended.filter((_, n) => outcomes[n]?.kind === 'restored').map(({ recall }) => recall);
}

/** What has ended is reported at least so often, while a batch goes on: a file in place is told of in time. */
const REPORT_MS = 1000;

/** A recall that has come to its end, but for its folder. */
interface EndedRecall {
  recall: RunningRecall;
  /** Of the recall. */
  signal: AbortSignal;
  outcome: RecallOutcome;
}

/** To be ended by `finish`, or by `stop` when that is not to come. */
class Reports {
  private readonly settle: (ended: readonly EndedRecall[]) => Promise<RecallOutcome[]>;
  private readonly report: (outcomes: RecallOutcome[]) => void;
  private readonly timer: NodeJS.Timeout;
  private ended: EndedRecall[] = [];
  /** The first failure is the last word: what was to be reported with it, or later, is not. */
  private reporting = Promise.resolve();

  /** @param settle syncs the folders, and says how the recalls end then */
  constructor(
    settle: (ended: readonly EndedRecall[]) => Promise<RecallOutcome[]>,
    report: (outcomes: RecallOutcome[]) => void,
  ) {
    this.settle = settle;
    this.report = report;
    this.timer = setInterval(() => {
      this.reportNext();
      this.reporting.catch(() => {}); // thrown by `finish`
    }, REPORT_MS);
  }

  add(ended: EndedRecall): void {
    this.ended.push(ended);
  }

  /** Reports what is left. @throws what a report threw */
  async finish(): Promise<void> {
    this.stop();
    this.reportNext();
    await this.reporting;
  }

  /** No further report after those that have begun. */
  stop(): void {
    clearInterval(this.timer);
  }

  private reportNext(): void {
    this.reporting = this.reporting.then(() => this.reportEnded());
  }

  private async reportEnded(): Promise<void> {
    const ended = this.ended;
    this.ended = [];
    if (ended.length === 0) return;
    // taken before the folders are synced: what is put in place meanwhile is reported the next time
    this.report(await this.settle(ended));
  }
}

/** How long it is waited for when the lease is over: the database may hang. */
const WAIT_MS = 1000;

/** How long, and at what pauses, it goes on then. */
const GO_ON_MS = 60_000;
const PAUSE_MS = 1000;

interface Ended {
  recall: RunningRecall;
  /** Its partial file may be there. */
  isUnseen: boolean;
}

class Leftovers {
  private readonly lease: HeldLease;
  private readonly folders: OpenFolders;
  private readonly passes: CallWatch;

  /** @param passes follows the calls that belong to no drive */
  constructor(lease: HeldLease, folders: OpenFolders, passes: CallWatch) {
    this.lease = lease;
    this.folders = folders;
    this.passes = passes;
  }

  /**
   * For recalls that end together: a folder is looked at once for all of them.
   * @returns what removes that of one of them; it never rejects, and returns false where that is left to others
   */
  ofMany(): (ended: Ended) => Promise<boolean> {
    const folders = new Map<string, Promise<boolean>>();
    return async (ended) => {
      if (ended.isUnseen) return await this.inTime(this.remove(ended));
      const { mountpoint, path: file } = ended.recall;
      const folder = path.join(mountpoint, path.dirname(file));
      const removed = folders.get(folder) ?? this.inTime(this.remove(ended));
      folders.set(folder, removed);
      return await removed;
    };
  }

  private async inTime(removed: Promise<boolean>): Promise<boolean> {
    const done = new AbortController();
    return await Promise.race([removed, waitPast(this.lease.signal, done.signal)]).finally(() => done.abort());
  }

  private async remove(ended: Ended): Promise<boolean> {
    const until = performance.now() + GO_ON_MS;
    for (;;) {
      if (await this.removeOnce(ended)) return true;
      const isHung = this.lease.calls.hasHung || this.passes.hasHung; // the disk is out of service, and this process is ended
      if (!this.lease.signal.aborted || isHung || performance.now() >= until) return false;
      await sleep(PAUSE_MS, undefined, { ref: false });
    }
  }

  private async removeOnce({ recall, isUnseen }: Ended): Promise<boolean> {
    const isOver = this.lease.signal.aborted;
    const calls = isOver ? this.passes : this.lease.calls;
    if (isOver && isUnseen && !(await this.removePartialOf(recall))) return false;
    return !this.folders.hasTried(recall) || (await this.folders.tidy(recall, calls));
  }

  private async removePartialOf(recall: RunningRecall): Promise<boolean> {
    const name = partialName({ ...this.lease, fileId: recall.fileId });
    const removed = ofDisk(this.passes, recall, () => removePartial(recall, name));
    return await removed.then(
      () => true,
      () => false,
    );
  }
}

/** Until it is too late to wait for more. @param done ends it earlier @returns false */
async function waitPast(lease: AbortSignal, done: AbortSignal): Promise<false> {
  try {
    if (!lease.aborted) await once(lease, 'abort', { signal: done });
    await sleep(WAIT_MS, undefined, { signal: done });
  } catch {
    // it was done in time
  }
  return false;
}
