/** Operators who tell the catalogue of the same files, one after another. */

let last: Promise<unknown> = Promise.resolve();

/** Who tells sizes of files that somebody else changes just then would tell those of before. */
export function inTurn(work: () => Promise<void>): Promise<void> {
  const done = last.then(work, work);
  last = done.catch(() => {});
  return done;
}
