/**
 * Removes from the restore area what nobody holds any more. Each step is repeatable; see operations/disks/removals.ts. A copy
 * that cannot be looked at or removed now holds up nothing else and is tried again by a later pass.
 */
import type { Context } from '../../context.js';
import type { NotedCopy } from '../../operations/disks/copies.js';
import {
  findUncleared,
  letGo,
  markCleared,
  readUnheld,
  removeNext,
  type UnheldCopy,
} from '../../operations/disks/removals.js';
import { compareCopy, removeCopy } from './copy.js';
import { FailingDisks, ofDisk } from './failures.js';

const PAGE = 200;

/** @returns how many copies were removed */
export async function removeUnheld(ctx: Context, stop: AbortSignal, disks = new FailingDisks(ctx)): Promise<number> {
  for (let after = 0; !stop.aborted; ) {
    const requestId = await findUncleared(ctx, after);
    if (requestId === undefined) break;
    await clearRequest(ctx, disks, { requestId, stop });
    after = requestId;
  }
  return await removeCopies(ctx, disks, stop);
}

async function clearRequest(
  ctx: Context,
  disks: FailingDisks,
  { requestId, stop }: { requestId: number; stop: AbortSignal },
): Promise<void> {
  let isWhole = true;
  for (let after = 0n; ; ) {
    const copies = await readUnheld(ctx, { requestId, after, limit: PAGE });
    const states = await Promise.all(copies.map((copy) => stateOf(ctx, disks, copy)));
    const pick = (wanted: string) => copies.filter((_, index) => states[index] === wanted).map((copy) => copy.fileId);
    await letGo(ctx, { unchanged: pick('unchanged'), changed: pick('changed') });
    if (states.includes('unknown')) isWhole = false;
    if (stop.aborted) return; // the request stays marked
    if (copies.length < PAGE) break;
    after = copies.at(-1)?.fileId ?? after;
  }
  if (isWhole) await markCleared(ctx, requestId);
}

async function stateOf(
  ctx: Context,
  disks: FailingDisks,
  copy: UnheldCopy,
): Promise<'unchanged' | 'changed' | 'unknown'> {
  if (!hasPlace(copy)) return 'unchanged';
  try {
    return (await ofDisk(disks.calls, copy, () => compareCopy(copy))) === 'changed' ? 'changed' : 'unchanged';
  } catch (error) {
    await tellFailure(ctx, disks, { copy, error, what: 'looked at' });
    return 'unknown';
  }
}

/** Where it is the disk, that is told once, and its copies are left alone until it works again. */
async function tellFailure(
  ctx: Context,
  disks: FailingDisks,
  { copy, error, what }: { copy: NotedCopy; error: unknown; what: string },
): Promise<void> {
  if ((await disks.blame(copy, error)) !== undefined) return;
  ctx.log.error({ err: error, path: copy.path }, `a copy that nobody holds cannot be ${what}; it is tried again`);
}

async function removeCopies(ctx: Context, disks: FailingDisks, stop: AbortSignal): Promise<number> {
  let count = 0;
  for (let after = 0n; !stop.aborted; ) {
    const failed: { copy: NotedCopy; error: unknown }[] = [];
    const page = await removeNext(ctx, { after, limit: PAGE }, async (copy) => {
      try {
        await ofDisk(disks.calls, copy, () => removeCopy(copy));
        return true;
      } catch (error) {
        failed.push({ copy, error });
        return false;
      }
    });
    for (const { copy, error } of failed) await tellFailure(ctx, disks, { copy, error, what: 'removed' });
    count += page.removed;
    if (page.seen < PAGE) break;
    after = page.last ?? after;
  }
  return count;
}

function hasPlace(copy: UnheldCopy): copy is NotedCopy {
  return copy.mountpoint !== null && copy.diskId !== null;
}
