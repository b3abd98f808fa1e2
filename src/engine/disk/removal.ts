/**
 * Removes copies that no active request contains (operations/disks/removals.ts), and files that recalls left on
 * unreachable disks. Each step is repeatable. A file that cannot be examined or removed now delays no other, and is
 * retried later.
 */
import path from 'node:path';
import type { Context } from '../../context.js';
import { messageOf, UnavailableError } from '../../errors.js';
import type { NotedCopy } from '../../operations/disks/copies.js';
import { nameFailing } from '../../operations/disks/failing.js';
import { findStillLeft, forgetLeft, type LeftBehind, readLeft } from '../../operations/disks/left-behind.js';
import {
  claimLeaving,
  findLeaving,
  forgetGone,
  letGo,
  listUncleared,
  markCleared,
  readUnheld,
  type UnclearedRequest,
  type UnheldCopy,
} from '../../operations/disks/removals.js';
import { type CopyState, compareCopy, type LeftCopy, recogniseCopy, takeAway } from './copy.js';
import { FailingDisks, ofDisk } from './failures.js';
import { removeEmptyFolders } from './made-folders.js';
import { lookBeside, partialName, removePartialSeen } from './partial-file.js';

const PAGE = 200;

/** Files of a request per page: each is examined once, however many have a copy. */
const HOLDS = 5000;

/** Copies examined at once: each may be read completely, and must report progress in time. */
const LOOKS = 16;

/** Requests per query, which returns only ids while they wait for a disk. */
const REQUESTS = 1000;

/**
 * Requests whose remaining copies are all on failing disks. They are skipped until another disk fails, one of these
 * works again, or the request changes. Otherwise each run would examine them all while a disk is absent.
 */
export class WaitingRequests {
  private failing = '';
  private readonly versions = new Map<number, string>();

  /** @param failing names of the disks that fail now */
  begin(failing: string): void {
    if (failing !== this.failing) this.versions.clear();
    this.failing = failing;
  }

  has({ id, version }: UnclearedRequest): boolean {
    return this.versions.get(id) === version;
  }

  /** Everything reachable of the request was examined, and something remains. */
  note({ id, version }: UnclearedRequest): void {
    if (this.failing !== '') this.versions.set(id, version);
  }
}

/** @param waiting kept by a caller that runs this repeatedly @returns the number of removed copies */
export async function removeUnheld(
  ctx: Context,
  stop: AbortSignal,
  disks = new FailingDisks(ctx),
  waiting = new WaitingRequests(),
): Promise<number> {
  waiting.begin(await nameFailing(ctx));
  for (let after = 0; !stop.aborted; ) {
    const requests = await listUncleared(ctx, { after, limit: REQUESTS });
    for (const request of requests) {
      if (stop.aborted || waiting.has(request)) continue;
      if (await clearRequest(ctx, disks, { requestId: request.id, stop })) waiting.note(request);
    }
    if (requests.length < REQUESTS) break;
    after = requests.at(-1)?.id ?? after;
  }
  return await removeCopies(ctx, disks, stop);
}

/** @returns whether everything reachable was examined, and something remains */
async function clearRequest(
  ctx: Context,
  disks: FailingDisks,
  { requestId, stop }: { requestId: number; stop: AbortSignal },
): Promise<boolean> {
  let isWhole = true;
  for (let after: number | undefined = 0; after !== undefined; ) {
    const page: Awaited<ReturnType<typeof readUnheld>> = await readUnheld(ctx, { requestId, after, limit: HOLDS });
    const failing = new Set<number>(); // since this page was read
    for (let at = 0; at < page.copies.length && !stop.aborted; at += PAGE) {
      const copies = page.copies.slice(at, at + PAGE);
      const states = await statesOf(ctx, disks, { copies, failing });
      const pick = (wanted: State) => copies.filter((_, index) => states[index] === wanted);
      const left = await letGo(ctx, { unchanged: pick('unchanged'), changed: pick('changed') });
      if (left.length < copies.length) isWhole = false;
    }
    if (stop.aborted) return false; // the request stays marked
    after = page.last;
  }
  return isWhole && !(await markCleared(ctx, requestId));
}

