/**
 * Takes over restore disks and libraries that another Tapegate installation owns. The former owner stops when it
 * notices the new owner record (restore-area/ownership.ts).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../domain/context.js';
import { beginTakeover, countWaiting, endTakeover, readIdentity } from '../domain/ownership.js';
import { BoundedCalls } from '../restore-area/call-watch.js';
import { type OwnerRecord, readOwner } from '../restore-area/owner.js';
import {
  findOwnedRoot,
  findUnsettledDump,
  listDirectories,
  type OwnedDirectory,
  ownershipOf,
  type UnsettledDump,
  writeNewOwner,
} from '../restore-area/ownership.js';

export interface TakeoverPlan {
  /** Reason why this Tapegate is fenced; null if it is not fenced. */
  reason: string | null;
  directories: TakenDirectory[];
  /**
   * The dump from which the database was restored without `tapegate restore --as-of`; undefined if there is no such
   * dump.
   */
  dump: UnsettledDump | undefined;
  /** Number of waiting emails and webhook messages, which are sent after the takeover. */
  waiting: { emails: number; messages: number };
}

export interface TakenDirectory extends OwnedDirectory {
  root: string;
  owner: OwnerRecord | undefined;
  /** Reason why this host cannot take over the directory; undefined if the host can take over the directory. */
  problem: string | undefined;
}

const ANSWER_MS = 10_000;
/** Milliseconds to wait after writing an owner record, because the former owner might still overwrite the record. */
const SETTLE_MS = 6000;
const TRIES = 5;

/** Returns the plan for a takeover, without changing anything. */
export async function planTakeover(ctx: Context): Promise<TakeoverPlan> {
  const reason = await ownershipOf(ctx).check();
  const site = await readIdentity(ctx);
  return {
    reason: reason ?? null,
    directories: await readOwners(ctx),
    dump: findUnsettledDump(site.location, await ownershipOf(ctx).findLocation(site)),
    waiting: await countWaiting(ctx),
  };
}

async function readOwners(ctx: Context): Promise<TakenDirectory[]> {
  const calls = new BoundedCalls();
  const readOne = async (directory: OwnedDirectory) => {
    const found: TakenDirectory = { ...directory, root: '', owner: undefined, problem: undefined };
    found.problem = await calls.run(ANSWER_MS, directory, async () => {
      found.root = (await findOwnedRoot(directory)) ?? '';
      // ignore a damaged owner record, because the takeover replaces it
      if (found.root) found.owner = await readOwner(found.root).catch(() => undefined);
    });
    return found.root || found.problem ? [found] : [];
  };
  return (await Promise.all(listDirectories(ctx, await readIdentity(ctx)).map(readOne))).flat();
}

/**
 * Writes this database's identity to the owner record of each restore disk and library. If another Tapegate has the
 * same identity, first gives this database a new identity. The takeover can be killed at any point and repeated,
 * because engines stay stopped until the takeover ends.
 * @param skipsMissing whether to skip unavailable directories, for example directories on other hosts
 * @returns the directories that were taken over, and the reasons why other directories were skipped
 * @throws Error if a directory cannot be taken over
 */
export async function takeOverSite(
  ctx: Context,
  { skipsMissing }: { skipsMissing: boolean },
): Promise<{ taken: string[]; missing: string[] }> {
  const ownership = ownershipOf(ctx);
  const directories = await readOwners(ctx);
  const missing = directories.flatMap(({ problem }) => problem ?? []);
  const present = directories.filter(({ problem }) => problem === undefined);
  if (missing.length > 0 && !skipsMissing)
    throw new Error(
      `cannot take over because a directory is unavailable: ${missing.join('; ')}; to skip unavailable directories, use --skip-missing`,
    );
  const site = await readIdentity(ctx);
  const isShared = await ownership.isIdentityShared(site, present);
  const identity = await beginTakeover(ctx, isShared);
  const stamp = await ownership.nextStamp();
  const write = async (directory: TakenDirectory) =>
    await writeNewOwner(directory, directory.root, { identity, ...stamp, at: ctx.now() }, { takes: true });
  const isTaken = async ({ root }: TakenDirectory) =>
    (await readOwner(root).catch(() => undefined))?.identity === identity;
  let open = present;
  for (let tries = 0; open.length > 0; tries++) {
    if (tries === TRIES)
      throw new Error(
        `another Tapegate installation still uses ${open.map(({ mountpoint }) => mountpoint).join(', ')}: stop that installation first`,
      );
    for (const each of open) await write(each);
    await sleep(SETTLE_MS);
    const taken = await Promise.all(present.map(isTaken));
    open = present.filter((_each, n) => !taken[n]);
  }
  const taken = present.map(({ mountpoint }) => mountpoint);
  await endTakeover(ctx, await ownership.findLocation(site), taken);
  return { taken, missing };
}
