/**
 * Which of many patterns are in which of many paths. Each pattern in each path would be fifty million searches for five thousand paths
 * and ten thousand patterns; so a path costs about as much as it has letters, however many patterns there are.
 *
 * Patterns are told apart by their size, the greatest power of two that they are not shorter than. What a pattern has of that size at its
 * beginning and at its end are all of it together, since they overlap. A path's runs of that size are reckoned to numbers (Rabin and
 * Karp, 1987), and a pattern is compared with it only where both of its ends are as far apart as they have to be. So no letter of a
 * pattern is left out of account: one of pieces of paths, put together so that no path holds it, costs no comparison.
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

/** Paths after which there is a breath, though nothing was found. */
const TOGETHER = 50;
const BITS = 18;
const FACTOR = 0x01000193;

interface Sought extends Pattern {
  /** The number of the path in which it was found last. */
  foundIn: number;
}

export class PatternSet {
  private readonly bySize = new Map<number, PatternsOfSize>();
  private numberOfPath = 0;

  /** @param pattern is not empty; it costs as much as it is long */
  add({ id, pattern }: Pattern): void {
    const size = 2 ** Math.floor(Math.log2(pattern.length));
    const others = this.bySize.get(size) ?? new PatternsOfSize(size);
    this.bySize.set(size, others);
    others.add({ id, pattern, foundIn: 0 });
  }

  /** All matches, path by path; where nothing matches it gives an empty list now and then, to breathe. */
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

/** Patterns that are at least as long as their size, and not twice as long. */
class PatternsOfSize {
  private readonly size: number;
  /** What the letter that leaves a run counted in it. */
  private readonly power: number;
  /** Bits of the runs at the beginning, and of both ends together. */
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

  /** Each pattern once, wherever and however often it is in the path. @param number the path's own */
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

  /** The number of each run of letters, by its place, which is reckoned from the one before it. */
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
