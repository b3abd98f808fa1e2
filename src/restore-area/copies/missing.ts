/** Finds copies that are missing from this host's disks. */
import path from 'node:path';
import { codeOf, TapeError } from '../../core/errors.js';
import { Limiter } from '../../core/limiter.js';
import type { Context, CopyLook, LocatedCopy } from '../../domain/context.js';
import { readCopies } from '../../domain/disks/disk-copies.js';
import { returnMissing } from '../../domain/disks/missing.js';
import { freeKeptPaths, type KeptCopy, readKeptCopies } from '../../domain/disks/removals.js';
import { waitInTime } from '../call-watch.js';
import { removeEmptyDirectories } from '../made-directories.js';
import { type MarkedDisk, rootOf } from '../marker.js';
import { confirmOwned } from '../ownership.js';
import { openExisting } from '../restore-area.js';
import { findStats, statIn } from './copy.js';

/**
 * Number of copies that each run of the periodic check examines. The check runs once per minute, so it takes 17 hours
 * to examine a million copies.
 */
const RUN_COPIES = 1000;

const CALL_COPIES = 100;

/**
 * Periodic check that finds missing copies and records them. Each run examines some of the restored copies, and the
 * next run continues with the following copies.
 */
export class CopyCheck {
  private after = 0n;
  private afterKept = 0n;

  async run(ctx: Context): Promise<number> {
    const copies = await readCopies(ctx, { after: this.after, limit: RUN_COPIES, isWorking: true });
    this.after = copies.length < RUN_COPIES ? 0n : (copies.at(-1)?.fileId ?? 0n);
    let missing = 0;
    for (let at = 0; at < copies.length; at += CALL_COPIES) {
      const gone = await ctx.copies.findMissing(copies.slice(at, at + CALL_COPIES));
      missing += (await returnMissing(ctx, gone)).length;
    }
    await this.checkKept(ctx);
    if (missing > 0) ctx.log.warn({ copies: missing }, 'restored copies were removed outside Tapegate');
    return missing;
  }

  /**
   * Checks the copies that Tapegate did not remove because they were changed outside Tapegate. If such a copy no longer
   * exists, new copies can use its path again.
   */
  private async checkKept(ctx: Context): Promise<void> {
    const kept = await readKeptCopies(ctx, { after: this.afterKept, limit: CALL_COPIES });
    this.afterKept = kept.length < CALL_COPIES ? 0n : (kept.at(-1)?.id ?? 0n);
    const gone: KeptCopy[] = [];
    for (const copy of await ctx.copies.findMissing(kept)) {
      // keep the path reserved, because something that is not a regular file is at this path
      if (await findStats(copy)) continue;
      gone.push(copy);
      await confirmOwned(ctx);
      await removeEmptyDirectories(ctx, copy);
    }
    await freeKeptPaths(ctx, gone);
  }
}

const ANSWER_MS = 2000;

/**
 * Returns a function that finds missing copies. The function makes only one call at a time, because a call to a hung
 * disk blocks one of the process's few threads.
 */
export function createCopyLook(): CopyLook {
  const slots = new Limiter(1);
  let isHanging = false;
  return {
    findMissing: async (copies) => {
      if (copies.length === 0 || isHanging) return [];
      // if an earlier call hangs, report no copy as missing, because this call cannot find out which copies exist
      const late = { ms: ANSWER_MS, error: () => new TapeError('TRANSIENT', 'the restore disks do not answer') };
      const leave = await slots.take({ late }).catch((error: unknown) => {
        if (!(error instanceof TapeError)) throw error;
      });
      if (!leave) return [];
      const work = findAllMissing(copies).finally(() => {
        isHanging = false;
        leave();
      });
      const ended = await waitInTime(ANSWER_MS, work);
      isHanging = !ended;
      return ended?.value ?? [];
    },
  };
}

async function findAllMissing<C extends LocatedCopy>(copies: readonly C[]): Promise<C[]> {
  const missing: C[] = [];
  for (const onDisk of groupBy(copies, ({ diskId }) => diskId)) missing.push(...(await findOnDisk(onDisk)));
  return missing;
}

/**
 * Returns the copies that are missing from a disk. If the disk is unavailable or unreadable, returns an empty list,
 * because the copies might still exist.
 */
async function findOnDisk<C extends LocatedCopy>([first, ...others]: readonly [C, ...C[]]): Promise<C[]> {
  try {
    const root = await rootOf(first);
    const missing: C[] = [];
    for (const inDirectory of groupBy([first, ...others], (copy) => path.dirname(copy.path))) {
      // a failure in one directory must not stop the search in other directories
      missing.push(...(await findInDirectory(root, inDirectory).catch(none)));
    }
    // check again that the disk is mounted: if it is not, all its copies only seem to be missing
    if (missing.length > 0) await rootOf(first satisfies MarkedDisk);
    return missing;
  } catch (error) {
    return none(error);
  }
}

/** Returns an empty list if a disk or directory cannot be read. @throws any other error */
function none(error: unknown): never[] {
  if (codeOf(error) === undefined && !(error instanceof TapeError)) throw error;
  return [];
}

async function findInDirectory<C extends LocatedCopy>(root: string, copies: readonly [C, ...C[]]): Promise<C[]> {
  const directory = await openExisting(root, path.dirname(copies[0].path)).catch((error: unknown) => {
    if (codeOf(error) !== 'ENOENT') throw error;
  });
  if (!directory) return [...copies];
  try {
    const missing: C[] = [];
    for (const copy of copies) {
      if (!(await statIn(directory, path.basename(copy.path)))?.isFile()) missing.push(copy);
    }
    return missing;
  } finally {
    await directory.handle.close();
  }
}

function groupBy<T, Key>(items: readonly T[], keyOf: (item: T) => Key): [T, ...T[]][] {
  const groups = new Map<Key, [T, ...T[]]>();
  for (const item of items) {
    const group = groups.get(keyOf(item));
    if (group) group.push(item);
    else groups.set(keyOf(item), [item]);
  }
  return [...groups.values()];
}
