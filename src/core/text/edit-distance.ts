/** Compares names, to suggest names that a user might have meant. */

/** A distance larger than every distance that is compared. */
const FAR = 0xffff;

/**
 * Returns the smallest number of steps that turn one text into the other: a step inserts, deletes or replaces a
 * character, or swaps two neighbours. Returns `most + 1` if the number is larger than `most`. The work is proportional
 * to the length of the texts times `most`, because only the cells near the diagonal of the table are computed.
 */
export function editDistance(one: string, other: string, most: number): number {
  if (Math.abs(one.length - other.length) > most) return most + 1;
  const width = other.length + 2;
  let [before, above, line] = [new Uint16Array(width), new Uint16Array(width), new Uint16Array(width)];
  for (let column = 0; column < width; column++) above[column] = column <= most ? column : FAR;
  let leastAbove = 0;
  for (let row = 1; row <= one.length; row++) {
    const least = fillLine({ one, other, most, row, before, above, line });
    if (Math.min(least, leastAbove) > most) return most + 1;
    leastAbove = least;
    [before, above, line] = [above, line, before];
  }
  return Math.min(above[other.length] ?? FAR, most + 1);
}

interface Line {
  one: string;
  other: string;
  most: number;
  row: number;
  before: Uint16Array;
  above: Uint16Array;
  line: Uint16Array;
}

/** Computes the cells of a line near the diagonal. @returns the smallest of them */
function fillLine({ one, other, most, row, before, above, line }: Line): number {
  const [from, to] = [Math.max(1, row - most), Math.min(other.length, row + most)];
  const at = (cells: Uint16Array, column: number): number => cells[column] ?? FAR;
  line[from - 1] = from === 1 && row <= most ? row : FAR;
  let least = at(line, from - 1);
  const character = one.charCodeAt(row - 1);
  for (let column = from; column <= to; column++) {
    const each = other.charCodeAt(column - 1);
    const replaced = at(above, column - 1) + (character === each ? 0 : 1);
    const isSwap =
      row > 1 && column > 1 && character === other.charCodeAt(column - 2) && each === one.charCodeAt(row - 2);
    const swapped = isSwap ? at(before, column - 2) + 1 : FAR;
    const cell = Math.min(replaced, at(above, column) + 1, at(line, column - 1) + 1, swapped);
    line[column] = Math.min(cell, FAR);
    least = Math.min(least, cell);
  }
  line[to + 1] = FAR;
  return least;
}

/** Names that differ by more steps than this are not similar, however long they are. */
const MOST = 4;

/**
 * Returns the names that are most similar to `name`, the most similar name first. A difference in letter case counts
 * less than any other difference.
 */
export function findNearest(name: string, names: readonly string[], limit: number): string[] {
  const most = Math.min(MOST, Math.max(1, Math.floor(name.length / 3)));
  const folded = name.toLowerCase();
  const near = names.flatMap((each) => {
    const distance = editDistance(folded, each.toLowerCase(), most);
    return distance > most ? [] : [{ each, distance, isCase: each !== name }];
  });
  near.sort((a, b) => a.distance - b.distance || Number(a.isCase) - Number(b.isCase) || (a.each < b.each ? -1 : 1));
  return near.slice(0, limit).map(({ each }) => each);
}
