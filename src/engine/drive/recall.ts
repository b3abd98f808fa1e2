/**
 * Recalls the files of a batch from a mounted volume: read, checksum and write in one pass, sync, put in place. Reads
 * one file after the other, while earlier ones are still written and synced.
 *
 * | state | step | next |
 * |---|---|---|
 * | STARTED | open the directory, create it if missing; open a partial file in it (`open`) | OPENED |
 * | OPENED | read, checksum and write the file to its partial file (`read`) | READ |
 * | READ | sync the partial file (`sync`) | SYNCED |
 * | SYNCED | record inode and mtime in the database, confirm the lease (`confirm`) | CONFIRMED |
 * | CONFIRMED | put the partial file in place, without replacing a file (`place`) | PLACED |
 * | PLACED | sync the directory and its parents, report the outcome (`BatchRun.settle`) | REPORTED |
 *
 * An error in any state discards the partial file; `judge` decides the outcome. If the engine is killed, the recall
 * stays RUNNING. The drive's next holder (stale-files.ts) then removes the partial file and requeues the recall. A PLACED
 * copy that was not reported is replaced by the next recall, or removed by a job.
 *
 * An unrecorded file may be at the path: a user's own, or a copy that the database lost after a failover or a restored
 * backup. The recall leaves it alone. If its bytes equal those just read, the recall needs no other copy.
 */
import type { BigIntStats } from 'node:fs';
import path from 'node:path';
import { codeOf, messageOf, TapeError, UnavailableError } from '../../core/errors.js';
import { count } from '../../core/signals.js';
import { type Span, startPart } from '../../core/traces.js';
import type { Context } from '../../domain/context.js';
import { readStaleFilesOn } from '../../domain/disks/stale-files.js';
import type { RecallOutcome } from '../../domain/recalls/ends.js';
import type { RunningRecall } from '../../domain/recalls/starts.js';
import { wantedAttributes } from '../../restore-area/attributes.js';
import { checksumOf, type Mismatch, readChecked, type Sums } from '../../restore-area/checksum.js';
import { putInPlace, recogniseCopy, removeCopy, statIn, storedStats } from '../../restore-area/copy.js';
import { callDisk, type FailingDisks, FullError } from '../../restore-area/failures.js';
import type { LinkKeeper } from '../../restore-area/links/keeper.js';
import { OpenDirectories } from '../../restore-area/made-directories.js';
import { type Budget, PartialFile, partialName } from '../../restore-area/partial-file.js';
import { type Directory, nameDirectory } from '../../restore-area/restore-area.js';
import { type MountedVolume, VolumeError } from '../../tape/drive-library.js';
import { NotReadyError } from '../../tape/staging.js';
import { Confirmations, type HeldLease, NotHeldError } from './lease.js';
import { markTapeFault, outcomeOf, toNotReady, toPostponed, toReturned, toUnplaced, UnseenError } from './outcomes.js';
import { Remains } from './remains.js';
import { PostponedError } from './retry.js';

export interface Batch {
  recalls: readonly RunningRecall[];
  /** Start of the batch, before disks were assigned; milliseconds of `performance.now()`. */
  since: number;
  /** Trace context by file id; undefined if nothing is traced. */
  traces?: ReadonlyMap<bigint, string> | undefined;
  /** One for each recall: aborts when the recall, or all work of the drive, must stop. */
  signals: readonly AbortSignal[];
  /** Aborts when no recall of the batch remains. */
  signal: AbortSignal;
  /** The caller calls this when no recall of the batch is running. */
  end(): void;
}

interface BatchWork {
  batch: Batch;
  /** May be called several times; must not wait. */
  report: (outcomes: RecallOutcome[]) => void;
  /** Limits the drive's bytes that are read but not yet written. */
  budget: Budget;
  disks: FailingDisks;
  links: LinkKeeper;
  /** Name of the volume or staging library. */
  name: string;
}

