/**
 * Which engine is to have which drive: by the weights of the engines, as few drives moved as possible.
 *
 * The numbers are those of Sainte-Laguë's method: each drive goes to the engine whose weight, divided by 1, 3, 5 … for the drives
 * that it was given before, is the greatest. An engine that comes takes drives from others and moves none between them, and one that goes
 * leaves its own. Drives that few engines reach are given away first, to those few.
 *
 * Equal claims are decided for whoever has the drive: what follows from a state is the same again once it is so.
 */

/** An engine that offers to work. */
export interface SharingEngine {
  id: string;
  /** Not under 0; with 0 it is given none. */
  weight: number;
  /** Drives that it can work with at once. */
  drives: number;
  /** It may have those with a number up to this. */
  reach: number;
}

export interface SharedDrive {
  /** From 1 on. */
  number: number;
  /** The id of the engine that has it; undefined: it is free. */
  holder?: string | undefined;
}

/** @returns by the numbers of the drives the id of the engine that is to have it; what nobody can take is not in it */
export function shareDrives(drives: readonly SharedDrive[], engines: readonly SharingEngine[]): Map<number, string> {
  const seats = engines.map((engine) => new Seats(engine, drives));
  for (const { number } of [...drives].sort((a, b) => b.number - a.number)) {
    const [first] = seats.filter((each) => each.canHave(number) && each.count < each.engine.drives).sort(byClaim);
    if (first && first.engine.weight > 0) first.count++;
  }
  return giveOut(drives, seats);
}

/** How many drives an engine is to have. */
class Seats {
  readonly engine: SharingEngine;
  /** What it has now. */
  readonly held: number;
  count = 0;

  constructor(engine: SharingEngine, drives: readonly SharedDrive[]) {
    this.engine = engine;
    this.held = drives.filter(({ holder }) => holder === engine.id).length;
  }

  canHave(number: number): boolean {
    return number <= this.engine.reach;
  }

  get claim(): number {
    return this.engine.weight / (2 * this.count + 1);
  }
}

function byClaim(a: Seats, b: Seats): number {
  return b.claim - a.claim || b.held - b.count - (a.held - a.count) || compareIds(a, b);
}

function compareIds(a: Seats, b: Seats): number {
  return a.engine.id < b.engine.id ? -1 : 1;
}

/**
 * Those who reach least choose first: what is left to the others is enough for them, since they reach all of that. Each keeps what
 * it has, takes what is free, and then what somebody has too much of.
 */
function giveOut(drives: readonly SharedDrive[], seats: readonly Seats[]): Map<number, string> {
  const owners = new Map<number, string>();
  const surplus = new Map(seats.map(({ engine, held, count }) => [engine.id, held - count]));
  const rank = ({ engine }: Seats, { holder }: SharedDrive) => {
    if (holder === engine.id) return 0;
    if (holder === undefined) return 1;
    return (surplus.get(holder) ?? 1) > 0 ? 2 : 3;
  };
  const inOrder = [...seats].sort((a, b) => a.engine.reach - b.engine.reach || compareIds(a, b));
  for (const each of inOrder) {
    for (let n = 0; n < each.count; n++) {
      const left = drives.filter(({ number }) => each.canHave(number) && !owners.has(number));
      const [best] = left.sort((a, b) => rank(each, a) - rank(each, b) || b.number - a.number);
      if (!best) break;
      owners.set(best.number, each.engine.id);
      if (best.holder !== undefined && best.holder !== each.engine.id) {
        surplus.set(best.holder, (surplus.get(best.holder) ?? 0) - 1);
      }
    }
  }
  return owners;
}
