/**
 * Shares drives among engines by weight. Decides when an engine must leave a free drive to another engine, and when it
 * must release one of its drives.
 *
 * If an engine has n drives, its claim to one more drive is its weight divided by 2n + 1 (Sainte-Laguë method). An
 * engine gives a drive to another engine if that engine needs a drive and has a greater claim.
 */

export interface SharingEngine {
  id: string;
  /** The engine's weight. If it is 0, the engine leaves a free drive to any other engine that needs one. */
  weight: number;
  /** Highest drive number that the engine is allowed to use. */
  reach: number;
}

export interface SharedDrive {
  id: number;
  number: number;
  /** Id of the engine that uses the drive; undefined if the drive is free. */
  holder?: string | undefined;
  isMounted: boolean;
}

export interface DrivesAndAskers {
  drives: readonly SharedDrive[];
  askers: readonly SharingEngine[];
}

/**
 * Returns the free drives that this engine must not take, because another engine needs a drive and has a greater claim.
 */
export function freeForOthers(engine: SharingEngine, { drives, askers }: DrivesAndAskers): SharedDrive[] {
  const own = countOf(engine, drives);
  const greater = askers.filter((asker) => isGreaterClaim(asker, countOf(asker, drives), engine, own));
  return freeFor(engine, drives).filter(({ number }) => greater.some(({ reach }) => number <= reach));
}

/** Returns the free drives that an engine is allowed to use, regardless of other engines' claims. */
export function freeFor({ reach }: SharingEngine, drives: readonly SharedDrive[]): SharedDrive[] {
  return drives.filter(({ number, holder }) => holder === undefined && number <= reach);
}

/**
 * Returns whether the engine must release the drive `number`, because another engine has a greater claim and cannot
 * find a free drive. Among several drives that it could release, the engine releases only the one with the highest
 * number. Otherwise, each of its processes would release its own drive.
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

/**
 * Returns whether engine `a` has a greater claim to one more drive than engine `b`. Returns false for equal claims,
 * because two engines would otherwise keep passing the same drive to each other.
 */
function isGreaterClaim(a: SharingEngine, aHas: number, b: SharingEngine, bHas: number): boolean {
  return a.weight * (2 * bHas + 1) > b.weight * (2 * aHas + 1);
}
