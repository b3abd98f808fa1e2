/** Locks of the database that a test holds, so that what races for them waits, in the order in which it came. */
import type { TestApp } from './app.js';
import { waitFor } from './wait.js';

/**
 * Has all wait who want to lock what the statement locks. @returns what lets them go on
 * @param sql a SELECT that locks
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

/** Waits until so many statements wait for a lock. */
export async function waitForBlocked(app: TestApp, count: number): Promise<void> {
  await waitFor(`${count} to wait for a lock`, async () => {
    const { rowCount } = await app.ctx.db.pool.query(
      `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    );
    return (rowCount ?? 0) >= count;
  });
}

/**
 * Holds locks while `work` begins.
 * @param work is given what waits until so many wait for a lock
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
