/**
 * Examines copies that were changed outside Tapegate: such a file counts as on disk only while its copy exists. A copy
 * that cannot be examined now delays no other, and is tried again by a later job.
 */
import type { Context } from '../domain/context.js';
import { type ChangedCopy, type ExaminedCopy, readChanged, settleChanged } from '../domain/disks/removals.js';
import { pagesByFile } from '../domain/page-keys.js';
import { findStats, isKnownByTimes, readChecksum } from './copy.js';
import { FailingDisks } from './failures.js';
import { removeEmptyFolders } from './made-folders.js';
import { eachOf } from './removal.js';

/** For copies that requests need: another file with the bytes on tape satisfies them; else the file is recalled. */
export async function lookForChanged(ctx: Context, stop: AbortSignal, disks = new FailingDisks(ctx)): Promise<void> {
  for await (const copies of pagesByFile((page) => readChanged(ctx, { isWanted: true, ...page }))) {
    if (stop.aborted) return;
    const looks = await eachOf(ctx, disks, { copies, what: 'looked at' }, (copy, tick) => lookFor(ctx, copy, tick));
    const pick = (state: State) => looks.flatMap(({ copy, result }) => (result === state ? [copy.fileId] : []));
    await settleChanged(ctx, { standing: pick('standing'), changed: pick('changed'), gone: pick('gone') });
  }
}

type State = 'standing' | 'changed' | 'gone';

/**
 * Examines a copy. If it is gone, removes its empty directories, because no later job would. A file that stands for the
 * copy may be changed at any time: if its times are others, its bytes are compared. Adler-32 cannot prove them equal.
 */
async function lookFor(ctx: Context, copy: ExaminedCopy, tick: () => void): Promise<State> {
  const stats = await findStats(copy);
  if (!stats?.isFile()) {
    await removeEmptyFolders(ctx, copy);
    return 'gone';
  }
  const { copyChecksum: due } = copy;
  if (!copy.isStanding || stats.size !== copy.size || due === null) return 'changed';
  if (isKnownByTimes({ ...copy, ino: null }, stats)) return 'standing';
  return !due.startsWith('adler32:') && (await readChecksum(copy, due, tick)) === due ? 'standing' : 'changed';
}

/**
 * Whether a regular file is in the copy's place. @throws TapeError TRANSIENT if the disk, and so the copy, is absent
 */
export async function isThere(copy: ChangedCopy): Promise<boolean> {
  return (await findStats(copy))?.isFile() ?? false;
}
