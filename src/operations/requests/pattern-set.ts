/**
 * Which of many patterns are in which of many paths. Each pattern in each path would be fifty million searches for five thousand paths
 * and ten thousand patterns; most patterns are in none, though, since they hold a few letters in a row that no path has.
 *
 * So some paths are taken together: all their runs of letters of one length are noted, as bits, and a pattern is searched for only where
 * each of its own runs is among them. A bit that is set for another run costs a search, and misses nothing.
 */

export interface Pattern {
  id: number;
  pattern: string;
}

/** A pattern is in a path, told by its place in the list. */
export interface Match {
  id: number;
  path: number;
}

/** Lengths of runs; of a pattern the greatest counts that it has. */
const RUNS = [8, 4, 2, 1];
/** Of a pattern, from its end, since paths differ there. */
const MOST_RUNS = 64;
/** Paths that are taken together, whose runs are some ten thousands. */
const TOGETHER = 250;
const BITS = 18;
const FACTOR = 0x01000193;

interface Sought extends Pattern {
  /** The places of the bits of its runs. */
  bits: Uint32Array;
}

export class PatternSet {
  /** By the length of their runs. */
  private readonly sought = new Map<number, Sought[]>();
  private readonly noted = new Uint8Array(2 ** BITS);

  /** @param patterns none is empty */
  constructor(patterns: Iterable<Pattern>) {
    for (const { id, pattern } of patterns) {
      const run = RUNS.find((length) => length <= pattern.length) ?? 1;
      const places: number[] = [];
      eachRun(pattern, run, (place) => places.push(place));
      const bits = Uint32Array.from(places.slice(-MOST_RUNS));
      const others = this.sought.get(run);
      if (others) others.push({ id, pattern, bits });
      else this.sought.set(run, [{ id, pattern, bits }]);
    }
  }

  /** All matches, pattern by pattern of some paths at a time; where nothing matches it gives an empty list now and then, to breathe. */
  *find(paths: readonly string[]): Generator<Match[]> {
    for (let first = 0; first < paths.length; first += TOGETHER) {
      const together = paths.slice(first, first + TOGETHER);
      for (const [run, sought] of this.sought) {
        this.note(together, run);
        for (const each of sought) if (this.mayHold(each)) yield search(together, first, each);
        yield [];
      }
    }
  }

  private note(paths: readonly string[], run: number): void {
    const { noted } = this;
    noted.fill(0);
    for (const path of paths) {
      eachRun(path, run, (place) => {
        noted[place] = 1;
      });
    }
  }

  private mayHold({ bits }: Sought): boolean {
    for (let n = bits.length - 1; n >= 0; n--) if (this.noted[bits[n] ?? 0] === 0) return false;
    return true;
  }
}

function search(paths: readonly string[], first: number, { id, pattern }: Pattern): Match[] {
  return paths.flatMap((path, n) => (path.includes(pattern) ? [{ id, path: first + n }] : []));
}

/** Tells the place of the bit of each run, which is reckoned from the one before it (Rabin and Karp, 1987). */
function eachRun(text: string, length: number, tell: (place: number) => void): void {
  let power = 1;
  for (let n = 1; n < length; n++) power = Math.imul(power, FACTOR);
  let hash = 0;
  for (let n = 0; n < text.length; n++) {
    if (n >= length) hash = (hash - Math.imul(text.charCodeAt(n - length), power)) | 0;
    hash = (Math.imul(hash, FACTOR) + text.charCodeAt(n)) | 0;
    if (n >= length - 1) tell(Math.imul(hash, 0x9e3779b1) >>> (32 - BITS));
  }
}
