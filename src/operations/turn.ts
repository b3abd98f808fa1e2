/**
 * Whoever changes something may have to wait: for the catalogue while an import has it, for rows that somebody else has locked. It keeps
 * a connection meanwhile, so what waits on behalf of callers has a share of these, and so has each caller of that.
 */
import type { Context } from '../context.js';
import { checkWanted } from '../database/long-reads.js';

/**
 * Does what may have to wait, in its turn. What has not begun when its caller goes is given up. Turns are not taken within each other.
 * @param waitsFor the catalogue for as long as an import goes on, or only what others have locked
 * @throws UnavailableError, and OverShareError where the caller itself has too many at once; and what the work throws
 */
export async function takeTurn<T>(
  { db, share, reader }: Context,
  waitsFor: 'catalogue' | 'rows',
  work: () => Promise<T>,
): Promise<T> {
  if (share === undefined) return await work(); // the program itself, which answers nobody by the same connections
  const { leave } = await db[waitsFor === 'catalogue' ? 'takers' : 'changers'].enter(share, reader);
  try {
    return await work();
  } finally {
    leave();
  }
}

/**
 * To be asked once everything that is waited for is there, and nothing has been done yet.
 * @throws UnavailableError where the caller has gone meanwhile
 */
export function checkAsked({ reader }: Context): void {
  checkWanted(reader);
}
