/**
 * Changes may wait for the catalogue during an import, or for locked rows, and occupy a connection meanwhile. So
 * waiting callers share a part of the connections fairly. Changes of rows that are locked only briefly have their own
 * part, so that a suspension is possible at any time.
 */

import { checkWanted } from '../core/errors.js';
import type { Database } from '../db/client.js';
import { type Transaction, transaction } from '../db/transaction.js';
import type { Context } from './context.js';

/** Limiters of changes, by the lock that they may wait for; `short` never waits long, and of GraphQL queries. */
const limiters = {
  catalogue: 'takers',
  rows: 'changers',
  short: 'keepers',
  queries: 'queries',
} as const satisfies Record<string, keyof Database>;

/**
 * Runs work in a slot of the caller. Gives up if the caller disconnects before. Calls must not nest.
 * @throws UnavailableError, OverShareError if the caller has too many at once, and errors of the work
 */
export async function withSlot<T>(
  { db, share, reader }: Context,
  waitsFor: keyof typeof limiters,
  work: () => Promise<T>,
): Promise<T> {
  if (share === undefined) return await work(); // the process itself, without callers on the same connections
  const { leave } = await db[limiters[waitsFor]].enter(share, reader);
  try {
    return await work();
  } finally {
    leave();
  }
}

/** Runs a transaction in a slot of the caller. @throws as `withSlot` does */
export async function transactionInTurn<T>(
  ctx: Context,
  { waitsFor, name }: { waitsFor: keyof typeof limiters; name: string },
  work: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return await withSlot(ctx, waitsFor, () => transaction(ctx.db.pool, name, work));
}

/** Call it after waiting and before any change. @throws UnavailableError if the caller has disconnected */
export function checkConnected({ reader }: Context): void {
  checkWanted(reader);
}
