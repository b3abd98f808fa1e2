/** Compares names, to suggest names that a user might have meant. */

/**
 * Returns the smallest number of steps that turn one text into the other: a step inserts, deletes or replaces a
 * character, or swaps two neighbours. Returns `most + 1` if the number is larger than `most`.
 */
export function editDistance(one: string, other: string, most: number): number {
  const [a, b] = [[...one], [...other]];
  if (Math.abs(a.length - b.length) > most) return most + 1;
  let [before, above] = [[] as number[], b.map((_, n) => n)];
  above.push(b.length);
  for (const [row, character] of a.entries()) {
    const line = [row + 1];
    for (const [column, each] of b.entries()) {
      const at = (numbers: readonly number[], index: number) => numbers[index] ?? Number.POSITIVE_INFINITY;
      const isSwap = character === b[column - 1] && each === a[row - 1];
      line.push(
        Math.min(
          at(above, column) + (character === each ? 0 : 1),
          at(above, column + 1) + 1,
          at(line, column) + 1,
          isSwap ? at(before, column - 1) + 1 : Number.POSITIVE_INFINITY,
        ),
      );
    }
    if (Math.min(...line, ...above) > most) return most + 1;
    [before, above] = [above, line];
  }
  return Math.min(above.at(-1) ?? 0, most + 1);
}

/**
 * Returns the names that are most similar to `name`, the most similar name first. A difference in letter case counts
 * less than any other difference.
 */
export function findNearest(name: string, names: readonly string[], limit: number): string[] {
  const most = Math.max(1, Math.floor([...name].length / 3));
  const folded = name.toLowerCase();
  const near = names.flatMap((each) => {
    const distance = editDistance(folded, each.toLowerCase(), most);
    return distance > most ? [] : [{ each, distance, isCase: each !== name }];
  });
  near.sort((a, b) => a.distance - b.distance || Number(a.isCase) - Number(b.isCase) || (a.each < b.each ? -1 : 1));
  return near.slice(0, limit).map(({ each }) => each);
}
