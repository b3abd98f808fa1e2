/**
 * Recalls a batch of files from a mounted volume. Reads the next file while earlier files are still being written and
 * synced.
 *
 * Each recall runs the following steps in order. `open` opens a partial file in the copy's directory. `read` reads,
 * checksums and writes the file in one pass. `sync` syncs the partial file. `confirm` records the copy's inode and
 * mtime in the database, and confirms the lease. `place` puts the copy in place without replacing another file.
 * `BatchRun.settle` syncs the directory and its parents, and reports the outcome.
 *
 * If the engine is killed, the recall stays RUNNING in the database. The engine that claims the drive next
 * (stale-files.ts) removes the partial file and requeues the recall.
 *
 * A recall never replaces an unrecorded file at the copy's path, because the file might belong to a user. An unrecorded
 * file with the same bytes as the tape copy satisfies the recall.
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
import { putInPlace, recogniseCopy, removeCopy, statIn, storedStats } from '../../restore-area/copies/copy.js';
import { callDisk, type FailingDisks, FullError } from '../../restore-area/failures.js';
import type { LinkKeeper } from '../../restore-area/links/keeper.js';
import { OpenDirectories } from '../../restore-area/made-directories.js';
import { type Budget, PartialFile, partialName } from '../../restore-area/partial-file.js';
import { type Directory, nameDirectory } from '../../restore-area/restore-area.js';
import { type MountedVolume, VolumeError } from '../../tape/drive-library.js';
import { NotReadyError, RetryLaterError } from '../../tape/staging.js';
import { Confirmations, type HeldLease, NotHeldError } from './lease.js';
import { markTapeFault, outcomeOf, toNotReady, toPostponed, toReturned, toUnplaced, UnseenError } from './outcomes.js';
import { Remains } from './remains.js';
import { PostponedError } from './retry.js';

export interface Batch {
  recalls: readonly RunningRecall[];
  /** Time, by the monotonic clock, just before disks were assigned to the batch's files. */
  since: number;
  traces?: ReadonlyMap<bigint, string> | undefined;
  /** One abort signal for each recall. A recall's signal aborts when the recall or all work on the drive must stop. */
  signals: readonly AbortSignal[];
  signal: AbortSignal;
  end(): void;
}

interface BatchWork {
  batch: Batch;
  /** Callback that receives the outcomes of recalls, in one or several calls. The callback must not block. */
  report: (outcomes: RecallOutcome[]) => void;
  /** Limits the number of bytes that the drive has read but not yet written to disk. */
  budget: Budget;
  disks: FailingDisks;
  links: LinkKeeper;
  /** Name of the volume or staging library from which the files are read. */
  name: string;
}

