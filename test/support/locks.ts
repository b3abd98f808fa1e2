/** Database locks that a test holds to make other statements wait. */
import { ADVISORY_SPACE, advisoryKeys } from '../../src/db/locks.js';
import type { TestApp } from './app.js';
import { waitFor } from './wait.js';

/** Statement that takes the same lock as an import of the catalogue. */
export const AS_AN_IMPORT = `SELECT pg_advisory_xact_lock(${ADVISORY_SPACE}, ${advisoryKeys.catalogue})`;

/**
 * Takes locks.
 * @param sql a SELECT that locks rows
 * @returns a function that releases the locks
 */
export async function lock(app: TestApp, sql: string): Promise<() => Promise<void>> {
  const client = await app.ctx.db.pool.connect();
  try {
    await client.query('BEGIN');
    await client.query(sql);
  } catch (error) {
    client.release(true);
    throw error;
  }
  return async () => {
    await client.query('ROLLBACK');
    client.release();
  };
}

/** Waits until at least `count` statements wait for a lock. */
export async function waitForBlocked(app: TestApp, count: number): Promise<void> {
  await waitFor(`${count} waiting statements`, async () => {
    const { rowCount } = await app.ctx.db.pool.query(
      `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    );
    return (rowCount ?? 0) >= count;
  });
}

/**
 * Holds locks while `work` runs. @param work gets a function that waits until at least `count` statements wait for a
 * lock
 */
export async function whileLocked<T>(
  app: TestApp,
  sql: string,
  work: (waiters: (count: number) => Promise<void>) => Promise<T>,
): Promise<T> {
  const unlock = await lock(app, sql);
  try {
    return await work((count) => waitForBlocked(app, count));
  } finally {
    await unlock();
  }
}
