/**
 * Recovers recalls of a drive's earlier holder. Partial files are removed first, so that a stalled engine cannot put
 * them in place any more. Then recorded copies in place count as restored, and the other recalls are queued again.
 * Disks that cannot be examined now are left to a later job (engine/disk/removal.ts).
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

/** Ends the recalls that earlier holders left running. A recall whose copy cannot be examined is queued again. */
export async function cleanUp(ctx: Context, lease: HeldLease, disks: FailingDisks): Promise<void> {
  const before = await readLeftBehind(ctx, lease);
  const looks = new Looks(ctx, lease, { disks, left: before });
  const cleared = new Set<bigint>();
  for (const recall of before) {
    const name = partialName({ ...lease, ...recall });
    if (await looks.take(recall, () => removePartial(recall, name))) cleared.add(recall.fileId);
  }
  // read again: no copy can be put in place from here on, and all earlier ones are recorded
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
 * Ends all recalls together, or else one by one, so that a failed one delays neither the others nor the drive. The
 * doctor reports it, and the next claim tries again. @returns the number of failures
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

/** Examines disks, but skips a disk once it has failed, so that the drive can start work. */
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

  /** Removes empty directories that were created for a recall. @returns false if the disk cannot be examined */
  async tidy(recall: LeftBehind): Promise<boolean> {
    if (this.failing.has(recall.diskId)) return false;
    try {
      await ofDisk(this.lease.calls, recall, () => removeEmptyFolders(recall));
      return true;
    } catch (error) {
      if (error instanceof UnavailableError) throw error;
      this.ctx.log.error({ path: recall.path }, `the folders of a dead engine cannot be tidied: ${messageOf(error)}`);
      return false;
    }
  }

  /** @returns the result; undefined if the disk cannot be examined */
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

/** Finds a copy that was put in place just before its engine died: otherwise it would stay forever. */
async function findFinished(left: LeftBehind, tick: () => void): Promise<RecallOutcome | undefined> {
  const { fileId, ino, mtimeNs, checksum } = left;
  if (ino === null || mtimeNs === null) return undefined;
  try {
    return await withCopy(left, async (file, folder) => {
      const stats = await lstat(file, { bigint: true });
      if (!isKnownBy({ ...left, ctimeNs: null, copyChecksum: null }, stats)) return undefined;
      if (checksum !== null && (await checksumOf(file, checksum, tick)) !== checksum) return undefined;
      await folder.handle.sync(); // the dead engine may not have synced the directory
      return { fileId, kind: 'restored', ino, mtimeNs, ctimeNs: stats.ctimeNs, checksum };
    });
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
