/**
 * Reads lists from a standby (TAPEGATE_DATABASE_READ_URL) that has replayed all commits made before the request. The
 * primary serves all other reads.
 */

import { codeOf, UnavailableError, UserError } from '../core/errors.js';
import type { Paced } from '../db/lists/snapshot.js';
import type { Context } from './context.js';

/**
 * Reads a list from a standby, or from the primary if no standby is usable. If `work` fails on a standby before it
 * delivers a page, runs it again on the primary.
 */
export async function atListServer<T>(
  ctx: Context,
  work: (at: Context, given: <Page>(pages: Paced<Page>) => Paced<Page>) => Promise<T>,
): Promise<T> {
  const standby = await ctx.standbys?.choose();
  if (!standby) return await work(ctx, (pages) => pages);
  let hasBegun = false;
  const given = <Page>(pages: Paced<Page>): Paced<Page> => {
    const read = async function* read() {
      for await (const page of pages) {
        hasBegun = true;
        yield page;
      }
    };
    return { ...pages, [Symbol.asyncIterator]: read };
  };
  try {
    return await work({ ...ctx, db: standby.db }, given);
  } catch (error) {
    if (hasBegun || !isOfStandby(error)) throw error;
    return await work(ctx, (pages) => pages);
  }
}

const STATEMENT_TIMED_OUT = '57014';

/**
 * Returns whether a read failed only because it ran on a standby: the standby cancelled the read during WAL replay, or
 * the standby is down. Returns false if the read would also fail on the primary.
 */
export function isOfStandby(error: unknown): boolean {
  if (error instanceof UserError) return false;
  if (!(error instanceof UnavailableError) || error.kind === 'away') return true;
  return error.cause !== undefined && codeOf(error.cause) !== STATEMENT_TIMED_OUT;
}
