/**
 * Reads lists at a standby (TAPEGATE_DATABASE_READ_URL) that has replayed all commits up to the request. The primary
 * serves all other reads: decisions on changes, lookups by key, and event streams, which are numbered there.
 */

import { codeOf, UnavailableError, UserError } from '../core/errors.js';
import type { Paced } from '../db/snapshot.js';
import type { Context } from './context.js';

/** Reads a list at a standby, else at the primary. Retries a failed `work` at the primary if it delivered no page. */
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
 * Returns whether the primary may answer a read that failed at a standby: replay has cancelled it, or the standby is
 * down. A read that took too long, or whose caller has no slot or has disconnected, would fail again.
 */
export function isOfStandby(error: unknown): boolean {
  if (error instanceof UserError) return false;
  if (!(error instanceof UnavailableError) || error.kind === 'away') return true;
  return error.cause !== undefined && codeOf(error.cause) !== STATEMENT_TIMED_OUT;
}
