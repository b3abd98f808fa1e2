/** Transactions that also accept SQL as text. */
import type pg from 'pg';
import { raw, type Sql } from '../../src/db/sql.js';
import { transaction as run, type Transaction } from '../../src/db/transaction.js';

interface TestTransaction extends Transaction {
  query<Row extends object = object>(statement: Sql | string): Promise<Row[]>;
}

export async function transaction<T>(pool: pg.Pool, work: (tx: TestTransaction) => Promise<T>): Promise<T> {
  return await run(pool, 'test', (tx) =>
    work({ ...tx, query: (statement) => tx.query(typeof statement === 'string' ? raw(statement) : statement) }),
  );
}
