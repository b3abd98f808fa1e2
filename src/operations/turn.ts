/** Who makes or revives requests waits for as long as an import has the catalogue, and keeps a connection meanwhile. */
import type { Context } from '../context.js';
import { checkWanted } from '../database/long-reads.js';

/**
 * What takes the catalogue's lock, in its turn: half of the connections are left for what need not wait, and nobody has all of the
 * others. What has not begun when its caller goes is given up.
 * @throws UnavailableError, and OverShareError where the caller itself has too many at once; and what the work throws
 */
export async function takeTurn<T>(ctx: Context, work: () => Promise<T>): Promise<T> {
  const { leave } = await ctx.db.takers.enter(ctx.share, ctx.reader);
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
