/**
 * Puts in order what an earlier holder of a drive left. Partial files go first, so that one that only slept cannot put
 * a file in place any more; what is in place by then is taken as restored, and the rest is queued again.
 */
import { lstat } from 'node:fs/promises';
import type { Context } from '../../context.js';
import { codeOf, messageOf } from '../../errors.js';
import type { RecallOutcome } from '../../operations/recalls/ends.js';
import { endLeftBehind, type LeftBehind, readLeftBehind } from '../../operations/recalls/repair.js';
import { secondsOf } from '../../time.js';
import { checksumOf } from '../checksum.js';
import { type FailingDisks, ofDisk } from '../disk/failures.js';
import { partialName, removePartial } from '../disk/partial-file.js';
import { withCopy } from '../disk/restore-area.js';
import type { HeldLease } from './lease.js';

/** Ends what earlier holders of the lease's drive left running. A copy that cannot be looked at goes back into the queue. */
export async function cleanUp(ctx: Context, lease: HeldLease, disks: FailingDisks): Promise<void> {
  const left = await readLeftBehind(ctx, lease);
  const failing = new Set(left.filter((recall) => recall.isFailing).map((recall) => recall.diskId));
  const ended: { epoch: bigint; outcome: RecallOutcome }[] = [];
  for (const recall of left) {
    let outcome: RecallOutcome = { fileId: recall.fileId, kind: 'returned' };
    try {
      if (!failing.has(recall.diskId)) outcome = (await ofDisk(findLeft(lease, recall))) ?? outcome;
    } catch (error) {
      // a disk that is away or read-only must not keep the drive from working
      if ((await disks.blame(recall, error)) !== undefined) failing.add(recall.diskId);
      else ctx.log.error({ path: recall.path }, `what a dead engine left cannot be looked at: ${messageOf(error)}`);
    }
    ended.push({ epoch: recall.epoch, outcome });
  }
  await endLeftBehind(ctx, lease, ended);
  if (left.length === 0) return;
  ctx.log.warn({ drive: lease.driveName, count: left.length }, 'recalls of an engine that is gone are put in order');
}

async function findLeft(lease: HeldLease, recall: LeftBehind): Promise<RecallOutcome | undefined> {
  await removePartial(recall, partialName({ ...lease, ...recall }));
  return await findFinished(recall);
}

/**
 * The file may have been put in place just before its engine died. Queued again it might be put on another disk, or nobody
 * might wait for it any more, and what stands here would stay for ever.
 */
async function findFinished(left: LeftBehind): Promise<RecallOutcome | undefined> {
  try {
    return await withCopy(left, async (file, folder) => {
      const stats = await lstat(file, { bigint: true });
      if (!stats.isFile() || stats.size !== left.size || !(await isOurs(left, file, stats.mtimeNs))) return undefined;
      await folder.handle.sync(); // its engine may not have come to that
      return { fileId: left.fileId, kind: 'restored', mtimeNs: stats.mtimeNs };
    });
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

/** File systems date a file by a clock that may be a little behind. */
const CLOCK_SECONDS = 1;

/** Without a checksum the time tells: what stood there before the recall began is somebody else's. */
async function isOurs(left: LeftBehind, file: string, mtimeNs: bigint): Promise<boolean> {
  if (left.checksum !== null) return (await checksumOf(file, left.checksum)) === left.checksum;
  return Number(mtimeNs) / 1e9 >= secondsOf(left.startedAt) - CLOCK_SECONDS;
}
