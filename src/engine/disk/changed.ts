/**
 * Examines copies that were changed outside Tapegate: such a file counts as on disk only while its copy exists. A copy
 * that cannot be examined now delays no other, and is tried again by a later job.
 */
import type { Context } from '../../context.js';
import { type ChangedCopy, readChanged, settleChanged } from '../../operations/disks/removals.js';
import { pagesByFile } from '../../operations/page-keys.js';
import { findStats } from './copy.js';
import { FailingDisks } from './failures.js';
import { removeEmptyFolders } from './made-folders.js';
import { eachOf } from './removal.js';

/** For copies that requests need: records an existing one as on disk, or recalls the file. */
export async function lookForChanged(ctx: Context, stop: AbortSignal, disks = new FailingDisks(ctx)): Promise<void> {
  for await (const copies of pagesByFile((page) => readChanged(ctx, { isWanted: true, ...page }))) {
    if (stop.aborted) return;
    const looks = await eachOf(ctx, disks, { copies, what: 'looked at' }, (copy) => lookFor(ctx, copy));
    const pick = (isWanted: boolean) => looks.flatMap(({ copy, result }) => (result === isWanted ? [copy.fileId] : []));
    await settleChanged(ctx, { there: pick(true), gone: pick(false) });
  }
}

/** Examines a copy. If it is gone, removes its empty directories, because no later job would. @returns whether it exists */
async function lookFor(ctx: Context, copy: ChangedCopy): Promise<boolean> {
  const exists = await isThere(copy);
  if (!exists) await removeEmptyFolders(ctx, copy);
  return exists;
}

/**
 * Whether a regular file is in the copy's place. @throws TapeError TRANSIENT if the disk, and so the copy, is absent
 */
export async function isThere(copy: ChangedCopy): Promise<boolean> {
  return (await findStats(copy))?.isFile() ?? false;
}
