/**
 * Removes what recalls may have left on disks where nobody could look then. Each step is repeatable; what cannot be
 * looked at is tried again by a later pass, and holds up nothing else.
 */
import type { Context } from '../../context.js';
import { messageOf } from '../../errors.js';
import { findStillLeft, forgetLeft, type LeftBehind, readLeft } from '../../operations/disks/left-behind.js';
import { type CopyState, type LeftCopy, recogniseCopy, takeAway } from './copy.js';
import { FailingDisks, ofDisk } from './failures.js';
import { removeEmptyFolders } from './made-folders.js';
import { lookBeside, removePartialSeen } from './partial-file.js';
import { partialName } from './partial-name.js';

const PAGE = 200;

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
