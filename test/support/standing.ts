/** What is in the requests of a user, all together, and left out of them. */
import type { Context } from '../../src/context.js';

interface Standing {
  held: number;
  noted: number;
  /** Requests from which more was left out than is noted. */
  more: number;
  used: bigint;
}

export async function readStanding({ db }: Context, user: string): Promise<Standing | undefined> {
  const { rows } = await db.pool.query<Standing>(
    `SELECT (SELECT count(*)::int FROM hold h JOIN request r ON r.id = h.request_id WHERE r.quota_id = q.id) AS held,
       (SELECT count(*)::int FROM awaited_path a JOIN request r ON r.id = a.request_id WHERE r.quota_id = q.id) AS noted,
       (SELECT count(*)::int FROM request r WHERE r.quota_id = q.id AND r.left_out_size IS NOT NULL) AS more, q.used
     FROM quota q WHERE q."user" = $1`,
    [user],
  );
  return rows[0];
}