/** @param of.failing ids of disks that are skipped, because each call may take long to fail */
async function statesOf(
  ctx: Context,
  disks: FailingDisks,
  { copies, failing }: { copies: readonly UnheldCopy[]; failing: Set<number> },
): Promise<State[]> {
  const states: State[] = [];
  for (let at = 0; at < copies.length; at += LOOKS) {
    const looks = copies.slice(at, at + LOOKS).map((copy) => stateOf(ctx, disks, { copy, failing }));
    states.push(...(await Promise.all(looks)));
  }
  return states;
}

type State = 'unchanged' | 'changed' | 'unknown';

async function stateOf(
  ctx: Context,
  disks: FailingDisks,
  { copy, failing }: { copy: UnheldCopy; failing: Set<number> },
): Promise<State> {
  if (!hasPlace(copy)) return 'unchanged';
  if (failing.has(copy.diskId)) return 'unknown';
  try {
    return (await ofDisk(disks.calls, copy, (tick) => compareCopy(copy, tick))) === 'changed' ? 'changed' : 'unchanged';
  } catch (error) {
    if (await tellFailure(ctx, disks, { copy, error, what: 'looked at' })) failing.add(copy.diskId);
    return 'unknown';
  }
}

/** Logs a failure; of a failing disk only once, whose copies then wait. @returns whether the disk is at fault */
async function tellFailure(
  ctx: Context,
  disks: FailingDisks,
  { copy, error, what }: { copy: NotedCopy; error: unknown; what: string },
): Promise<boolean> {
  if ((await disks.blame(copy, error)) !== undefined) return true;
  ctx.log.error({ err: error, path: copy.path }, `a copy that nobody holds cannot be ${what}; it is tried again`);
  return false;
}

async function removeCopies(ctx: Context, disks: FailingDisks, stop: AbortSignal): Promise<number> {
  let count = 0;
  for (let after = 0n; !stop.aborted; ) {
    const { copies, seen, last } = await claimLeaving(ctx, { after, limit: PAGE });
    const { gone, changed } = await removeClaimed(ctx, disks, copies);
    if (copies.length > 0) count += (await forgetGone(ctx, { gone, changed, claimed: copies })).length;
    if (seen < PAGE) break;
    after = last ?? after;
  }
  return count;
}

/** @returns copies that are gone, and copies left alone because they were changed outside Tapegate */
async function removeClaimed(
  ctx: Context,
  disks: FailingDisks,
  copies: readonly NotedCopy[],
): Promise<{ gone: NotedCopy[]; changed: NotedCopy[] }> {
  const looks = await eachOf(ctx, disks, copies, recogniseCopy);
  const leaving = await findLeaving(
    ctx,
    looks.map(({ copy }) => copy),
  );
  const found = new Map(looks.filter(({ copy }) => leaving.has(copy.fileId)).map((look) => [look.copy, look.result]));
  const taken = await eachOf(ctx, disks, [...found.keys()], async (copy) => {
    const look = found.get(copy);
    return look !== undefined && look !== 'changed' && (await takeAway(copy, look));
  });
  const gone = taken.filter(({ result }) => result).map(({ copy }) => copy);
  return {
    gone: await tidyAfter(ctx, disks, gone),
    changed: [...found.keys()].filter((copy) => found.get(copy) === 'changed'),
  };
}

/**
 * Removes empty directories of removed copies, also of those removed earlier, before a process was killed.
 * @returns copies for which this is done; the others are left to a later run
 */
async function tidyAfter(ctx: Context, disks: FailingDisks, gone: readonly NotedCopy[]): Promise<NotedCopy[]> {
  const tidied: NotedCopy[] = [];
  const left = new Map(gone.map((copy) => [path.join(copy.mountpoint, path.dirname(copy.path)), copy]));
  const failed = new Set<string>();
  for (const [folder, copy] of left) {
    try {
      await ofDisk(disks.calls, copy, () => removeEmptyFolders(copy));
    } catch (error) {
      if (error instanceof UnavailableError) throw error;
      await tellFailure(ctx, disks, { copy, error, what: 'removed with its folders' });
      failed.add(folder);
    }
  }
  for (const copy of gone) if (!failed.has(path.join(copy.mountpoint, path.dirname(copy.path)))) tidied.push(copy);
  return tidied;
}

