/** What the rows of the audit may say was asked for. */
import { quote } from '../../errors.js';
import { policy } from '../policy.js';

/** Beside the operations of the policy: who is known is found out before, and these are commands with the database open. */
const others = ['identify', 'archive', 'repair', 'putBack', 'adopt'];

const names: readonly string[] = [...Object.keys(policy), ...others];

/** What is wrong with a name that nothing has; undefined where something has it. */
export function findUnknownOperation(name: string): string | undefined {
  if (names.includes(name)) return undefined;
  const alike = findAlike(name.toLowerCase());
  const hint = alike.length > 0 ? `is it ${alike.join(' or ')}?` : `there are ${[...names].sort().join(', ')}`;
  return `${quote(name)} is the name of nothing that is asked for: ${hint}`;
}

/** Of as many letters one may be wrong: more of them make it another word. */
const LETTERS_OF_ONE = 4;

/** Those that it is a part of, or else the nearest. */
function findAlike(given: string): string[] {
  const around = names.filter((name) => given.length >= LETTERS_OF_ONE && name.toLowerCase().includes(given));
  if (around.length > 0) return around;
  const distances = names.map((name) => distance(name.toLowerCase(), given));
  const nearest = Math.min(...distances);
  return nearest > given.length / LETTERS_OF_ONE ? [] : names.filter((_, n) => distances[n] === nearest);
}

/** Letters to be changed, added or taken away (Levenshtein). */
function distance(from: string, to: string): number {
  if (Math.abs(from.length - to.length) > to.length) return Number.POSITIVE_INFINITY;
  let row = Array.from({ length: to.length + 1 }, (_, n) => n);
  for (const [n, letter] of [...from].entries()) {
    const next = [n + 1];
    for (let m = 1; m <= to.length; m++) {
      const [above = 0, before = 0, left = 0] = [row[m], row[m - 1], next[m - 1]];
      next.push(Math.min(above + 1, left + 1, before + (to[m - 1] === letter ? 0 : 1)));
    }
    row = next;
  }
  return row[to.length] ?? 0;
}
