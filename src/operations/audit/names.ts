/** What the rows of the audit may say was asked for. */
import { quote } from '../../errors.js';
import { policy } from '../policy.js';

/** Beside the operations of the policy: who is known is found out before, and these are commands with the database open. */
const others = ['identify', 'archive', 'repair', 'putBack', 'adopt'];

const names: readonly string[] = [...Object.keys(policy), ...others];

/** Returns what is wrong with the name of an operation, as the rest of a sentence, or undefined if the operation exists. */
export function findUnknownOperation(name: string): string | undefined {
  if (names.includes(name)) return undefined;
  return `${quote(name)} is unknown; the operations are ${[...names].sort().join(', ')}`;
}
