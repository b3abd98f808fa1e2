/**
 * Limits the number of database connections that data-changing operations can occupy. A data-changing operation
 * occupies its connection even while it waits for a lock. Therefore, long changes share a limited number of connections
 * fairly among callers. Short changes use other connections, so that an operator can always suspend a drive, volume or
 * user.
 */

import { checkWanted } from '../core/errors.js';
import type { Database } from '../db/pools.js';
import { type Transaction, transaction } from '../db/transaction.js';
import type { Context } from './context.js';

/**
 * Limiters for GraphQL queries and for changes. A change's limiter depends on the lock that the change might wait for.
 */
const limiters = {
  catalogue: 'takers',
  rows: 'changers',
  short: 'keepers',
  queries: 'queries',
} as const satisfies Record<string, keyof Database>;

/**
 * Runs `work` in one of the caller's limiter slots. Gives up if the caller disconnects before a slot is free. `work`
 * must not take another slot.
 * @throws UnavailableError; OverShareError if the caller uses too many slots; any error that `work` throws
 */
export async function withSlot<T>(
  { db, share, reader }: Context,
  waitsFor: keyof typeof limiters,
  work: () => Promise<T>,
): Promise<T> {
  if (share === undefined) return await work(); // Tapegate's own operations do not need a slot
  const { leave } = await db[limiters[waitsFor]].enter(share, reader);
  try {
    return await work();
  } finally {
    leave();
  }
}

/**
 * Runs a transaction in one of the caller's limiter slots.
 * @throws the same errors as `withSlot`
 */
export async function transactionInTurn<T>(
  ctx: Context,
  { waitsFor, name }: { waitsFor: keyof typeof limiters; name: string },
  work: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return await withSlot(ctx, waitsFor, () => transaction(ctx.db.pool, name, work));
}

/**
 * Checks that the caller is still connected. Operations call this function after waiting for a lock, before they change
 * anything.
 * @throws UnavailableError
 */
export function checkConnected({ reader }: Context): void {
  checkWanted(reader);
}
