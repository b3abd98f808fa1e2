/**
 * Removes what recalls may have left on disks where nobody could look then. Each step is repeatable; what cannot be
 * looked at is tried again by a later pass, and holds up nothing else.
 */
import type { Context } from '../../context.js';
import { messageOf } from '../../errors.js';
import { type LeftBehind, removeLeft } from '../../operations/disks/left-behind.js';
import { type CopyState, removeCopy } from './copy.js';
import { FailingDisks, ofDisk } from './failures.js';
import { partialName, removePartial } from './partial-file.js';

const PAGE = 200;

/** @returns of how many recalls nothing is left now */
export async function removeLeftBehind(
  ctx: Context,
  stop: AbortSignal,
  disks = new FailingDisks(ctx),
): Promise<number> {
  let count = 0;
  for (let after = 0n; !stop.aborted; ) {
    const page = await removeLeft(ctx, { after, limit: PAGE }, async (left) => {
      try {
        // first, so that an engine that only slept finds nothing any more that it could put in place
        await ofDisk(disks.calls, left, () => removePartial(left, partialName(left)));
        await ofDisk(disks.calls, left, () => removeLeftCopy(left));
        return true;
      } catch (error) {
        ctx.log.warn(
          { path: left.path },
          `what a recall left cannot be looked at; it is tried again: ${messageOf(error)}`,
        );
        return false;
      }
    });
    count += page.removed;
    if (page.seen < PAGE) break;
    after = page.last ?? after;
  }
  return count;
}

/**
 * Removes the copy that a recall may have put in place; anything else that stands there is left alone.
 * @returns what stood there
 * @throws TapeError TRANSIENT when the disk is not there
 */
export async function removeLeftCopy(left: LeftBehind): Promise<CopyState> {
  if (left.ino === null) return 'missing';
  return await removeCopy({ ...left, ctimeNs: null, copyChecksum: null });
}
