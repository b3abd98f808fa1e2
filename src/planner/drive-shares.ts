/**
 * How engines share drives by weight: which engine leaves a free drive to others, and which releases one. Each engine
 * decides alone, and considers only engines that request a drive.
 *
 * An engine's claim to one more drive is its weight divided by 1, 3, 5 … for the drives it has (Sainte-Laguë). A drive
 * moves if the requester's claim to it is greater than its holder's. Each move brings the shares closer to the weights.
 */

export interface SharingEngine {
  id: string;
  /** At least 0; an engine with 0 leaves free drives to all others. */
  weight: number;
  /** Highest drive number that it may use. */
  reach: number;
}

export interface SharedDrive {
  id: number;
  number: number;
  /** Id of the engine that has it, sharing or not; undefined if free. */
  holder?: string | undefined;
  isMounted: boolean;
}

export interface DrivesAndAskers {
  drives: readonly SharedDrive[];
  /** Other engines that request one more drive now. */
  askers: readonly SharingEngine[];
}

/** Returns the free drives that this engine must leave to requesters with a greater claim. */
export function freeForOthers(engine: SharingEngine, { drives, askers }: DrivesAndAskers): SharedDrive[] {
  const own = countOf(engine, drives);
  const greater = askers.filter((asker) => isGreaterClaim(asker, countOf(asker, drives), engine, own));
  return freeFor(engine, drives).filter(({ number }) => greater.some(({ reach }) => number <= reach));
}

/** Returns the free drives that an engine may use, without regard to other claims. */
export function freeFor({ reach }: SharingEngine, drives: readonly SharedDrive[]): SharedDrive[] {
  return drives.filter(({ number, holder }) => holder === undefined && number <= reach);
}

/**
 * Whether another engine has a greater claim to this drive, and no free one to take. Several processes may check at the
 * same time: of the drives that could be released, the one with the highest number is.
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

/** Compares claims to one more drive. Equal claims do not move a drive, so that it does not oscillate. */
function isGreaterClaim(a: SharingEngine, aHas: number, b: SharingEngine, bHas: number): boolean {
  return a.weight * (2 * bHas + 1) > b.weight * (2 * aHas + 1);
}
