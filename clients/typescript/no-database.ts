/** Replaces src/cli/connection/context.ts in the client package, which cannot open a database. */
import { CommandError } from '../../src/cli/terminal/failure.js';

export const opensDatabases = false;

export function openContext(): never {
  throw new CommandError('this is the client alone: what opens the database is done where Tapegate is installed');
}
