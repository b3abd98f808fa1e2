/** Describes the remaining work of engines, from the database, and the findings of the doctor. */
import type { Context } from '../../src/domain/context.js';
import { examine } from '../../src/engine/doctor/doctor.js';
import type { Violation } from './checker.js';

/** Ends all pauses before retries. @returns a description of the remaining work, empty if no work remains */
export async function describeWork({ db: { pool }, now }: Context, more: Record<string, number> = {}): Promise<string> {
  const time = [now()];
  await pool.query('UPDATE stager SET rest_until = NULL, read_rest_until = NULL');
  for (const statement of [
    'UPDATE recall SET not_before = NULL WHERE not_before > $1',
    `UPDATE staging SET due_at = $1 WHERE due_at > $1 AND state IN ('INTENDED', 'RELEASING')`,
    `UPDATE notification SET next_try_at = $1 WHERE state = 'PENDING' AND next_try_at > $1`,
    'UPDATE webhook SET next_try_at = $1 WHERE next_try_at > $1',
    `UPDATE webhook_message SET next_try_at = $1 WHERE state = 'PENDING' AND next_try_at > $1`,
    'UPDATE verification SET not_before = $1 WHERE not_before > $1',
    'UPDATE archive_link SET check_at = $1 WHERE check_at > $1 AND is_there',
  ]) {
    await pool.query(statement, time);
  }
  const { rows } = await pool.query<Record<string, bigint>>(
    `SELECT (SELECT count(*) FROM request WHERE state IN ('QUEUED', 'RESTORING')) AS "requests that are not done",
       (SELECT count(*) FROM request WHERE state NOT IN ('EXPIRED', 'CANCELLED')
         AND retention < $1::timestamp + interval '30 minutes') AS "requests that expire soon",
       (SELECT count(*) FROM request WHERE NOT is_released) AS "requests to release",
       (SELECT count(*) FROM recall) AS recalls,
       (SELECT count(*) FROM staging WHERE state <> 'KEPT') AS "staged files to release",
       (SELECT count(*) FROM tape_file WHERE disk_id IS NOT NULL AND stage <> 'RESTORED') AS "copies to remove",
       (SELECT count(*) FROM tape_file f WHERE stage = 'UNVERIFIED' AND verified IS NULL
         AND volume_id IS NOT NULL AND position IS NOT NULL AND checksum IS NOT NULL AND withdrawn_at IS NULL
         AND NOT EXISTS (SELECT FROM verification v WHERE v.file_id = f.id AND v.not_before IS NULL)
       ) AS "tape copies to confirm",
       (SELECT count(*) FROM archive_link WHERE check_at <= $1) AS "links to settle",
       (SELECT count(*) FROM notification WHERE state = 'PENDING') AS "emails to send",
       (SELECT count(*) FROM webhook_message WHERE state = 'PENDING') AS "webhook messages to send",
       (SELECT count(*) FROM event_batch b WHERE b.last_number IS NULL OR b.last_number > (SELECT last FROM webhook_cursor)
       ) AS "events to read for webhooks"`,
    time,
  );
  const counts = Object.entries({ ...rows[0], ...more }).filter(([, count]) => count > 0);
  return counts.map(([what, count]) => `${count} ${what}`).join(', ');
}

/**
 * @param expected returns whether findings about a path are allowed.
 * The path was changed outside Tapegate, or belongs to another user.
 */
export async function askDoctor(ctx: Context, expected: (place: string) => boolean): Promise<Violation[]> {
  const violations: Violation[] = [];
  await examine(ctx, { repair: false, checksums: true }, (finding) => {
    const { kind, object, expected: due, found } = finding;
    if (!expected(object))
      violations.push({ kind: 'doctor', text: `${kind}: ${object}: expected ${due}; found ${found}` });
  });
  return violations;
}
