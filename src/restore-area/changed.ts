/**
 * Examines copies that were changed outside Tapegate: such a file counts as on disk only while its copy exists. A copy
 * that cannot be examined now delays no other, and is tried again by a later job.
 */
import type { Context } from '../domain/context.js';
import { type ChangedCopy, type ExaminedCopy, readChanged, settleChanged } from '../domain/disks/removals.js';
import { pagesByFile } from '../domain/page-keys.js';
import { findStats, matchesTimes, readChecksum } from './copy.js';
import { FailingDisks } from './failures.js';
import { removeEmptyDirectories } from './made-directories.js';
import { callEach } from './removal.js';

/** Checks changed copies that requests need. A file with the bytes on tape satisfies them; otherwise it is recalled. */
export async function checkChangedCopies(
  ctx: Context,
  stop: AbortSignal,
  disks = new FailingDisks(ctx),
): Promise<void> {
  for await (const copies of pagesByFile((page) => readChanged(ctx, { isWanted: true, ...page }))) {
    if (stop.aborted) return;
    const examined = await callEach(ctx, disks, { copies, what: 'looked at' }, (copy, tick) =>
      examineChangedCopy(ctx, copy, tick),
    );
    const pick = (state: State) => examined.flatMap(({ copy, result }) => (result === state ? [copy.fileId] : []));
    await settleChanged(ctx, { standing: pick('standing'), changed: pick('changed'), gone: pick('gone') });
  }
}

type State = 'standing' | 'changed' | 'gone';

/**
 * Examines a copy. If it is gone, removes its empty directories, because no later job would. A file that stands for the
 * copy may be changed at any time: if its times are others, its bytes are compared. Adler-32 cannot prove them equal.
 */
async function examineChangedCopy(ctx: Context, copy: ExaminedCopy, tick: () => void): Promise<State> {
  const stats = await findStats(copy);
  if (!stats?.isFile()) {
    await removeEmptyDirectories(ctx, copy);
    return 'gone';
  }
  const { copyChecksum: expected } = copy;
  if (!copy.isStanding || stats.size !== copy.size || expected === null) return 'changed';
  if (matchesTimes({ ...copy, ino: null }, stats)) return 'standing';
  return !expected.startsWith('adler32:') && (await readChecksum(copy, expected, tick)) === expected
    ? 'standing'
    : 'changed';
}

/**
 * Whether a regular file is in the copy's place. @throws TapeError TRANSIENT if the disk, and so the copy, is absent
 */
export async function isInPlace(copy: ChangedCopy): Promise<boolean> {
  return (await findStats(copy))?.isFile() ?? false;
}