/**
 * Reads recalls in the given order, and reports one outcome for each; recalls stopped by their signal are `returned`.
 * @returns once all are read. The caller must await `written`, which settles when all outcomes are reported; if it
 *   rejects, unreported recalls have no outcome. `failure` is why the volume became unreadable; the rest is `returned`
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

const REPORT_MS = 1000;

class BatchRun {
  private readonly ctx: Context;
  private readonly lease: HeldLease;
  private readonly volume: MountedVolume;
  private readonly work: BatchWork;
  private readonly directories: OpenDirectories;
  private readonly confirmations: Confirmations;
  private readonly remains: Remains;
  /** Files that are read, and still being written, synced and put in place. Never rejects. */
  private readonly finishing: Promise<void>[] = [];
  private readonly timer: NodeJS.Timeout;
  private ended: EndedRecall[] = [];
  /** After the first error, nothing more is reported. */
  private reporting = Promise.resolve();
  /** An error that shows that the whole volume is unreadable, not one file. */
  failure: VolumeError | undefined;

  constructor(ctx: Context, lease: HeldLease, volume: MountedVolume, work: BatchWork) {
    this.ctx = { ...ctx, log: ctx.log.child({ drive: lease.driveName, volume: work.name }) };
    this.lease = lease;
    this.volume = volume;
    this.work = work;
    this.directories = new OpenDirectories(ctx, lease.calls);
    this.confirmations = new Confirmations(ctx, lease);
    this.remains = new Remains(lease, { disks: work.disks, directories: this.directories });
    this.timer = setInterval(() => {
      this.reportNext();
      this.reporting.catch(() => {}); // thrown by `finish`
    }, REPORT_MS);
  }

  async read(): Promise<void> {
    const { recalls, signals } = this.work.batch;
    for (const [index, recall] of recalls.entries()) await this.readOne(recall, signals[index] ?? this.lease.signal);
  }

  /** Never rejects: a bad file does not delay the others. */
  private async readOne(recall: RunningRecall, signal: AbortSignal): Promise<void> {
    const span = this.startSpan(recall);
    const end = (outcome: RecallOutcome) => {
      span?.end({ 'tapegate.outcome': outcome.kind }, 'error' in outcome ? outcome.error : undefined);
      this.ended.push({ recall, signal, outcome });
    };
    const fail = async (error: unknown) => end(await this.judge(recall, error, signal));
    if (this.failure) return end(toReturned(recall));
    const full = this.work.disks.findFull(recall, this.work.batch.since);
    if (full !== undefined) return end(toUnplaced(recall, full));
    try {
      signal.throwIfAborted();
      const { ctx, lease, confirmations, directories } = this;
      const copy = await RecalledCopy.open({ ctx, lease, confirmations, directories }, recall, this.work.budget);
      const reading = startPart('read', span?.traceparent);
      const sums = await copy.read(this.volume, signal).finally(() => reading?.end());
      count('tapegate_recalled_bytes_total', { drive: lease.driveName }, Number(recall.size));
      const placing = startPart('put in place', span?.traceparent);
      this.finishing.push(
        copy
          .finish(sums)
          .finally(() => placing?.end())
          .then(end, fail),
      );
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
   * Syncs the directories of ended recalls. If a sync fails, the copy may be lost when its host crashes: the recall
   * then ends as unseen. The same holds if an empty directory that was created for it cannot be removed. Never rejects.
   */
  private async settle(ended: readonly EndedRecall[]): Promise<RecallOutcome[]> {
    const failureOf = await this.directories.sync();
    const removeRemains = this.remains.createRemover();
    const judgeOne = async ({ recall, signal, outcome }: EndedRecall) => {
      const { kind, isUnseen = false } = outcome;
      const isInPlace = kind === 'standing' || kind === 'restored';
      const isCleared = (isInPlace && !isUnseen) || (await removeRemains(recall, isUnseen));
      if (!isInPlace) return isCleared ? outcome : { ...outcome, isUnseen: true };
      if (outcome.kind === 'standing') return outcome;
      const failure = failureOf(recall);
      if (failure) return await this.judge(recall, new UnseenError(messageOf(failure), { cause: failure }), signal);
      this.work.disks.succeeded(recall.diskId);
      return outcome;
    };
    const outcomes = await Promise.all(ended.map(judgeOne));
    const restored = ended.filter((_, n) => outcomes[n]?.kind === 'restored');
    await this.work.links.makeEarly(restored.map(({ recall }) => recall));
    return outcomes;
  }

  /** Returns the outcome of a failed recall. Never rejects. */
  private async judge(recall: RunningRecall, thrown: unknown, signal: AbortSignal): Promise<RecallOutcome> {
    if (!(thrown instanceof UnseenError)) return await this.judgeReason(recall, thrown, signal);
    return { ...(await this.judgeReason(recall, thrown.cause, signal)), isUnseen: true };
  }

  private async judgeReason(recall: RunningRecall, error: unknown, signal: AbortSignal): Promise<RecallOutcome> {
    if (signal.aborted || error instanceof NotHeldError) return toReturned(recall);
    if (error instanceof UnavailableError) return toReturned(recall); // the database is unavailable: the file is not at fault
    // the file will be staged again, and delays no other
    if (error instanceof NotReadyError && recall.attempts === 0) return toNotReady(recall, error);
    if (error instanceof PostponedError) return toPostponed(this.ctx, recall, error);
    if (error instanceof VolumeError) {
      this.failure = error;
      return toReturned(recall);
    }
    try {
      const problem = await this.work.disks.blame(recall, error);
      if (error instanceof FullError) {
        await this.work.disks.recordFull(recall, error);
        return toUnplaced(recall, error.message);
      }
      if (problem === undefined) return outcomeOf(this.ctx, recall, error);
      return { fileId: recall.fileId, kind: 'postponed', errorClass: 'TRANSIENT', error: problem };
    } catch {
      return toReturned(recall); // the database is unavailable, so the error cannot be recorded
    }
  }

  private reportNext(): void {
    this.reporting = this.reporting.then(async () => {
      const ended = this.ended;
      this.ended = [];
      // taken before the directories are synced: copies placed meanwhile belong to the next report
      if (ended.length > 0) this.work.report(await this.settle(ended));
    });
  }

  /** Waits until the last file is in place and reported, then always closes the directories. */
  async finish(): Promise<void> {
    try {
      await Promise.all(this.finishing);
      this.reportNext();
      await this.reporting;
    } finally {
      clearInterval(this.timer);
      await this.directories.close();
    }
  }
}

/** A recall that has ended, except for the sync of its directory. */
interface EndedRecall {
  recall: RunningRecall;
  signal: AbortSignal;
  outcome: RecallOutcome;
}

interface CopyWork {
  ctx: Context;
  lease: HeldLease;
  confirmations: Confirmations;
  directories: OpenDirectories;
}

type Identity = { ino: bigint; mtimeNs: bigint };

/** The copy of one recall, from OPENED to PLACED. Each step removes the partial file if it fails. */
class RecalledCopy {
  private readonly work: CopyWork;
  private readonly recall: RunningRecall;
  private readonly directory: Directory;
  private readonly partial: string;
  private readonly file: PartialFile;

  private constructor(work: CopyWork, recall: RunningRecall, directory: Directory, budget: Budget) {
    this.work = work;
    this.recall = recall;
    this.directory = directory;
    this.partial = partialName({ ...work.lease, fileId: recall.fileId });
    this.file = new PartialFile(directory, this.partial, {
      budget,
      attributes: wantedAttributes(work.ctx.config, recall),
    });
  }

  /**
   * STARTED to OPENED.
   * @throws NotHeldError if another engine holds the drive
   */
  static async open(work: CopyWork, recall: RunningRecall, budget: Budget): Promise<RecalledCopy> {
    // a stalled engine must create neither directory nor partial file after its successor has cleaned up
    const confirm = () => work.confirmations.confirmOpening();
    const directory = await work.directories.open(recall, confirm);
    await confirm();
    return new RecalledCopy(work, recall, directory, budget);
  }

  /**
   * OPENED to READ: reads the whole file. Writes may still be pending when it returns.
   * @throws TapeError MEDIA if the tape copy differs from the catalogue
   */
  async read(volume: MountedVolume, signal: AbortSignal): Promise<Sums> {
    const { recall } = this;
    let isDiskFault = false;
    try {
      return await readChecked(
        volume,
        { ...recall, path: recall.tapePath },
        {
          signal,
          wantsAdler32: !recall.hasAdler32,
          sink: (chunk) => {
            this.work.lease.recordBytes(chunk.length);
            return this.onDisk(() => this.file.write(chunk)).catch((error: unknown) => {
              isDiskFault = true;
              throw error;
            });
          },
          describe: (difference) => describeDifference(recall, difference),
        },
      );
    } catch (error) {
      if (error instanceof TapeError && !isDiskFault) markTapeFault(error);
      throw await this.giveUp(error);
    }
  }

  /** READ to PLACED. */
  async finish(sums: Sums): Promise<RecallOutcome> {
    try {
      const identity = await this.sync();
      await this.confirm(identity);
      return await this.place(identity, sums);
    } catch (error) {
      throw await this.giveUp(error);
    }
  }

  /** READ to SYNCED. */
  private async sync(): Promise<Identity> {
    return await this.onDisk(() => this.file.finish());
  }

  /**
   * SYNCED to CONFIRMED. An engine that stalls after this step overwrites nothing: the drive's next holder has removed
   * the partial file, and an existing file is never replaced.
   */
  private async confirm({ ino, mtimeNs }: Identity): Promise<void> {
    await this.work.confirmations.confirmPlacing({ fileId: this.recall.fileId, ino, mtimeNs });
  }

  /** CONFIRMED to PLACED. */
  private async place({ ino, mtimeNs }: Identity, sums: Sums): Promise<RecallOutcome> {
    const placed = await this.placeOrFindEqual(ino, sums.checksum);
    if (typeof placed !== 'string') return await this.keepExisting(placed, sums);
    // the partial file is a second link to the same bytes, which no later job would find
    const isUnseen = placed === 'unsure' && !(await this.discard());
    const ctimeNs = await this.readChangeTime(ino);
    return { fileId: this.recall.fileId, kind: 'restored', ino, mtimeNs, ctimeNs, ...sums, isUnseen };
  }

  /**
   * @returns `unsure` if the partial file may remain; the file's stats if an unrecorded file with the same bytes is at
   *   the path
   * @throws TapeError POLICY if any other file is there
   */
  private async placeOrFindEqual(ino: bigint, checksum: string): Promise<'placed' | 'unsure' | BigIntStats> {
    const { recall, directory } = this;
    const name = path.basename(recall.path);
    for (let attempt = 1; ; attempt++) {
      try {
        await this.onDisk(() => putInPlace(directory, this.partial, name));
        return 'placed';
      } catch (error) {
        const found = await this.onDisk(() => statIn(directory, name)).catch(() => undefined);
        // the copy is in place: a network file system lost the reply, or the partial file could not be removed
        if (found && storedStats(found).ino === ino) return 'unsure';
        // a slow disk may still put it in place
        if (codeOf(error) !== 'EEXIST' || !found) throw new UnseenError(messageOf(error), { cause: error });
      }
      if (attempt === 2 || !(await this.removeStaleCopy())) {
        const existing = await this.findEqualFile(name, checksum);
        if (existing) return existing;
        throw new TapeError(
          'POLICY',
          `another file exists at ${recall.mountpoint}${recall.path}, and Tapegate does not replace it`,
        );
      }
    }
  }

  private async keepExisting(existing: BigIntStats, sums: Sums): Promise<RecallOutcome> {
    const { recall } = this;
    const { mtimeNs, ctimeNs } = storedStats(existing);
    const isUnseen = !(await this.discard());
    this.work.ctx.log.warn(
      { path: recall.logicalPath },
      `${recall.mountpoint}${recall.path} has the same bytes, but Tapegate did not write it; keeping it`,
    );
    return { fileId: recall.fileId, kind: 'standing', ...sums, mtimeNs, ctimeNs, isUnseen };
  }

  /**
   * Never rejects: the copy is in place, and a retry after an error would find it there.
   * @returns null if it cannot be read: then the checksum identifies the copy
   */
  private async readChangeTime(ino: bigint): Promise<bigint | null> {
    try {
      const inPlace = await this.onDisk(() => statIn(this.directory, path.basename(this.recall.path)));
      const stored = inPlace && storedStats(inPlace);
      return stored?.ino === ino ? stored.ctimeNs : null;
    } catch {
      return null;
    }
  }

  /** Removes an earlier attempt's copy whose end was not recorded. @returns whether nothing is in place now */
  private async removeStaleCopy(): Promise<boolean> {
    for (const stale of await readStaleFilesOn(this.work.ctx, this.recall)) {
      if (stale.ino === null || stale.path !== this.recall.path) continue; // its file was renamed since
      const isRemoved = await this.onDisk(async (tick) => {
        const found = await recogniseCopy(stale, tick);
        return found !== 'changed' && (await removeCopy(stale, found));
      });
      if (isRemoved) return true;
    }
    return false;
  }

  /**
   * Returns the file in place if it has the copy's bytes, and the same users may read it. Reads it completely.
   * @throws the disk's error, also if the file disappears meanwhile
   */
  private async findEqualFile(name: string, checksum: string): Promise<BigIntStats | undefined> {
    const { directory, partial } = this;
    const existing = await this.onDisk(() => statIn(directory, name));
    const copy = await this.onDisk(() => statIn(directory, partial));
    if (!existing?.isFile() || !copy || existing.size !== copy.size) return undefined;
    if (!hasReadersOf(existing, copy)) return undefined;
    const read = (file: string, like: string) =>
      this.onDisk((tick) => checksumOf(path.join(directory.fdPath, file), like, tick));
    if ((await read(name, checksum)) !== checksum) return undefined;
    // Adler-32 detects tape errors, but cannot prove that two files are equal
    const isEqual =
      !checksum.startsWith('adler32:') || (await read(name, 'sha256')) === (await read(partial, 'sha256'));
    return isEqual ? existing : undefined;
  }

  /** Makes a followed call on the copy's disk. */
  private onDisk<T>(call: (tick: () => void) => Promise<T>): Promise<T> {
    return callDisk(this.work.lease.calls, this.recall, async (tick) => {
      try {
        return await call(tick);
      } catch (error) {
        throw nameDirectory(error, this.directory);
      }
    });
  }

  /** @returns whether the partial file is gone */
  private async discard(): Promise<boolean> {
    return await this.onDisk(() => this.file.discard()).catch(() => false); // the disk hangs
  }

  /** @returns the error to throw */
  private async giveUp(error: unknown): Promise<unknown> {
    const isGone = await this.discard();
    return isGone || error instanceof UnseenError ? error : new UnseenError(messageOf(error), { cause: error });
  }
}

function describeDifference(recall: RunningRecall, { kind, found, expected }: Mismatch): string {
  const has = kind === 'size' ? `${found} bytes` : `checksum ${found}`;
  const source = kind === 'checksum' && recall.isChecksumTaken ? 'its first restore computed' : 'the catalogue says';
  return `the tape copy has ${has}, and ${source} ${expected}: ${recall.logicalPath}`;
}

/** Whether the users who may read the copy may read the existing file as well. */
function hasReadersOf(existing: BigIntStats, copy: BigIntStats): boolean {
  const readers = copy.mode & 0o444n;
  const isWorldReadable = (copy.mode & 0o004n) !== 0n;
  if ((existing.mode & readers) !== readers) return false;
  return isWorldReadable || (existing.uid === copy.uid && existing.gid === copy.gid);
}
