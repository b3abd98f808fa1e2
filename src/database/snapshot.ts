/** Long lists from one snapshot, page by page: memory holds one page however long the list is. */
import type pg from 'pg';

const PAGE = 2000;

export interface Snapshot {
  query<Row extends object>(text: string, values: unknown[]): Promise<Row[]>;
  /** The rows of a query in pages of up to 2,000. One stream at a time. */
  stream<Row extends object>(text: string, values: unknown[]): AsyncGenerator<Row[]>;
}

/** Gives `work` a view of the database in which all queries see the same moment. */
export async function withSnapshot<T>(pool: pg.Pool, work: (snapshot: Snapshot) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  const query = async <Row extends object>(text: string, values: unknown[]) =>
    (await client.query<Row>(text, values)).rows;
  let broken = false;
  try {
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
    return await work({
      query,
      stream: async function* stream<Row extends object>(text: string, values: unknown[]) {
        await query(`DECLARE list NO SCROLL CURSOR FOR ${text}`, values);
        for (;;) {
          const rows = await query<Row>(`FETCH ${PAGE} FROM list`, []);
          if (rows.length > 0) yield rows;
          if (rows.length < PAGE) break;
        }
        await query('CLOSE list', []);
      },
    });
  } finally {
    await client.query('ROLLBACK').catch(() => {
      broken = true;
    });
    client.release(broken);
  }
}
