/** Reads the totals of a user's requests. */
import type { Context } from '../../src/domain/context.js';

interface Standing {
  held: number;
  noted: number;
  /** Number of requests whose excluded paths are not all recorded. */
  more: number;
  used: bigint;
}

export async function readStanding({ db }: Context, user: string): Promise<Standing | undefined> {
  const { rows } = await db.pool.query<Standing>(
    `SELECT (SELECT count(*)::int FROM request_file h JOIN request r ON r.id = h.request_id WHERE r.quota_id = q.id) AS held,
       (SELECT count(*)::int FROM unresolved_path a JOIN request r ON r.id = a.request_id WHERE r.quota_id = q.id) AS noted,
       (SELECT count(*)::int FROM request r WHERE r.quota_id = q.id AND r.excluded_size IS NOT NULL) AS more, q.used
     FROM quota q WHERE q."user" = $1`,
    [user],
  );
  return rows[0];
}
