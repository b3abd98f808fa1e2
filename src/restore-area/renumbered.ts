/**
 * Identifies the copies on a disk after the inode numbers of all files on the disk have changed. Inode numbers change
 * if a disk is copied to another file system, or if its file system renumbers inodes at each mount.
 *
 * A file with the size and times of a recorded copy counts as the copy, without a comparison of its bytes. If only the
 * ctime differs, Tapegate compares the copy's bytes with the recorded checksum, and records the new inode. A run
 * records its progress in the database. If the process is killed, the next run continues with the remaining copies.
 */
import { randomUUID } from 'node:crypto';
import { codeOf, TapeError } from '../core/errors.js';
import type { Context } from '../domain/context.js';
import type { RecordedCopy } from '../domain/disks/disk-copies.js';
import {
  adoptRenumbered,
  claimComparison,
  type KnownMarker,
  type Renumbered,
  readCopiesOn,
  readMarkers,
  recordCompared,
  recordMarker,
} from '../domain/disks/renumbered.js';
import { recogniseCopy, storedStats } from './copies/copy.js';
import { callEach } from './copies/removal.js';
import { callDisk, type FailingDisks } from './failures.js';
import { readMarkerId, rootOf } from './marker.js';
import { probeNames } from './setup.js';

const PAGE = 200;

/**
 * Approximate maximum number of bytes that a run compares. A run starts every minute, so an engine reads at most about
 * 100 MB/s on average.
 */
const RUN_BYTES = 6n * 10n ** 9n;

interface MatchRun {
  stop: AbortSignal;
  disks: FailingDisks;
  bytes: bigint;
}

export class Renumbering {
  private readonly owner = randomUUID();
  /**
   * Identifiers of the markers of checked disks, keyed by disk id. A disk is checked if all its copies have been
   * compared with their records. The identifiers are valid only on this host, because other hosts might see other inode
   * numbers.
   */
  private readonly known = new Map<number, string>();

  async run(ctx: Context, stop: AbortSignal, disks: FailingDisks): Promise<void> {
    const run: MatchRun = { stop, disks, bytes: 0n };
    for (const disk of await readMarkers(ctx)) {
      const now = await runOnDisk(disks, disk, readMarkerId);
      if (now === undefined || now === this.known.get(disk.diskId)) continue;
      const isKnown = now === disk.markerId || disk.markerId === null;
      if (!isKnown && !(await this.compare(ctx, disk, now, run))) continue;
      if (now !== disk.markerId) {
        await recordMarker(ctx, disk, now);
        await runOnDisk(disks, disk, (root) => probeNames(ctx, disk.diskId, root));
      }
      this.known.set(disk.diskId, now);
    }
  }

  /** @returns whether all copies on the disk have been compared with their records */
  private async compare(
    ctx: Context,
    { diskId, mountpoint }: KnownMarker,
    markerId: string,
    run: MatchRun,
  ): Promise<boolean> {
    const comparison = { diskId, markerId, owner: this.owner };
    let after = await claimComparison(ctx, comparison);
    for (let adopted = 0; after !== undefined && !run.stop.aborted && run.bytes < RUN_BYTES; ) {
      const page = await readCopiesOn(ctx, { diskId, after, limit: PAGE });
      const copies = limitBytes(page);
      const examined = await callEach(ctx, run.disks, { copies, what: 'compare' }, recogniseCopy);
      if (examined.length < copies.length) return false;
      const renumbered = examined.flatMap(({ copy, result }) => toRenumbered(copy, result, run));
      adopted += await adoptRenumbered(ctx, renumbered);
      const isLast = copies.length === page.length && page.length < PAGE;
      after = copies.at(-1)?.fileId ?? after;
      if (!(await recordCompared(ctx, comparison, { after, copies: copies.length }))) return false;
      const what = { disk: mountpoint, adopted, bytes: run.bytes, isComplete: isLast };
      const log = renumbered.length > 0 ? 'warn' : 'debug';
      ctx.log[log](
        what,
        'the inodes of a restore disk have changed; verifying the checksums of the copies on this disk',
      );
      if (isLast) return true;
    }
    return false;
  }
}

async function runOnDisk<T>(
  disks: FailingDisks,
  disk: KnownMarker,
  work: (root: string) => Promise<T>,
): Promise<T | undefined> {
  try {
    return await callDisk(disks.calls, disk, async () => await work(await rootOf(disk)));
  } catch (error) {
    if (error instanceof TapeError || codeOf(error) !== undefined) return undefined;
    throw error;
  }
}

/** Returns the first copies of a page, up to `RUN_BYTES` bytes in total, but at least one copy. */
function limitBytes(page: readonly RecordedCopy[]): readonly RecordedCopy[] {
  let bytes = 0n;
  const end = page.findIndex(({ size }, n) => {
    bytes += size;
    return n > 0 && bytes > RUN_BYTES;
  });
  return end === -1 ? page : page.slice(0, end);
}

/** Returns the new inode and ctime to record for a compared copy, and adds the copy's size to the run's total. */
function toRenumbered(
  copy: RecordedCopy,
  found: Awaited<ReturnType<typeof recogniseCopy>>,
  run: MatchRun,
): Renumbered[] {
  if (typeof found === 'string') return [];
  const { ino, ctimeNs } = storedStats(found);
  if (ctimeNs === copy.ctimeNs) return [];
  run.bytes += copy.size;
  return ino === copy.ino ? [] : [{ fileId: copy.fileId, version: copy.version, ino, ctimeNs }];
}
