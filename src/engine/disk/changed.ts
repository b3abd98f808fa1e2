/**
 * Looks for copies that were changed by hand: their files count as on disk only while these are there. A copy that cannot
 * be looked at now holds up nothing else, and is looked for again by a later pass.
 */
import type { Context } from '../../context.js';
import { messageOf, TapeError, UnavailableError } from '../../errors.js';
import { type ChangedCopy, readChanged, settleChanged } from '../../operations/disks/removals.js';
import { lookAt } from './copy.js';
import { FailingDisks, ofDisk } from './failures.js';
import { removeEmptyFolders } from './made-folders.js';

const PAGE = 200;

/** Those that requests wait for are taken as there, or have their files recalled. */
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

/** The folders of one that has gone go as well, as far as they are empty: nobody would come back to them. */
async function lookFor(ctx: Context, disks: FailingDisks, copy: ChangedCopy): Promise<'there' | 'gone' | 'unknown'> {
  try {
    if (await ofDisk(disks.calls, copy, () => isThere(copy))) return 'there';
    await removeEmptyFolders(ctx, copy, (call) => ofDisk(disks.calls, copy, call));
    return 'gone';
  } catch (error) {
    if (error instanceof UnavailableError) throw error;
    if ((await disks.blame(copy, error)) !== undefined) return 'unknown'; // which is told once
    ctx.log.error({ path: copy.path }, `a copy that was changed by hand cannot be looked at: ${messageOf(error)}`);
    return 'unknown';
  }
}

/**
 * Is there a plain file in the place of the copy, whatever its bytes?
 * @throws TapeError TRANSIENT when the disk is not there: the copy will be there again when the disk is
 */
export async function isThere(copy: ChangedCopy): Promise<boolean> {
  try {
    return (await lookAt(copy))?.isFile() ?? false;
  } catch (error) {
    if (error instanceof TapeError && error.errorClass === 'POLICY') return false; // something has taken the place of its folder
    throw error;
  }
}
