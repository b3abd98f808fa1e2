/**
 * Puts in order what an earlier holder of a drive left. Partial files go first, so that one that only slept cannot put
 * a file in place any more; what is in place by then, and was noted before, is taken as restored, and the rest is queued
 * again. What cannot be looked at now is noted, and left to a pass (engine/disk/removal.ts).
 */
import { lstat } from 'node:fs/promises';
import type { Context } from '../../context.js';
import { codeOf, logFailure, messageOf, UnavailableError } from '../../errors.js';
import type { RecallOutcome } from '../../operations/recalls/ends.js';
import { type EndedRecall, endLeftBehind, type LeftBehind, readLeftBehind } from '../../operations/recalls/ends.js';
import { checksumOf } from '../checksum.js';
import { isKnownBy } from '../disk/copy.js';
import { type FailingDisks, ofDisk } from '../disk/failures.js';
import { removeEmptyFolders } from '../disk/made-folders.js';
import { partialName, removePartial } from '../disk/partial-file.js';
import { withCopy } from '../disk/restore-area.js';
import type { HeldLease } from './lease.js';

/** Ends what earlier holders of the lease's drive left running. A copy that cannot be looked at goes back into the queue. */
export async function cleanUp(ctx: Context, lease: HeldLease, disks: FailingDisks): Promise<void> {
  const before = await readLeftBehind(ctx, lease);
  const looks = new Looks(ctx, lease, { disks, left: before });
  const cleared = new Set<bigint>();
  for (const recall of before) {
    const name = partialName({ ...lease, ...recall });
    if (await looks.take(recall, () => removePartial(recall, name))) cleared.add(recall.fileId);
  }
  // read again: from here on nothing is put in place any more, and whatever was is noted
  const left = await readLeftBehind(ctx, lease);
  const ended: EndedRecall[] = [];
  for (const recall of left) {
    const look = await looks.take(recall, (tick) => findFinished(recall, tick));
    const isSeen = look !== undefined && cleared.has(recall.fileId);
    const isUnseen = !isSeen || (!look.found && !(await looks.tidy(recall)));
    const outcome = look?.found ?? { fileId: recall.fileId, kind: 'returned', isUnseen };
    ended.push({ epoch: recall.epoch, outcome });
  }
  const failed = await endEach(ctx, lease, ended);
  const count = left.length - failed;
  if (count > 0) ctx.log.warn({ drive: lease.driveName, count }, 'recalls of an engine that is gone are put in order');
}

/**
 * All together, or one by one where that fails: a recall of which nobody can write how it ended keeps neither the others nor
 * the drive. It stays as it is, which the doctor tells, and is tried again whenever the drive is claimed.
 * @returns how many failed
 */
async function endEach(ctx: Context, lease: HeldLease, ended: readonly EndedRecall[]): Promise<number> {
  try {
    await endLeftBehind(ctx, lease, ended);
    return 0;
  } catch (error) {
    if (error instanceof UnavailableError) throw error;
    if (ended.length === 1) {
      logFailure(
        ctx.log,
        error,
        `a recall of an engine that is gone cannot be put in order: file ${ended[0]?.outcome.fileId}`,
      );
      return 1;
    }
  }
  let failed = 0;
  for (const recall of ended) failed += await endEach(ctx, lease, [recall]);
  return failed;
}

/** Looks at disks, and not any more at one that fails: it must not keep the drive from working. */
class Looks {
  private readonly ctx: Context;
  private readonly lease: HeldLease;
  private readonly disks: FailingDisks;
  private readonly failing: Set<number>;

  constructor(ctx: Context, lease: HeldLease, { disks, left }: { disks: FailingDisks; left: readonly LeftBehind[] }) {
    this.ctx = ctx;
    this.lease = lease;
    this.disks = disks;
    this.failing = new Set(left.filter((recall) => recall.isFailing).map((recall) => recall.diskId));
  }

  /** Removes the folders that were made for a recall to which nothing came. @returns false where they cannot be looked at */
  async tidy(recall: LeftBehind): Promise<boolean> {
    if (this.failing.has(recall.diskId)) return false;
    try {
      await removeEmptyFolders(this.ctx, recall, (call) => ofDisk(this.lease.calls, recall, call));
      return true;
    } catch (error) {
      if (error instanceof UnavailableError) throw error;
      this.ctx.log.error({ path: recall.path }, `the folders of a dead engine cannot be tidied: ${messageOf(error)}`);
      return false;
    }
  }

  /** @returns what was found; undefined where it cannot be looked at */
  async take<T>(recall: LeftBehind, look: (tick: () => void) => Promise<T>): Promise<{ found: T } | undefined> {
    if (this.failing.has(recall.diskId)) return undefined;
    try {
      return { found: await ofDisk(this.lease.calls, recall, look) };
    } catch (error) {
      if ((await this.disks.blame(recall, error)) !== undefined) this.failing.add(recall.diskId);
      else
        this.ctx.log.error({ path: recall.path }, `what a dead engine left cannot be looked at: ${messageOf(error)}`);
      return undefined;
    }
  }
}

/**
 * The file may have been put in place just before its engine died. Queued again it might be put on another disk, or nobody
 * might wait for it any more, and what stands here would stay for ever. What was not noted is somebody else's.
 */
async function findFinished(left: LeftBehind, tick: () => void): Promise<RecallOutcome | undefined> {
  const { fileId, ino, mtimeNs, checksum } = left;
  if (ino === null || mtimeNs === null) return undefined;
  try {
    return await withCopy(left, async (file, folder) => {
      const stats = await lstat(file, { bigint: true });
      if (!isKnownBy({ ...left, ctimeNs: null, copyChecksum: null }, stats)) return undefined;
      if (checksum !== null && (await checksumOf(file, checksum, tick)) !== checksum) return undefined;
      await folder.handle.sync(); // its engine may not have come to that
      return { fileId, kind: 'restored', ino, mtimeNs, ctimeNs: stats.ctimeNs, checksum };
    });
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
