/** In the place of src/commands/context.ts, in the client that is installed alone. */
import { CommandError } from '../../src/commands/failure.js';

export const opensDatabases = false;

export function openContext(): never {
  throw new CommandError('this is the client alone: what opens the database is done where Tapegate is installed');
}
