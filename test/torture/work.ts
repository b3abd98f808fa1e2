/** What is left to do by an engine, as the database says it. */
import type { Context } from '../../src/context.js';

/** Retentions that end within this time end before the check. */
const SOON = '30 minutes';

/** How much there is of each kind. Pauses between two tries are cut short. */
export async function countWork(ctx: Context): Promise<Record<string, bigint>> {
  const { pool } = ctx.db;
  const now = [ctx.now()];
  await pool.query('UPDATE recall SET not_before = NULL WHERE not_before > $1', now);
  await pool.query('UPDATE stager SET rest_until = NULL, read_rest_until = NULL');
  await pool.query(`UPDATE staging SET due_at = $1 WHERE due_at > $1 AND state IN ('INTENDED', 'RELEASING')`, now);
  await pool.query(`UPDATE notification SET next_try_at = $1 WHERE state = 'PENDING' AND next_try_at > $1`, now);
  await pool.query('UPDATE webhook SET next_try_at = $1 WHERE next_try_at > $1', now);
  await pool.query(`UPDATE webhook_message SET next_try_at = $1 WHERE state = 'PENDING' AND next_try_at > $1`, now);
  await pool.query('UPDATE verification SET not_before = $1 WHERE not_before > $1', now);
  await pool.query('UPDATE archive_link SET look_at = $1 WHERE look_at > $1 AND is_there', now);
  const { rows } = await pool.query<Record<string, bigint>>(
    `SELECT (SELECT count(*) FROM request WHERE state IN ('QUEUED', 'RESTORING')) AS "requests that are not done",
       (SELECT count(*) FROM request WHERE state NOT IN ('EXPIRED', 'CANCELLED')
         AND retention < $1::timestamp + interval '${SOON}') AS "requests that end soon",
       (SELECT count(*) FROM request WHERE NOT is_released) AS "requests that are not released",
       (SELECT count(*) FROM recall) AS recalls,
       (SELECT count(*) FROM staging WHERE state <> 'KEPT') AS "files to be released",
       (SELECT count(*) FROM tape_file WHERE disk_id IS NOT NULL AND stage <> 'RESTORED') AS "copies to be removed",
       (SELECT count(*) FROM tape_file f WHERE stage = 'UNVERIFIED' AND verified IS NULL
         AND volume_id IS NOT NULL AND position IS NOT NULL AND checksum IS NOT NULL
         AND NOT EXISTS (SELECT FROM verification v WHERE v.file_id = f.id AND v.not_before IS NULL)
       ) AS "tape copies to be confirmed",
       (SELECT count(*) FROM archive_link WHERE look_at <= $1) AS "links to be settled",
       (SELECT count(*) FROM notification WHERE state = 'PENDING') AS "letters to be sent",
       (SELECT count(*) FROM webhook_message WHERE state = 'PENDING') AS "messages to be sent",
       (SELECT count(*) FROM event_batch b WHERE b.last_number IS NULL OR b.last_number > (SELECT last FROM webhook_cursor)
       ) AS "events to be looked through"`,
    now,
  );
  return rows[0] ?? {};
}

/** In words; empty when there is nothing. */
export function describeWork(counts: Record<string, bigint>): string {
  const left = Object.entries(counts).filter(([, count]) => count > 0n);
  return left.map(([what, count]) => `${count} ${what}`).join(', ');
}

const EXAMPLES = 3;

/** Some of what is left to do, for whoever asks why: the rows, and what keeps drives from their volumes. */
export async function describeLeft(ctx: Context): Promise<string> {
  const { rows } = await ctx.db.pool.query<{ row: unknown }>(
    `(SELECT to_jsonb(r) AS row FROM request r WHERE state IN ('QUEUED', 'RESTORING') OR NOT is_released LIMIT ${EXAMPLES})
     UNION ALL (SELECT jsonb_build_object('recall', c, 'file', f) FROM recall c JOIN tape_file f ON f.id = c.file_id LIMIT ${EXAMPLES})
     UNION ALL (SELECT jsonb_build_object('file', f, 'verification', v) FROM tape_file f LEFT JOIN verification v ON v.file_id = f.id
       WHERE stage = 'UNVERIFIED' AND verified IS NULL AND checksum IS NOT NULL AND volume_id IS NOT NULL AND position IS NOT NULL
       ORDER BY v.file_id IS NULL DESC, v.not_before LIMIT ${EXAMPLES})
     UNION ALL (SELECT to_jsonb(v) FROM volume v WHERE failures > 0)
     UNION ALL (SELECT to_jsonb(s) FROM suspension s)
     UNION ALL (SELECT to_jsonb(d) FROM drive d)`,
  );
  return rows.map(({ row }) => JSON.stringify(row)).join('\n  ');
}
