/** Removes from the restore area what nobody holds any more. Each step is repeatable; see operations/removals.ts. */
import type { Context } from '../context.js';
import {
  type Copy,
  findUnreleased,
  finishRemovals,
  letGo,
  markReleased,
  readRemovals,
  readUnheld,
} from '../operations/removals.js';
import { compareCopy, removeCopy } from './restore-area.js';

const PAGE = 500;

/** @returns how many copies were removed */
export async function removeUnheld(ctx: Context, stop: AbortSignal): Promise<number> {
  for (;;) {
    const requestId = await findUnreleased(ctx);
    if (requestId === undefined || stop.aborted) break;
    await releaseRequest(ctx, requestId, stop);
  }
  return await removeCopies(ctx, stop);
}

async function releaseRequest(ctx: Context, requestId: number, stop: AbortSignal): Promise<void> {
  for (let after = 0n; ; ) {
    const copies = await readUnheld(ctx, { requestId, after, limit: PAGE });
    const states = await Promise.all(copies.map(isChanged));
    await letGo(ctx, {
      unchanged: copies.filter((_, index) => !states[index]).map((copy) => copy.fileId),
      changed: copies.filter((_, index) => states[index]).map((copy) => copy.fileId),
    });
    if (stop.aborted) return; // the request stays marked
    if (copies.length < PAGE) break;
    after = copies.at(-1)?.fileId ?? after;
  }
  await markReleased(ctx, requestId);
}

async function isChanged(copy: Copy): Promise<boolean> {
  return copy.mountpoint !== null && (await compareCopy({ ...copy, mountpoint: copy.mountpoint })) === 'changed';
}

async function removeCopies(ctx: Context, stop: AbortSignal): Promise<number> {
  let count = 0;
  for (let after = 0n; !stop.aborted; ) {
    const copies = await readRemovals(ctx, { after, limit: PAGE });
    const removed: bigint[] = [];
    for (const copy of copies) {
      after = copy.fileId;
      if (copy.mountpoint === null) continue;
      try {
        await removeCopy({ ...copy, mountpoint: copy.mountpoint });
        removed.push(copy.fileId);
      } catch (error) {
        ctx.log.error({ err: error, path: copy.path }, 'a copy that nobody holds cannot be removed; it is tried again');
      }
    }
    if (removed.length > 0) await finishRemovals(ctx, removed);
    count += removed.length;
    if (copies.length < PAGE) break;
  }
  return count;
}
