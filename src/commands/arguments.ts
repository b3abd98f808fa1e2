/** What several commands are given, as numbers. */
import { CommandError, exitCodes } from './failure.js';

export function readId(text: string): number {
  const id = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
  if (id <= 0x7fffffff) return id;
  throw new CommandError(`the id of a request is a whole number, not ${JSON.stringify(text)}`, exitCodes.usage);
}

export function readLimit(text: string): number {
  if (/^\d{1,9}$/.test(text)) return Number(text);
  throw new CommandError(`--limit must be a whole number, not ${JSON.stringify(text)}`, exitCodes.usage);
}
