/**
 * Examines copies that were changed outside Tapegate: such a file counts as on disk only while its copy exists. A copy
 * that cannot be examined now delays no other, and is tried again by a later job.
 */
import type { Context } from '../../context.js';
import { messageOf, TapeError, UnavailableError } from '../../errors.js';
import { type ChangedCopy, readChanged, settleChanged } from '../../operations/disks/removals.js';
import { lookAt } from './copy.js';
import { FailingDisks, ofDisk } from './failures.js';
import { removeEmptyFolders } from './made-folders.js';

const PAGE = 200;

/** For copies that requests need: records an existing one as on disk, or recalls the file. */
export async function lookForChanged(ctx: Context, stop: AbortSignal, disks = new FailingDisks(ctx)): Promise<void> {
  for (let after = 0n; !stop.aborted; ) {
    const copies = await readChanged(ctx, { isWanted: true, after, limit: PAGE });
    const states = await Promise.all(copies.map((copy) => lookFor(ctx, disks, copy)));
    const pick = (wanted: string) => copies.filter((_, n) => states[n] === wanted).map(({ fileId }) => fileId);
    await settleChanged(ctx, { there: pick('there'), gone: pick('gone') });
    if (copies.length < PAGE) return;
    after = copies.at(-1)?.fileId ?? after;
  }
}

/** Examines a copy. If it is gone, removes its empty directories, because no later job would. */
async function lookFor(ctx: Context, disks: FailingDisks, copy: ChangedCopy): Promise<'there' | 'gone' | 'unknown'> {
  try {
    if (await ofDisk(disks.calls, copy, () => isThere(copy))) return 'there';
    await ofDisk(disks.calls, copy, () => removeEmptyFolders(copy));
    return 'gone';
  } catch (error) {
    if (error instanceof UnavailableError) throw error;
    if ((await disks.blame(copy, error)) !== undefined) return 'unknown'; // which is logged once
    ctx.log.error({ path: copy.path }, `a copy that was changed by hand cannot be looked at: ${messageOf(error)}`);
    return 'unknown';
  }
}

/**
 * Whether a regular file is in the copy's place. @throws TapeError TRANSIENT if the disk, and so the copy, is absent
 */
export async function isThere(copy: ChangedCopy): Promise<boolean> {
  try {
    return (await lookAt(copy))?.isFile() ?? false;
  } catch (error) {
    if (error instanceof TapeError && error.errorClass === 'POLICY') return false; // something replaced its directory
    throw error;
  }
}
