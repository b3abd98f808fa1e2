/**
 * Examines copies that were changed outside Tapegate. The file of such a copy counts as on disk only while the copy
 * exists. A copy that cannot be examined delays no other copy, and a later job tries again.
 */
import type { Context } from '../../domain/context.js';
import { type ChangedCopy, type ExaminedCopy, readChanged, settleChanged } from '../../domain/disks/removals.js';
import { pagesByFile } from '../../domain/page-keys.js';
import { FailingDisks } from '../failures.js';
import { removeEmptyDirectories } from '../made-directories.js';
import { findStats, matchesTimes, readChecksum } from './copy.js';
import { callEach } from './removal.js';

/**
 * Checks changed copies that requests need. A copy with the bytes on tape satisfies the requests. Without such a copy,
 * the file is recalled.
 */
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
    await settleChanged(ctx, { existing: pick('existing'), changed: pick('changed'), gone: pick('gone') });
  }
}

type State = 'existing' | 'changed' | 'gone';

/**
 * Examines a changed copy. If the copy no longer exists, removes its empty directories, because no later job would. A
 * file that Tapegate did not write may be changed at any time, so its bytes are compared if its times differ. Equal
 * Adler-32 checksums do not prove that the bytes are equal.
 */
async function examineChangedCopy(ctx: Context, copy: ExaminedCopy, tick: () => void): Promise<State> {
  const stats = await findStats(copy);
  if (!stats?.isFile()) {
    await removeEmptyDirectories(ctx, copy);
    return 'gone';
  }
  const { copyChecksum: expected } = copy;
  if (!copy.isForeign || stats.size !== copy.size || expected === null) return 'changed';
  if (matchesTimes({ ...copy, ino: null }, stats)) return 'existing';
  return !expected.startsWith('adler32:') && (await readChecksum(copy, expected, tick)) === expected
    ? 'existing'
    : 'changed';
}

/**
 * Returns whether a regular file is at the copy's path.
 * @throws TapeError TRANSIENT if the disk is unavailable
 */
export async function isInPlace(copy: ChangedCopy): Promise<boolean> {
  return (await findStats(copy))?.isFile() ?? false;
}
