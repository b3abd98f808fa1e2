/**
 * Removes from the restore area what nobody holds any more. Each step is repeatable; see operations/disks/removals.ts. A copy
 * that cannot be looked at or removed now holds up nothing else and is tried again by a later pass.
 */
import type { Context } from '../../context.js';
import {
  findUncleared,
  letGo,
  markCleared,
  readUnheld,
  removeNext,
  type UnheldCopy,
} from '../../operations/disks/removals.js';
import { compareCopy, type LeftCopy, removeCopy } from './copy.js';

const PAGE = 200;

/** @returns how many copies were removed */
export async function removeUnheld(ctx: Context, stop: AbortSignal): Promise<number> {
  for (let after = 0; !stop.aborted; ) {
    const requestId = await findUncleared(ctx, after);
    if (requestId === undefined) break;
    await clearRequest(ctx, requestId, stop);
    after = requestId;
  }
  return await removeCopies(ctx, stop);
}

async function clearRequest(ctx: Context, requestId: number, stop: AbortSignal): Promise<void> {
  let isWhole = true;
  for (let after = 0n; ; ) {
    const copies = await readUnheld(ctx, { requestId, after, limit: PAGE });
    const states = await Promise.all(copies.map((copy) => stateOf(ctx, copy)));
    const pick = (wanted: string) => copies.filter((_, index) => states[index] === wanted).map((copy) => copy.fileId);
    await letGo(ctx, { unchanged: pick('unchanged'), changed: pick('changed') });
    if (states.includes('unknown')) isWhole = false;
    if (stop.aborted) return; // the request stays marked
    if (copies.length < PAGE) break;
    after = copies.at(-1)?.fileId ?? after;
  }
  if (isWhole) await markCleared(ctx, requestId);
}

async function stateOf(ctx: Context, copy: UnheldCopy): Promise<'unchanged' | 'changed' | 'unknown'> {
  if (!hasPlace(copy)) return 'unchanged';
  try {
    return (await compareCopy(copy)) === 'changed' ? 'changed' : 'unchanged';
  } catch (error) {
    ctx.log.error({ err: error, path: copy.path }, 'a copy that nobody holds cannot be looked at; it is tried again');
    return 'unknown';
  }
}

async function removeCopies(ctx: Context, stop: AbortSignal): Promise<number> {
  let count = 0;
  for (let after = 0n; !stop.aborted; ) {
    const page = await removeNext(ctx, { after, limit: PAGE }, async (copy) => {
      try {
        if (hasPlace(copy)) await removeCopy(copy);
        return true;
      } catch (error) {
        ctx.log.error({ err: error, path: copy.path }, 'a copy that nobody holds cannot be removed; it is tried again');
        return false;
      }
    });
    count += page.removed;
    if (page.seen < PAGE) break;
    after = page.last ?? after;
  }
  return count;
}

function hasPlace(copy: UnheldCopy): copy is UnheldCopy & LeftCopy {
  return copy.mountpoint !== null && copy.diskId !== null;
}
