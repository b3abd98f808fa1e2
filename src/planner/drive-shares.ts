/**
 * How engines share the drives by their weights: who lets others go first when a drive is free, and who gives one back. Each looks for itself, and
 * only at those who ask for a drive: what an engine does that does not ask keeps nobody from anything.
 *
 * An engine's claim to one more drive is its weight divided by 1, 3, 5 … for the drives that it has before (Sainte-Laguë's method). A drive changes
 * hands where the one who asks has a greater claim to it than the one who has it: each such step brings the shares nearer to the weights, and no step goes back.
 */

export interface SharingEngine {
  id: string;
  /** Not under 0; with 0 it lets all others go first. */
  weight: number;
  /** It may have drives with a number up to this. */
  reach: number;
}

/** A drive that is in service. */
export interface SharedDrive {
  id: number;
  /** From 1 on. */
  number: number;
  /** The id of the engine that has it, be it one that does not share; undefined: it is free. */
  holder?: string | undefined;
  /** It has a volume. */
  isMounted: boolean;
}

/** What an engine sees of the others. */
export interface DrivesAndAskers {
  drives: readonly SharedDrive[];
  /** Other engines that ask for one more drive just now. */
  askers: readonly SharingEngine[];
}

/**
 * Of the drives that are free for an engine: those that somebody else who reaches them is to take first. Of all who ask for one, somebody has the
 * greatest claim, and leaves it to nobody.
 */
export function freeForOthers(engine: SharingEngine, { drives, askers }: DrivesAndAskers): SharedDrive[] {
  const own = countOf(engine, drives);
  const greater = askers.filter((asker) => isGreaterClaim(asker, countOf(asker, drives), engine, own));
  return freeFor(engine, drives).filter(({ number }) => greater.some(({ reach }) => number <= reach));
}

/** The drives that an engine may take, but for what others have a claim to. */
export function freeFor({ reach }: SharingEngine, drives: readonly SharedDrive[]): SharedDrive[] {
  return drives.filter(({ number, holder }) => holder === undefined && number <= reach);
}

/**
 * Has somebody else a greater claim to this drive than the engine that has it, and no free one to take? Of several drives that could be given back just
 * now, each looked at by a process of its own and at the same time, it is the one with the highest number.
 */
export function isToGiveBack(engine: SharingEngine, number: number, { drives, askers }: DrivesAndAskers): boolean {
  const own = drives.filter(({ holder }) => holder === engine.id);
  if (!own.some((drive) => drive.number === number)) return false;
  const before = countOf(engine, drives) - 1;
  return askers.some((asker) => {
    const within = (drive: SharedDrive) => drive.number <= asker.reach;
    const hasFree = drives.some((drive) => drive.holder === undefined && within(drive));
    const isHighest = !own.some((drive) => drive.number > number && within(drive) && !drive.isMounted);
    return (
      number <= asker.reach && !hasFree && isHighest && isGreaterClaim(asker, countOf(asker, drives), engine, before)
    );
  });
}

function countOf({ id }: SharingEngine, drives: readonly SharedDrive[]): number {
  return drives.filter(({ holder }) => holder === id).length;
}

/** To the drive after so many. Equal claims are none, so that nothing goes back and forth. */
function isGreaterClaim(a: SharingEngine, aHas: number, b: SharingEngine, bHas: number): boolean {
  return a.weight * (2 * bHas + 1) > b.weight * (2 * aHas + 1);
}