/** Calls `call` for each copy. Logs and omits failures. */
async function eachOf<T>(
  ctx: Context,
  disks: FailingDisks,
  copies: readonly NotedCopy[],
  call: (copy: NotedCopy, tick: () => void) => Promise<T>,
): Promise<{ copy: NotedCopy; result: T }[]> {
  const done: { copy: NotedCopy; result: T }[] = [];
  const failing = new Set<number>();
  for (const copy of copies) {
    if (failing.has(copy.diskId)) continue;
    try {
      done.push({ copy, result: await ofDisk(disks.calls, copy, (tick) => call(copy, tick)) });
    } catch (error) {
      if (await tellFailure(ctx, disks, { copy, error, what: 'removed' })) failing.add(copy.diskId);
    }
  }
  return done;
}

function hasPlace(copy: UnheldCopy): copy is NotedCopy {
  return copy.mountpoint !== null && copy.diskId !== null;
}

/** @returns the number of recalls that left nothing behind, or have been cleaned up */
export async function removeLeftBehind(
  ctx: Context,
  stop: AbortSignal,
  disks = new FailingDisks(ctx),
): Promise<number> {
  let count = 0;
  for (let after = 0n; !stop.aborted; ) {
    const page = await readLeft(ctx, { after, limit: PAGE });
    // partial files first: then a stalled engine has nothing that it could still put in place
    const alone = await removeEach(ctx, disks, page, {
      look: (left) => lookBeside(left, partialName(left)),
      take: async (left, seen) => !seen || (await removePartialSeen(left, partialName(left), seen)),
    });
    const over = await removeEach(ctx, disks, alone, {
      look: async (left, tick) => (left.ino === null ? 'changed' : await recogniseCopy(asLeft(left), tick)),
      take: async (left, found, isNoted) => isNoted || found === 'changed' || (await takeAway(asLeft(left), found)),
    });
    const tidied: LeftBehind[] = [];
    for (const left of over) {
      await tryOn(ctx, disks, left, async () => {
        await removeEmptyFolders(left);
        tidied.push(left);
      });
    }
    if (tidied.length > 0) await forgetLeft(ctx, tidied);
    count += tidied.length;
    if (page.length < PAGE) break;
    after = page.at(-1)?.id ?? after;
  }
  return count;
}

/** How to remove one kind of file. `take` gets the result of `look`, and returns whether the file is gone. */
interface Removing<Look> {
  look: (left: LeftBehind, tick: () => void) => Promise<Look>;
  take: (left: LeftBehind, look: Look, isNoted: boolean) => Promise<boolean>;
}

/** @returns recalls for which this is done; the others are left to a later run */
async function removeEach<Look>(
  ctx: Context,
  disks: FailingDisks,
  all: readonly LeftBehind[],
  { look, take }: Removing<Look>,
): Promise<LeftBehind[]> {
  const looks: { left: LeftBehind; found: Look }[] = [];
  for (const left of all) {
    await tryOn(ctx, disks, left, async (tick) => looks.push({ left, found: await look(left, tick) }));
  }
  const still = await findStillLeft(
    ctx,
    looks.map(({ left }) => left),
  );
  const done: LeftBehind[] = [];
  for (const { left, found } of looks) {
    const known = still.get(left.id);
    if (!known) continue;
    await tryOn(ctx, disks, left, async () => {
      if (await take(left, found, known.isNoted)) done.push(left);
    });
  }
  return done;
}

async function tryOn(
  ctx: Context,
  disks: FailingDisks,
  left: LeftBehind,
  call: (tick: () => void) => Promise<unknown>,
): Promise<void> {
  try {
    await ofDisk(disks.calls, left, call);
  } catch (error) {
    ctx.log.warn({ path: left.path }, `what a recall left cannot be looked at; it is tried again: ${messageOf(error)}`);
  }
}

/** The ctime of a recall's file is unknown: its bytes are compared, if their checksum is known. */
export function asLeft(left: LeftBehind): LeftCopy {
  return { ...left, ctimeNs: null };
}

/**
 * Removes the copy that an earlier recall of the same file may have put in place; leaves any other file alone.
 * @throws TapeError TRANSIENT if the disk is absent
 */
export async function removeLeftCopy(left: LeftBehind): Promise<CopyState> {
  if (left.ino === null) return 'missing';
  const found = await recogniseCopy(asLeft(left));
  if (found === 'changed') return found;
  if (!(await takeAway(asLeft(left), found))) return 'changed';
  return found === 'missing' ? found : 'same';
}
