/**
 * Finds which of many patterns occur in which of many paths. Searching each pattern in each path would take 50 million
 * searches for 5,000 paths and 10,000 patterns. Here the cost of a path depends on its length, however many patterns
 * there are.
 *
 * Patterns are grouped by size: the largest power of two that is at most their length. The first and the last run of
 * that size overlap, so together they cover the pattern. Rolling hashes (Karp and Rabin, 1987) are computed of a path's
 * runs; a pattern is compared only where the hashes of both its ends are at the right distance. So a pattern pieced
 * together from parts of paths costs no comparison.
 */

export interface Pattern {
  id: number;
  pattern: string;
}

/** A pattern occurs in the path with this index in the list. */
export interface Match {
  id: number;
  path: number;
}

/** Paths after which `find` yields, so that other work can run. */
const TOGETHER = 50;
const BITS = 18;
const FACTOR = 0x01000193;

interface Sought extends Pattern {
  foundIn: number;
}

export class PatternSet {
  private readonly bySize = new Map<number, PatternsOfSize>();
  private numberOfPath = 0;

  /** @param pattern is not empty; the cost is proportional to its length */
  add({ id, pattern }: Pattern): void {
    const size = 2 ** Math.floor(Math.log2(pattern.length));
    const others = this.bySize.get(size) ?? new PatternsOfSize(size);
    this.bySize.set(size, others);
    others.add({ id, pattern, foundIn: 0 });
  }

  /** Yields all matches by path, and empty lists now and then, so that other work can run. */
  *find(paths: readonly string[]): Generator<Match[]> {
    for (const [n, path] of paths.entries()) {
      this.numberOfPath++;
      const found: Match[] = [];
      for (const patterns of this.bySize.values()) {
        for (const { id } of patterns.find(path, this.numberOfPath)) found.push({ id, path: n });
      }
      if (found.length > 0 || n % TOGETHER === 0) yield found;
    }
  }
}

/** Patterns that are at least as long as the size, and less than twice as long. */
class PatternsOfSize {
  private readonly size: number;
  /** The factor of the character that leaves a run. */
  private readonly power: number;
  /** Marks the hashes of first runs, and of both ends together. */
  private readonly noted = new Uint8Array(2 ** BITS);
  private readonly lengths = new Map<number, Set<number>>();
  private readonly byEnds = new Map<number, Sought[]>();

  constructor(size: number) {
    this.size = size;
    let power = 1;
    for (let n = 1; n < size; n++) power = Math.imul(power, FACTOR);
    this.power = power;
  }

  add(sought: Sought): void {
    const { size } = this;
    const { pattern } = sought;
    const [first = 0] = this.runsOf(pattern.slice(0, size));
    const [last = 0] = this.runsOf(pattern.slice(-size));
    const ends = numberOfBothEnds(first, last, pattern.length);
    this.noted[placeOfBit(first)] = 1;
    this.noted[placeOfBit(ends)] = 1;
    addToList(this.byEnds, ends, sought);
    const lengths = this.lengths.get(first);
    if (lengths) lengths.add(pattern.length);
    else this.lengths.set(first, new Set([pattern.length]));
  }

  /** Returns each pattern once, however often it occurs. @param number identifies the path */
  find(path: string, number: number): Sought[] {
    const { size, noted } = this;
    const found: Sought[] = [];
    const runs = this.runsOf(path);
    for (const [at, first] of runs.entries()) {
      if (noted[placeOfBit(first)] === 0) continue;
      for (const length of this.lengths.get(first) ?? []) {
        const last = runs[at + length - size];
        if (last === undefined) continue;
        const ends = numberOfBothEnds(first, last, length);
        if (noted[placeOfBit(ends)] === 0) continue;
        for (const sought of this.byEnds.get(ends) ?? []) {
          if (sought.foundIn === number || !path.startsWith(sought.pattern, at)) continue;
          sought.foundIn = number;
          found.push(sought);
        }
      }
    }
    return found;
  }

  /** Returns the hash of each run by its position, computed from the one before. */
  private runsOf(text: string): Int32Array {
    const { size, power } = this;
    const runs = new Int32Array(Math.max(text.length - size + 1, 0));
    let run = 0;
    for (let n = 0; runs.length > 0 && n < text.length; n++) {
      if (n >= size) run = (run - Math.imul(text.charCodeAt(n - size), power)) | 0;
      run = (Math.imul(run, FACTOR) + text.charCodeAt(n)) | 0;
      if (n >= size - 1) runs[n - size + 1] = run;
    }
    return runs;
  }
}

function addToList(lists: Map<number, Sought[]>, key: number, sought: Sought): void {
  const list = lists.get(key);
  if (list) list.push(sought);
  else lists.set(key, [sought]);
}

function numberOfBothEnds(first: number, last: number, length: number): number {
  return (Math.imul(Math.imul(first, FACTOR) + last, FACTOR) + length) | 0;
}

function placeOfBit(run: number): number {
  return Math.imul(run, 0x9e3779b1) >>> (32 - BITS);
}