/**
 * Reads a batch's files in order, and reports one outcome per recall. If a recall's signal aborts, the recall gets the
 * outcome `returned`.
 *
 * The returned promise settles when all files are read. The caller must await `written`, which settles when all
 * outcomes are reported, and rejects if some recalls have no outcome. If an error makes the volume unreadable
 * (`failure`), unread files get the outcome `returned`.
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
  /**
   * One promise for each copy. The promise never rejects, and settles when the copy is in place or the recall has
   * failed.
   */
  private readonly finishing: Promise<void>[] = [];
  private readonly timer: NodeJS.Timeout;
  private ended: EndedRecall[] = [];
  /** Settles when all outcomes queued so far are reported. After a failed report, no further outcomes are reported. */
  private reporting = Promise.resolve();
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
      this.reporting.catch(() => {}); // ignore a failed report here, because `finish` throws the error
    }, REPORT_MS);
  }

  async read(): Promise<void> {
    const { recalls, signals } = this.work.batch;
    for (const [index, recall] of recalls.entries()) await this.readOne(recall, signals[index] ?? this.lease.signal);
  }

  /** Reads one file. Never rejects, so that a bad file does not delay other files. */
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
   * Syncs the directories of ended recalls and returns the recalls' outcomes. If a sync fails, a crash might lose the
   * copy, so the outcome is marked as uncertain (`isUnseen`). Never rejects.
   */
  private async settle(ended: readonly EndedRecall[]): Promise<RecallOutcome[]> {
    const failureOf = await this.directories.sync();
    const removeRemains = this.remains.createRemover();
    const judgeOne = async ({ recall, signal, outcome }: EndedRecall) => {
      const { kind, isUnseen = false } = outcome;
      const isInPlace = kind === 'existing' || kind === 'restored';
      const isCleared = (isInPlace && !isUnseen) || (await removeRemains(recall, isUnseen));
      if (!isInPlace) return isCleared ? outcome : { ...outcome, isUnseen: true };
      if (outcome.kind === 'existing') return outcome;
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

  private async judge(recall: RunningRecall, thrown: unknown, signal: AbortSignal): Promise<RecallOutcome> {
    if (!(thrown instanceof UnseenError)) return await this.judgeReason(recall, thrown, signal);
    return { ...(await this.judgeReason(recall, thrown.cause, signal)), isUnseen: true };
  }

  private async judgeReason(recall: RunningRecall, error: unknown, signal: AbortSignal): Promise<RecallOutcome> {
    if (signal.aborted || error instanceof NotHeldError) return toReturned(recall);
    if (error instanceof UnavailableError) return toReturned(recall);
    // the library must stage the file again, and the drive can read other files in the meantime
    if (error instanceof NotReadyError && recall.attempts === 0) return toNotReady(recall, error);
    if (error instanceof PostponedError) return toPostponed(this.ctx, recall, error);
    if (error instanceof VolumeError) {
      this.failure = error;
      // postpone the file for longer than its volume, so that the drive reads other files first when it mounts the
      // volume again
      if (error instanceof RetryLaterError)
        return toPostponed(this.ctx, recall, new PostponedError(error.message, 2 * error.retryAfterSeconds));
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
      // take the ended recalls from the list before the sync, because the sync does not cover recalls that end later
      if (ended.length > 0) this.work.report(await this.settle(ended));
    });
  }

  /**
   * Waits until the last copy is in place and its outcome is reported. Closes the open directories, even after an
   * error.
   */
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

/** The copy that one recall writes. If a step fails, the partial file is removed. */
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
   * Opens the copy's directory and creates missing directories.
   * @throws NotHeldError if another engine holds the drive
   */
  static async open(work: CopyWork, recall: RunningRecall, budget: Budget): Promise<RecalledCopy> {
    // after a stall, create nothing on the disk, because another engine might already have recovered this recall
    const confirm = () => work.confirmations.confirmOpening();
    const directory = await work.directories.open(recall, confirm);
    await confirm();
    return new RecalledCopy(work, recall, directory, budget);
  }

  /**
   * Reads the whole file. When the returned promise settles, the last writes to disk might still be pending.
   * @throws TapeError MEDIA if the tape copy differs from the catalogue
   */
  async read(volume: MountedVolume, signal: AbortSignal): Promise<Sums> {
    const { recall } = this;
    let isDiskFault = false;
    try {
      return await this.work.lease.meter.read(recall.size, () =>
        readChecked(
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
        ),
      );
    } catch (error) {
      if (error instanceof TapeError && !isDiskFault) markTapeFault(error);
      throw await this.giveUp(error);
    }
  }

  async finish(sums: Sums): Promise<RecallOutcome> {
    try {
      const identity = await this.sync();
      await this.confirm(identity);
      return await this.place(identity, sums);
    } catch (error) {
      throw await this.giveUp(error);
    }
  }

  private async sync(): Promise<Identity> {
    return await this.onDisk(() => this.file.finish());
  }

  /**
   * Records the copy's inode and mtime, and confirms the lease. If this engine stalls and loses its lease, the drive's
   * next engine removes the partial file. The stalled engine then cannot put the copy in place.
   */
  private async confirm({ ino, mtimeNs }: Identity): Promise<void> {
    await this.work.confirmations.confirmPlacing({ fileId: this.recall.fileId, ino, mtimeNs });
  }

  private async place({ ino, mtimeNs }: Identity, sums: Sums): Promise<RecallOutcome> {
    const placed = await this.placeOrFindEqual(ino, sums.checksum);
    if (typeof placed !== 'string') return await this.keepExisting(placed, sums);
    // remove the partial file now: it is a second hard link to the copy, and no later job would find it
    const isUnseen = placed === 'unsure' && !(await this.discard());
    const ctimeNs = await this.readChangeTime(ino);
    return { fileId: this.recall.fileId, kind: 'restored', ino, mtimeNs, ctimeNs, ...sums, isUnseen };
  }

  /**
   * Puts the copy in place, or finds an unrecorded file with the same bytes at the copy's path.
   * @returns `placed`; `unsure` if the partial file might still exist; the stats if an unrecorded file has the same
   *   bytes
   * @throws TapeError POLICY if any other file is at the path
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
        // the copy is in place despite the error: a network file system lost the reply, or the partial file could not
        // be removed
        if (found && storedStats(found).ino === ino) return 'unsure';
        // a slow disk might still put the copy in place after the error
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
      `${recall.mountpoint}${recall.path} has the same bytes as the tape copy, but Tapegate did not write this file; keeping the file`,
    );
    return { fileId: recall.fileId, kind: 'existing', ...sums, mtimeNs, ctimeNs, isUnseen };
  }

  /**
   * Returns the copy's ctime, or null if the ctime cannot be read. Never rejects, because the copy is already in place,
   * and a retry of the recall would fail.
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

  /**
   * Removes a copy from an earlier recall whose outcome was not recorded.
   * @returns whether a copy was removed
   */
  private async removeStaleCopy(): Promise<boolean> {
    for (const stale of await readStaleFilesOn(this.work.ctx, this.recall)) {
      // the file was renamed after the earlier recall, so the copy is at another path
      if (stale.ino === null || stale.path !== this.recall.path) continue;
      const isRemoved = await this.onDisk(async (tick) => {
        const found = await recogniseCopy(stale, tick);
        return found !== 'changed' && (await removeCopy(stale, found));
      });
      if (isRemoved) return true;
    }
    return false;
  }

  /**
   * Reads an existing file. Returns the file's stats if its bytes equal the copy's bytes and the copy's users are
   * allowed to read the file.
   * @throws the disk's error, also if the existing file is removed during the read
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
    // equal Adler-32 checksums do not prove that two files are equal
    const isEqual =
      !checksum.startsWith('adler32:') || (await read(name, 'sha256')) === (await read(partial, 'sha256'));
    return isEqual ? existing : undefined;
  }

  private onDisk<T>(call: (tick: () => void) => Promise<T>): Promise<T> {
    return callDisk(this.work.lease.calls, this.recall, async (tick) => {
      try {
        return await call(tick);
      } catch (error) {
        throw nameDirectory(error, this.directory);
      }
    });
  }

  private async discard(): Promise<boolean> {
    return await this.onDisk(() => this.file.discard()).catch(() => false);
  }

  /** Removes the partial file after an error. @returns the error that the caller must throw */
  private async giveUp(error: unknown): Promise<unknown> {
    const isGone = await this.discard();
    return isGone || error instanceof UnseenError ? error : new UnseenError(messageOf(error), { cause: error });
  }
}

function describeDifference(recall: RunningRecall, { kind, found, expected }: Mismatch): string {
  const has = kind === 'size' ? `${found} bytes` : `checksum ${found}`;
  const source =
    kind === 'checksum' && recall.isChecksumTaken ? 'the first restore of the file computed' : 'the catalogue says';
  return `the tape copy has ${has}, but ${source} ${expected}: ${recall.logicalPath}`;
}

function hasReadersOf(existing: BigIntStats, copy: BigIntStats): boolean {
  const readers = copy.mode & 0o444n;
  const isWorldReadable = (copy.mode & 0o004n) !== 0n;
  if ((existing.mode & readers) !== readers) return false;
  return isWorldReadable || (existing.uid === copy.uid && existing.gid === copy.gid);
}
