/**
 * How much is worked on at once of what callers ask. A query of honest size is run as it comes; of large ones a caller has a few at a time, and
 * the others wait in its own line, so that what somebody else asks waits for the work that is in hand, and not for all that one has sent.
 */
import { checkWanted, unwanted } from '../src/errors.js';

/** By what operations may cost (operation-limits.ts): at once in all, and of one caller. One that costs more runs alone. */
export interface MostWork {
  all: number;
  one: number;
}

interface Waiting {
  cost: number;
  begin(): void;
}

export class WorkTurns {
  private readonly most: MostWork;
  private inHand = 0;
  private readonly ofCaller = new Map<string, number>();
  /** By callers, who take turns; each has its line in the order in which it came. */
  private readonly lines = new Map<string, Waiting[]>();

  constructor(most: MostWork) {
    this.most = most;
  }

  /**
   * Waits until there is room for it.
   * @param wantedOf asked where it has to wait: aborts when nobody waits for what is to be done any more
   * @returns what gives the room back, once
   * @throws UnavailableError where nobody waits any more
   */
  async begin(
    caller: string,
    cost: number,
    wantedOf: () => AbortSignal | undefined = () => undefined,
  ): Promise<() => void> {
    if (this.lines.has(caller) || !this.hasRoom(caller, cost)) await this.waitInLine(caller, cost, wantedOf());
    else this.count(caller, cost);
    let isTaken = true;
    return () => {
      if (!isTaken) return;
      isTaken = false;
      this.count(caller, -cost);
      // others that are ready come first, whatever they are
      setImmediate(() => this.admit());
    };
  }

  private hasRoom(caller: string, cost: number): boolean {
    const own = this.ofCaller.get(caller) ?? 0;
    if (own > 0 && own + cost > this.most.one) return false;
    return this.inHand === 0 || this.inHand + cost <= this.most.all;
  }

  private count(caller: string, cost: number): void {
    this.inHand += cost;
    const own = (this.ofCaller.get(caller) ?? 0) + cost;
    if (own > 0) this.ofCaller.set(caller, own);
    else this.ofCaller.delete(caller);
  }

  private waitInLine(caller: string, cost: number, wanted: AbortSignal | undefined): Promise<void> {
    checkWanted(wanted);
    return new Promise((resolve, reject) => {
      const giveUp = () => {
        this.shorten(caller, waiting);
        reject(unwanted());
        this.admit(); // what came after it may have room
      };
      const begin = () => {
        wanted?.removeEventListener('abort', giveUp);
        const left = this.shorten(caller, waiting);
        this.lines.delete(caller); // and behind all others, if more of it waits
        if (left.length > 0) this.lines.set(caller, left);
        this.count(caller, cost);
        resolve();
      };
      const waiting: Waiting = { cost, begin };
      this.lines.set(caller, [...(this.lines.get(caller) ?? []), waiting]);
      wanted?.addEventListener('abort', giveUp, { once: true });
    });
  }

  private shorten(caller: string, without: Waiting): Waiting[] {
    const left = (this.lines.get(caller) ?? []).filter((each) => each !== without);
    if (left.length > 0) this.lines.set(caller, left);
    else this.lines.delete(caller);
    return left;
  }

  /** One of each caller in turn, as long as there is room. */
  private admit(): void {
    for (let isBegun = true; isBegun; ) {
      isBegun = false;
      for (const [caller, [first]] of [...this.lines]) {
        if (!first || !this.hasRoom(caller, first.cost)) continue;
        first.begin();
        isBegun = true;
      }
    }
  }
}
