/**
 * Removes copies that no active request needs (domain/disks/removals.ts), and stale files from recalls that have ended
 * (domain/disks/stale-files.ts). If a removal fails or the process crashes, a later run removes the file.
 */
import path from 'node:path';
import { logFailure, UnavailableError } from '../../core/errors.js';
import type { Context } from '../../domain/context.js';
import type { RecordedCopy } from '../../domain/disks/disk-copies.js';
import {
  claimLeaving,
  deleteRemovedCopies,
  findLeaving,
  listUncleared,
  markCleared,
  readUnheld,
  releaseCopies,
  type UnclearedRequest,
} from '../../domain/disks/removals.js';
import {
  deleteStaleFiles,
  findStillStale,
  readStaleFilesAtRest,
  type StaleFile,
} from '../../domain/disks/stale-files.js';
import { nameFailing } from '../../domain/health/failing-disks.js';
import { callDisk, FailingDisks } from '../failures.js';
import { removeEmptyDirectories } from '../made-directories.js';
import { confirmOwned } from '../ownership.js';
import { findPartial, partialName, removePartialSeen } from '../partial-file.js';
import type { CopyLocation } from '../restore-area.js';
import { type CopyState, compareCopy, recogniseCopy, removeCopy } from './copy.js';

const PAGE = 200;

const REQUEST_FILES = 5000;

/**
 * Maximum number of concurrent calls on each disk. The limit is low because a call to a hung disk blocks one of the
 * process's eight threads.
 */
const CALLS_PER_DISK = 3;

const REQUEST_PAGE = 1000;

/**
 * Requests whose remaining copies are all on failing disks. The removal job skips each of these requests until the
 * request or the set of failing disks changes.
 */
export class WaitingRequests {
  private failing = '';
  private readonly versions = new Map<number, string>();

  begin(failing: string): void {
    if (failing !== this.failing) this.versions.clear();
    this.failing = failing;
  }

  has({ id, version }: UnclearedRequest): boolean {
    return this.versions.get(id) === version;
  }

  record({ id, version }: UnclearedRequest): void {
    if (this.failing !== '') this.versions.set(id, version);
  }
}

/**
 * Removes the copies of released files. If the removal fails for a request, continues with the other requests.
 * @param waiting the requests to skip. A periodic job must pass the same object in each run
 * @returns the number of removed copies
 * @throws the first error, after all requests have been handled
 */
export async function removeUnheld(
  ctx: Context,
  stop: AbortSignal,
  disks = new FailingDisks(ctx),
  waiting = new WaitingRequests(),
): Promise<number> {
  waiting.begin(await nameFailing(ctx));
  let failure: unknown;
  for (let after = 0; !stop.aborted; ) {
    const requests = await listUncleared(ctx, { after, limit: REQUEST_PAGE });
    for (const request of requests) {
      if (stop.aborted || waiting.has(request)) continue;
      try {
        if (await clearRequest(ctx, disks, { requestId: request.id, stop })) waiting.record(request);
      } catch (error) {
        if (error instanceof UnavailableError && error.kind === 'away') throw error;
        logFailure(ctx.log, error, "cannot remove a request's released files", { requestId: request.id });
        failure ??= error;
      }
    }
    if (requests.length < REQUEST_PAGE) break;
    after = requests.at(-1)?.id ?? after;
  }
  const count = await removeCopies(ctx, disks, stop);
  if (failure !== undefined) throw failure;
  return count;
}

/**
 * Finds out which copies of a request's released files were changed outside Tapegate, and passes all examined copies to
 * `releaseCopies`.
 * @returns true if the request still has copies after all reachable copies have been examined
 */
