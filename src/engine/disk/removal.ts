/**
 * Removes copies that no live request contains (operations/disks/removals.ts), and what recalls may have left on disks that could not be reached then.
 * Each step is repeatable. A file that cannot be examined or removed now delays no other, and is tried again by a later run.
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

/** Of a request that are looked through together: each once, however many have a copy. */
const HOLDS = 5000;

/** Copies that are looked at together: all of their bytes may have to be read, and each is to show progress in time. */
const LOOKS = 16;

/** Requests that are asked for together: the ids of those that wait for a disk are all that is read of them. */
const REQUESTS = 1000;

/**
 * Requests of which all that is left waits for disks that fail: nothing can be done for them before another disk fails, one of
 * these works again, or something is written of the request. Each pass would look at all of them, for as long as a disk is away.
 */
export class WaitingRequests {
  private failing = '';
  private readonly versions = new Map<number, string>();

  /** @param failing names the disks that fail now */
  begin(failing: string): void {
    if (failing !== this.failing) this.versions.clear();
    this.failing = failing;
  }

  has({ id, version }: UnclearedRequest): boolean {
    return this.versions.get(id) === version;
  }

  /** All of the request was looked at that can be, and something of it is left. */
  note({ id, version }: UnclearedRequest): void {
    if (this.failing !== '') this.versions.set(id, version);
  }
}

/**
 * @param waiting kept from call to call by whoever calls it again and again
 * @returns how many copies were removed
 */
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

/** @returns whether all was looked at that can be, and something is left */
async function clearRequest(
  ctx: Context,
  disks: FailingDisks,
  { requestId, stop }: { requestId: number; stop: AbortSignal },
): Promise<boolean> {
  let isWhole = true;
  for (let after: number | undefined = 0; after !== undefined; ) {
    const page: Awaited<ReturnType<typeof readUnheld>> = await readUnheld(ctx, { requestId, after, limit: HOLDS });
    const failing = new Set<number>(); // since the page was read
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

/** @param of.failing ids of disks, of which no more copies are looked at: each call on one may take as long as it takes to fail */
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

/** Where it is the disk, that is told once, and its copies are left alone until it works again. @returns whether it is */
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

/** @returns the copies of which nothing is there any more, and those that are left alone since they were changed by hand */
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
 * Removes what is empty of the folders of copies that have gone: also of those that had gone before, since a process may have been killed
 * in between.
 * @returns those of which that is done; the others stay noted, and a later pass comes to them again
 */
async function tidyAfter(ctx: Context, disks: FailingDisks, gone: readonly NotedCopy[]): Promise<NotedCopy[]> {
  const tidied: NotedCopy[] = [];
  const left = new Map(gone.map((copy) => [path.join(copy.mountpoint, path.dirname(copy.path)), copy]));
  const failed = new Set<string>();
  for (const [folder, copy] of left) {
    try {
      await removeEmptyFolders(ctx, copy, (call) => ofDisk(disks.calls, copy, call));
    } catch (error) {
      if (error instanceof UnavailableError) throw error;
      await tellFailure(ctx, disks, { copy, error, what: 'removed with its folders' });
      failed.add(folder);
    }
  }
  for (const copy of gone) if (!failed.has(path.join(copy.mountpoint, path.dirname(copy.path)))) tidied.push(copy);
  return tidied;
}

/** What came of a call on the disk of each copy; one that fails is told, and left out. */
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

/** @returns of how many recalls nothing is left now */
export async function removeLeftBehind(
  ctx: Context,
  stop: AbortSignal,
  disks = new FailingDisks(ctx),
): Promise<number> {
  let count = 0;
  for (let after = 0n; !stop.aborted; ) {
    const page = await readLeft(ctx, { after, limit: PAGE });
    // partial files first: from there on an engine that only slept finds nothing any more that it could put in place
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
      const tidy = () => removeEmptyFolders(ctx, left, (call) => ofDisk(disks.calls, left, call));
      await trying(ctx, left, async () => {
        await tidy();
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

/** How one thing of each is removed. `take` is given what was looked at, and tells whether it is not there any more. */
interface Removing<Look> {
  look: (left: LeftBehind, tick: () => void) => Promise<Look>;
  take: (left: LeftBehind, look: Look, isNoted: boolean) => Promise<boolean>;
}

/** @returns those of which that is done; the others are left to a later pass */
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
  await trying(ctx, left, () => ofDisk(disks.calls, left, call));
}

async function trying(ctx: Context, left: LeftBehind, call: () => Promise<unknown>): Promise<void> {
  try {
    await call();
  } catch (error) {
    ctx.log.warn({ path: left.path }, `what a recall left cannot be looked at; it is tried again: ${messageOf(error)}`);
  }
}

/** Of what was left behind the time of change is not known: its bytes are compared, where their checksum is. */
export function asLeft(left: LeftBehind): LeftCopy {
  return { ...left, ctimeNs: null };
}

/**
 * Removes the copy that a recall may have put in place; anything else that stands there is left alone. By whoever restores the
 * file just now: nobody else puts a copy there.
 * @returns what stood there
 * @throws TapeError TRANSIENT when the disk is not there
 */
export async function removeLeftCopy(left: LeftBehind): Promise<CopyState> {
  if (left.ino === null) return 'missing';
  const found = await recogniseCopy(asLeft(left));
  if (found === 'changed') return found;
  if (!(await takeAway(asLeft(left), found))) return 'changed';
  return found === 'missing' ? found : 'same';
}
