/** Who makes or revives requests waits for as long as an import has the catalogue, and keeps a connection meanwhile. */
import type { Context } from '../../context.js';

/**
 * What takes the catalogue's lock, in its turn: half of the connections are left for what need not wait, and nobody has all of the
 * others.
 * @throws UnavailableError, and OverShareError where the caller itself has too many at once; and what the work throws
 */
export async function takeTurn<T>(ctx: Context, work: () => Promise<T>): Promise<T> {
  const { leave } = await ctx.db.takers.enter(ctx.share);
  try {
    return await work();
  } finally {
    leave();
  }
}
