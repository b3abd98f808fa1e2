/**
 * Transactions in plain SQL.
 *
 * Locks are taken in this order, so that deadlocks stay rare: request, quota, file, recall, drive, disk, event.
 * A transaction that PostgreSQL ends for a deadlock is run again, so the callback must have no effect outside it.
 */
import type pg from 'pg';
import { codeOf } from '../errors.js';

export interface Transaction {
  /** The rows of one statement. */
  query<Row extends object = object>(text: string, values?: unknown[]): Promise<Row[]>;
  /** Runs once, as the last thing before the commit; the key keeps a second call with the same one out. */
  beforeCommit(key: string, work: () => Promise<void>): void;
}

const DEADLOCK = '40P01';
const MAX_ATTEMPTS = 5;

/** Runs `work` in one transaction; what it throws rolls back and is thrown on. */
export async function transaction<T>(pool: pg.Pool, work: (tx: Transaction) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  let broken = true;
  try {
    const result = await runTransaction(client, work);
    broken = false;
    return result;
  } catch (error) {
    // an error that PostgreSQL or the caller reports leaves the connection whole
    broken = !(await client.query('SELECT 1').then(
      () => true,
      () => false,
    ));
    throw error;
  } finally {
    client.release(broken);
  }
}

/** The same on a connection of the caller's. */
export async function runTransaction<T>(client: pg.PoolClient, work: (tx: Transaction) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await runOnce(client, work);
    } catch (error) {
      if (codeOf(error) !== DEADLOCK || attempt === MAX_ATTEMPTS) throw error;
    }
  }
}

async function runOnce<T>(client: pg.PoolClient, work: (tx: Transaction) => Promise<T>): Promise<T> {
  const last = new Map<string, () => Promise<void>>();
  const tx: Transaction = {
    query: async <Row extends object>(text: string, values: unknown[] = []) => {
      const { rows } = await client.query<Row>(text, values);
      return rows;
    },
    beforeCommit: (key, task) => {
      if (!last.has(key)) last.set(key, task);
    },
  };
  await client.query('BEGIN');
  try {
    const result = await work(tx);
    for (const task of last.values()) await task();
    await client.query('COMMIT');
    return result;
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {}); // a connection that broke has rolled back
    throw error;
  }
}

/** Keys of PostgreSQL advisory locks, all in one space. */
const LOCK_SPACE = 1413563205;
const CATALOGUE = 2;
const NEW_VOLUME = 3;

/**
 * Held shared by whoever matches a request with the catalogue, alone by whoever adds to the catalogue, both until
 * their commit: no file appears between a request's look at the catalogue and its commit without joining it.
 */
export async function lockCatalogue(tx: Transaction, mode: 'shared' | 'alone'): Promise<void> {
  const suffix = mode === 'shared' ? '_shared' : '';
  await tx.query(`SELECT pg_advisory_xact_lock${suffix}(${LOCK_SPACE}, ${CATALOGUE})`);
}

/** Held by whoever gives out places on volumes, so that no two begin the same one. */
export async function lockVolumes(tx: Transaction): Promise<void> {
  await tx.query(`SELECT pg_advisory_xact_lock(${LOCK_SPACE}, ${NEW_VOLUME})`);
}
