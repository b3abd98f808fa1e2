/**
 * Letters before requests expire: one for each retention. A request that has another one by now gets another letter in place of
 * the old one, when that is due; one that lives no longer than the notice, from when it was made, gets none, since whoever made it
 * knows. They go where the last mail goes, else where the first does. Killed at any line, the next run does what is left.
 */
import type { Context } from '../../context.js';
import { lockRequests } from '../../database/locks.js';
import { plannedFreely } from '../../database/planning.js';
import { type Sql, sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { addSeconds } from '../../time.js';
import { isLive } from '../conditions.js';
import { type DueLetter, writeLetter } from './notifications.js';

/** Requests of one transaction, which keeps them locked. */
const BATCH = 50;

/**
 * Queues the letters that are due.
 * @returns how many were queued
 */
export async function queueExpiring(ctx: Context, stop: AbortSignal): Promise<number> {
  let letters = 0;
  while (!stop.aborted) {
    const isDue = isExpiring(ctx);
    const { rows } = await ctx.db.pool.query<{ id: number }>(
      sql`SELECT r.id FROM request r WHERE ${isDue} ORDER BY r.retention LIMIT ${BATCH}`,
    );
    if (rows.length === 0) break;
    letters += await transaction(ctx.db.pool, 'queueExpiring', async (tx) => {
      const ids = await lockRequests(tx, sql`r.id = ANY(${rows.map(({ id }) => id)}::int[])`);
      // judged in a second statement, which sees what whoever had them locked before has written
      const due = await tx.query<DueLetter>(
        sql`SELECT r.id, 'EXPIRING' AS kind, coalesce(r.notify_on_last_file, r.notify_on_first_file) AS recipient,
              r.retention AS "expiresAt" FROM request r WHERE r.id = ANY(${ids}::int[]) AND ${isDue} ORDER BY r.id`,
      );
      if (due.length === 0) return 0;
      // a new row rather than the old one changed: whoever has the old one in hand notes nothing of the new one
      await tx.query(
        sql`DELETE FROM notification WHERE kind = 'EXPIRING' AND request_id = ANY(${due.map(({ id }) => id)}::int[])`,
      );
      tx.send(plannedFreely()); // the facts are of all files of a request
      for (const letter of due) await writeLetter(ctx, tx, letter);
      return due.length;
    });
  }
  return letters;
}

/** A condition on the request `r`: it ends within the notice, and whoever gets its mail was not told so. */
function isExpiring(ctx: Context): Sql {
  const now = ctx.now();
  const seconds = ctx.config.expiryNoticeHours * 3600;
  return sql`(r.retention > ${now}::timestamp AND r.retention <= ${addSeconds(now, seconds)}::timestamp AND ${isLive}
    AND r.retention > r.request_date + ${seconds}::float8 * interval '1 second' AND r.files_total > r.files_failed
    AND (r.notify_on_last_file IS NOT NULL OR r.notify_on_first_file IS NOT NULL)
    AND NOT EXISTS (SELECT FROM notification n
      WHERE n.request_id = r.id AND n.kind = 'EXPIRING' AND n.expires_at = r.retention))`;
}