async function clearRequest(
  ctx: Context,
  disks: FailingDisks,
  { requestId, stop }: { requestId: number; stop: AbortSignal },
): Promise<boolean> {
  let isComplete = true;
  for (let after: number | undefined = 0; after !== undefined; ) {
    const page: Awaited<ReturnType<typeof readUnheld>> = await readUnheld(ctx, {
      requestId,
      after,
      limit: REQUEST_FILES,
    });
    const failing = new Set<number>(); // disks that have failed while this page of copies was examined
    for (let at = 0; at < page.copies.length && !stop.aborted; at += PAGE) {
      const copies = page.copies.slice(at, at + PAGE);
      const examined = await callEach(ctx, disks, { copies, failing, what: 'check' }, compareCopy);
      const pick = (isPicked: (state: CopyState) => boolean) =>
        examined.filter(({ result }) => isPicked(result)).map(({ copy }) => copy);
      const [unchanged, changed] = [pick((state) => state !== 'changed'), pick((state) => state === 'changed')];
      const released = await releaseCopies(ctx, { unchanged, changed });
      if (released.length < copies.length) isComplete = false;
    }
    if (stop.aborted) return false;
    after = page.last;
  }
  return isComplete && !(await markCleared(ctx, requestId));
}

interface EachOptions<C extends CopyLocation> {
  copies: readonly C[];
  /** Ids of failing disks. `callEach` skips these disks, and adds newly failing disks. */
  failing?: Set<number>;
  /** What `call` does, as a verb for the log message `cannot … a copy or partial file`. */
  what: string;
}

/**
 * Calls `call` for each copy, with a few concurrent calls on each disk. Logs each failure, and omits the copy from the
 * result. If a disk fails, skips the disk's remaining copies.
 */
export async function callEach<C extends CopyLocation, T>(
  ctx: Context,
  disks: FailingDisks,
  { copies, failing = new Set(), what }: EachOptions<C>,
  call: (copy: C, tick: () => void) => Promise<T>,
): Promise<{ copy: C; result: T }[]> {
  const done: { copy: C; result: T }[] = [];
  const callOne = async (copy: C) => {
    if (failing.has(copy.diskId)) return;
    await confirmOwned(ctx);
    try {
      done.push({ copy, result: await callDisk(disks.calls, copy, (tick) => call(copy, tick)) });
    } catch (error) {
      if ((await disks.blame(copy, error)) !== undefined) failing.add(copy.diskId);
      else ctx.log.error({ err: error, path: copy.path }, `cannot ${what} a copy or partial file; retrying later`);
    }
  };
  const callAll = async (waiting: Iterable<C>) => {
    for (const copy of waiting) await callOne(copy);
  };
  const queues = [...new Set(copies.map(({ diskId }) => diskId))].flatMap((diskId) => {
    const queue = copies.filter((copy) => copy.diskId === diskId).values();
    return Array.from({ length: CALLS_PER_DISK }, () => callAll(queue));
  });
  await Promise.all(queues);
  return done;
}

async function removeCopies(ctx: Context, disks: FailingDisks, stop: AbortSignal): Promise<number> {
  let count = 0;
  for (let after = 0n; !stop.aborted; ) {
    const { copies, seen, last } = await claimLeaving(ctx, { after, limit: PAGE });
    const { gone, changed } = await removeClaimed(ctx, disks, copies);
    if (copies.length > 0) count += (await deleteRemovedCopies(ctx, { gone, changed, claimed: copies })).length;
    if (seen < PAGE) break;
    after = last ?? after;
  }
  return count;
}

/** @returns the removed copies, and the copies that were not removed because they were changed outside Tapegate */
async function removeClaimed(
  ctx: Context,
  disks: FailingDisks,
  copies: readonly RecordedCopy[],
): Promise<{ gone: RecordedCopy[]; changed: RecordedCopy[] }> {
  const examined = await callEach(ctx, disks, { copies, what: 'check' }, recogniseCopy);
  const leaving = await findLeaving(
    ctx,
    examined.map(({ copy }) => copy),
  );
  const found = new Map(
    examined.filter(({ copy }) => leaving.has(copy.fileId)).map((each) => [each.copy, each.result]),
  );
  const removed = await callEach(ctx, disks, { copies: [...found.keys()], what: 'remove' }, async (copy) => {
    const state = found.get(copy);
    return state !== undefined && state !== 'changed' && (await removeCopy(copy, state));
  });
  const gone = removed.filter(({ result }) => result).map(({ copy }) => copy);
  return {
    gone: await removeEmptyAfter(ctx, disks, gone),
    changed: [...found.keys()].filter((copy) => found.get(copy) === 'changed'),
  };
}

