/**
 * Adopts unrecorded files that have the same bytes as the expected copy. Unrecorded files might belong to users, so
 * they are adopted only if the operator requests the adoption.
 */

import { messageOf } from '../../core/errors.js';
import type { Context } from '../../domain/context.js';
import type { Finding } from '../../domain/doctor/findings.js';
import { type Adoption, adoptCopies, readStanding } from '../../domain/doctor/recorded-copies.js';
import { pagesByFile } from '../../domain/page-keys.js';
import { checksumOf } from '../../restore-area/checksum.js';
import { statCopy, storedStats } from '../../restore-area/copies/copy.js';
import { isSame } from '../../restore-area/entry.js';
import { type CopyLocation, withCopy } from '../../restore-area/restore-area.js';
import type { Examination } from './examination.js';

/** Reports files on disk that satisfied requests although Tapegate did not write the files. */
export async function* examineStanding(ctx: Context, exam: Examination): AsyncGenerator<Finding> {
  for await (const copies of pagesByFile((page) => readStanding(ctx, page))) {
    for (const copy of copies.filter(({ diskId }) => !exam.unavailable.has(diskId))) {
      const [object, expected] = [copy.mountpoint + copy.path, 'a copy that Tapegate wrote'];
      try {
        const stats = await statCopy(copy);
        if (!stats?.isFile()) continue; // skip missing files, because another check reports them
        const isRepaired = exam.adopt === true && (await adoptFile(ctx, copy));
        yield {
          kind: 'copy-not-ours',
          object,
          expected,
          found: `a file of unknown origin (${stats.size} bytes)`,
          isRepaired,
        };
      } catch (error) {
        yield { kind: 'copy-unreadable', object, expected, found: messageOf(error), isRepaired: false };
      }
    }
  }
}

export type AdoptableFile = CopyLocation & {
  fileId: bigint;
  size: bigint;
  checksum: string | null;
  /** Version (`xmin`) of the file's row in the database. */
  version: string;
};

/**
 * Adopts the file on disk as Tapegate's copy.
 * @returns false if the file's bytes differ from the expected bytes or cannot be compared
 */
export async function adoptFile(ctx: Context, file: AdoptableFile): Promise<boolean> {
  const found = await readFileIdentity(file);
  return found !== undefined && (await adoptCopies(ctx, [found])).length === 1;
}

async function readFileIdentity(file: AdoptableFile): Promise<Adoption | undefined> {
  const { fileId, diskId, version, checksum } = file;
  const before = await statCopy(file);
  if (checksum === null || !before?.isFile() || before.size !== file.size) return undefined;
  const read = await withCopy(file, (opened) => checksumOf(opened, checksum));
  const after = await statCopy(file);
  if (read !== checksum || !after || !isSame(after, before)) return undefined;
  return { fileId, diskId, version, checksum, ...storedStats(after) };
}
