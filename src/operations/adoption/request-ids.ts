/** The ids of requests there: which can be ids here, and from which one on ids are given here. */
import type { PoolClient } from 'pg';
import { raw, type Sql, sql } from '../../database/sql.js';
import type { Adopting } from './report.js';

/**
 * The largest that is taken over. Ids here are 32 bits wide and are given upwards, so that one at their end would leave none for new
 * requests, and none to leave out when a backup is put back. What is kept free is fifty years of ten thousand requests a day.
 */
export const LAST_ADOPTED_ID = 2 ** 31 - 2 * 10 ** 8;

/** @returns of a text: the id of a request that it is, and null for any other, in whatever order the database evaluates conditions */
export function requestIdOf(column: string): Sql {
  const number = sql`CASE WHEN ${raw(column)} ~ '^[0-9]{1,10}$' THEN ${raw(column)}::bigint END`;
  return sql`(CASE WHEN ${number} <= ${LAST_ADOPTED_ID} THEN ${number} END)`;
}

const PAGE = 1000;

/** Tells of requests, and of the last id there, what cannot be an id here: none is passed over in silence. */
export async function tellRefusedIds(client: PoolClient, { tell }: Adopting): Promise<void> {
  await client.query(
    sql`DECLARE refused_ids CURSOR WITH HOLD FOR SELECT s.id, false AS "isLast" FROM source_taperequest s WHERE ${requestIdOf('s.id')} IS NULL
        UNION ALL SELECT l.id, true FROM source_last_request l WHERE ${requestIdOf('l.id')} IS NULL`,
  );
  try {
    for (;;) {
      const { rows } = await client.query<{ id: string | null; isLast: boolean }>(
        sql`FETCH ${raw(String(PAGE))} FROM refused_ids`,
      );
      for (const { id, isLast } of rows) {
        const thing = id ?? 'no id';
        const why = /^\d+$/.test(thing) ? 'is too large' : 'is no id';
        const bound = `ids here are numbers from 0 to ${LAST_ADOPTED_ID}`;
        if (isLast) {
          const here = `passed over: it ${why}, and ${bound}; ids here go on after the largest that is taken over`;
          tell({ kind: 'request-refused', thing, there: 'the last id that was given to a request', here });
        } else tell({ kind: 'request-refused', thing, there: 'a request', here: `nothing: it ${why}; ${bound}` });
      }
      if (rows.length < PAGE) return;
    }
  } finally {
    await client.query(sql`CLOSE refused_ids`);
  }
}

/** No id that was given out there, be it of a request that is there no more, is given to another one here. */
export async function goBeyondIds(client: PoolClient): Promise<void> {
  const ids = sql`SELECT s.id FROM source_taperequest s UNION ALL SELECT l.id FROM source_last_request l`;
  await client.query(
    sql`SELECT setval('request_id_seq', greatest(m.last, (SELECT last_value FROM request_id_seq)))
        FROM (SELECT max(${requestIdOf('i.id')}) AS last FROM (${ids}) i) m WHERE m.last > 0`,
  );
}