/**
 * Removes the empty directories of removed copies. Some of these copies might have been removed earlier, by a process
 * that was then killed.
 * @returns the copies whose empty directories were removed
 */
async function removeEmptyAfter<C extends CopyLocation>(
  ctx: Context,
  disks: FailingDisks,
  gone: readonly C[],
): Promise<C[]> {
  const directoryOf = (copy: C) => path.join(copy.mountpoint, path.dirname(copy.path));
  const copies = [...new Map(gone.map((copy) => [directoryOf(copy), copy])).values()];
  const done = await callEach(ctx, disks, { copies, what: 'remove the empty directories of' }, (copy) =>
    removeEmptyDirectories(ctx, copy),
  );
  const cleared = new Set(done.map(({ copy }) => directoryOf(copy)));
  return gone.filter((copy) => cleared.has(directoryOf(copy)));
}

/** Removes stale files from recalls that have ended. @returns the number of recalls that no longer have stale files */
export async function removeStaleFiles(
  ctx: Context,
  stop: AbortSignal,
  disks = new FailingDisks(ctx),
): Promise<number> {
  let count = 0;
  for (let after = 0n; !stop.aborted; ) {
    const page = await readStaleFilesAtRest(ctx, { after, limit: PAGE });
    // remove partial files before copies, because a stalled engine might otherwise still turn its partial file into a
    // copy
    const withoutPartial = await removeEach(ctx, disks, page, {
      examine: (left) => findPartial(left, partialName(left)),
      remove: async (left, seen) => !seen || (await removePartialSeen(left, partialName(left), seen)),
    });
    const ended = await removeEach(ctx, disks, withoutPartial, {
      examine: async (left, tick) => (left.ino === null ? 'changed' : await recogniseCopy(left, tick)),
      remove: async (left, found, isNoted) => isNoted || found === 'changed' || (await removeCopy(left, found)),
    });
    const cleared = await removeEmptyAfter(ctx, disks, ended);
    if (cleared.length > 0) await deleteStaleFiles(ctx, cleared);
    count += cleared.length;
    if (page.length < PAGE) break;
    after = page.at(-1)?.id ?? after;
  }
  return count;
}

/**
 * Functions that examine and remove stale files, which are either partial files or copies. `remove` receives the result
 * of `examine`, and returns whether no stale file remains. If `isNoted` is set, the database lists the file as a copy,
 * which must not be removed.
 */
interface Removing<State> {
  examine: (stale: StaleFile, tick: () => void) => Promise<State>;
  remove: (stale: StaleFile, state: State, isNoted: boolean) => Promise<boolean>;
}

async function removeEach<State>(
  ctx: Context,
  disks: FailingDisks,
  all: readonly StaleFile[],
  { examine, remove }: Removing<State>,
): Promise<StaleFile[]> {
  const examined = await callEach(ctx, disks, { copies: all, what: 'check' }, examine);
  const still = await findStillStale(
    ctx,
    examined.map(({ copy }) => copy),
  );
  const found = new Map(examined.filter(({ copy }) => still.has(copy.id)).map((each) => [each.copy, each.result]));
  const removed = await callEach(ctx, disks, { copies: [...found.keys()], what: 'remove' }, async (stale) =>
    remove(stale, found.get(stale) as State, still.get(stale.id)?.isNoted === true),
  );
  return removed.filter(({ result }) => result).map(({ copy }) => copy);
}
