/** Examines copies that were changed outside Tapegate. */
import type { Context } from '../../domain/context.js';
import { type ChangedCopy, type ExaminedCopy, readChanged, settleChanged } from '../../domain/disks/removals.js';
import { pagesByFile } from '../../domain/page-keys.js';
import { FailingDisks } from '../failures.js';
import { removeEmptyDirectories } from '../made-directories.js';
import { findStats, matchesTimes, readChecksum } from './copy.js';
import { callEach } from './removal.js';

/**
 * Checks the changed copies of files that requests need. If a changed copy still contains the bytes of the tape copy,
 * the file counts as restored. Otherwise, the file is recalled again.
 */
export async function checkChangedCopies(
  ctx: Context,
  stop: AbortSignal,
  disks = new FailingDisks(ctx),
): Promise<void> {
  for await (const copies of pagesByFile((page) => readChanged(ctx, { isWanted: true, ...page }))) {
    if (stop.aborted) return;
    const examined = await callEach(ctx, disks, { copies, what: 'check' }, (copy, tick) =>
      examineChangedCopy(ctx, copy, tick),
    );
    const pick = (state: State) => examined.flatMap(({ copy, result }) => (result === state ? [copy.fileId] : []));
    await settleChanged(ctx, { existing: pick('existing'), changed: pick('changed'), gone: pick('gone') });
  }
}

type State = 'existing' | 'changed' | 'gone';

/**
 * Examines a changed copy. If the copy no longer exists, removes its empty directories, because no other job removes
 * them. Compares the bytes only if Tapegate did not write the copy, and the copy's times differ from the record. If the
 * recorded checksum is an Adler-32, a copy with different times counts as changed, because equal Adler-32 checksums do
 * not prove equal bytes.
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
 * Returns whether there is a regular file at the copy's path.
 * @throws TapeError TRANSIENT if the disk is unavailable
 */
export async function isInPlace(copy: ChangedCopy): Promise<boolean> {
  return (await findStats(copy))?.isFile() ?? false;
}
