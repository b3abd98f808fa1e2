/** Long lists from one snapshot, page by page: memory holds one page however long the list is. */
import type pg from 'pg';
import { raw, type Sql, sql } from './sql.js';

const PAGE = 2000;
const FETCH = raw(`FETCH ${PAGE} FROM list`);

export interface Snapshot {
  query<Row extends object>(statement: Sql): Promise<Row[]>;
  /** The rows of a query in pages of up to 2,000. One stream at a time. */
  stream<Row extends object>(statement: Sql): AsyncGenerator<Row[]>;
}

/** Gives `work` a view of the database in which all queries see the same moment. */
export async function withSnapshot<T>(pool: pg.Pool, work: (snapshot: Snapshot) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  const query = async <Row extends object>(statement: Sql) => (await client.query<Row>(statement)).rows;
  let broken = false;
  try {
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
    return await work({
      query,
      stream: async function* stream<Row extends object>(statement: Sql) {
        await query(sql`DECLARE list NO SCROLL CURSOR FOR ${statement}`);
        for (;;) {
          const rows = await query<Row>(FETCH);
          if (rows.length > 0) yield rows;
          if (rows.length < PAGE) break;
        }
        await query(sql`CLOSE list`);
      },
    });
  } finally {
    await client.query('ROLLBACK').catch(() => {
      broken = true;
    });
    client.release(broken);
  }
}
