/**
 * The outbox for emails. The transaction that changes a request also stores the email about the change, and an engine
 * sends the email later (src/engine/notifications/notify.ts). Therefore, emails are not lost while the mail server is
 * down. A request gets one email of each kind, and one expiry notice for each retention date (`queueExpiring`).
 */
import { randomUUID } from 'node:crypto';
import { addSeconds } from '../../../core/time.js';
import { lockRequests } from '../../../db/locks.js';
import { plannedFreely } from '../../../db/planning.js';
import { type Sql, sql } from '../../../db/sql.js';
import { type Transaction, transaction } from '../../../db/transaction.js';
import type { NotificationKind } from '../../../generated/prisma/enums.js';
import { isAllowedIn } from '../../access/paths.js';
import { diskOfCopy, diskPath, isAtPrimaryPath, isLive } from '../../conditions.js';
import type { Context } from '../../context.js';
import { composeMail, linkToRequest, type MailFacts } from './mail.js';

const LISTED_PATHS = 20;

interface DueLetter {
  id: number;
  kind: NotificationKind;
  recipient: string;
  expiresAt?: string;
}

/**
 * Queues the emails that are due for the given requests, except emails that were queued before. If all files of a
 * request were released, does not queue the email that announces the request's completion (LAST_FILE). The completion
 * email can be queued later, after another file has been added to the request.
 */
export async function queueMail(ctx: Context, tx: Transaction, requestIds: readonly number[]): Promise<void> {
  const due = await tx.query<DueLetter>(
    sql`SELECT r.id, d.kind, d.recipient FROM request r CROSS JOIN LATERAL (VALUES
       ('FIRST_FILE'::"NotificationKind", r.notify_on_first_file, r.files_on_disk > 0),
       ('LAST_FILE'::"NotificationKind", r.notify_on_last_file, r.state IN ('COMPLETED', 'PARTIAL')
         AND NOT (r.files_total = 0
           AND EXISTS (SELECT FROM request_file h WHERE h.request_id = r.id AND h.state = 'RELEASED')))
     ) AS d (kind, recipient, is_due)
     WHERE r.id = ANY(${requestIds}::int[]) AND d.is_due AND d.recipient IS NOT NULL
       AND ${isLive}
       AND NOT EXISTS (SELECT FROM notification n WHERE n.request_id = r.id AND n.kind = d.kind)
     ORDER BY r.id, d.kind`,
  );
  // let PostgreSQL choose the query plan, because the text of an email depends on all files of the request
  if (due.length > 0) tx.send(plannedFreely());
  for (const email of due) await writeEmail(ctx, tx, email);
}

/**
 * Deletes queued emails that have become outdated. Keeps emails that an engine has begun to send. The caller must have
 * locked the requests.
 */
export async function deleteUnsentMail(tx: Transaction, requestIds: readonly number[]): Promise<void> {
  await tx.query(
    sql`DELETE FROM notification n USING request r
        WHERE n.request_id = ANY(${requestIds}::int[]) AND r.id = n.request_id AND n.state = 'PENDING' AND n.claimed_at IS NULL
          AND ((n.kind = 'FIRST_FILE' AND r.files_on_disk = 0) OR (n.kind = 'LAST_FILE' AND r.state NOT IN ('COMPLETED', 'PARTIAL')))`,
  );
}

/** Adds an email to the outbox, unless the outbox already has an email of the same kind for the request. */
async function writeEmail(ctx: Context, tx: Transaction, { id, kind, recipient, expiresAt }: DueLetter): Promise<void> {
  const { subject, body } = composeMail(kind, { ...(await readFacts(tx, id)), link: linkToRequest(ctx.config, id) });
  const [messageId, now] = [createMessageId(ctx.config.mailFrom), ctx.now()];
  await tx.query(
    sql`INSERT INTO notification (request_id, kind, recipient, subject, body, message_id, next_try_at, created_at, expires_at)
        VALUES (${id}, ${kind}, ${recipient}, ${subject}, ${body}, ${messageId}, ${now}, ${now}, ${expiresAt ?? null})
        ON CONFLICT (request_id, kind) DO NOTHING`,
  );
}

function createMessageId(mailFrom: string): string {
  const domain = mailFrom.split('@').at(-1) ?? '';
  return `<${randomUUID()}@${domain.replace(/[^\w.-]/g, '') || 'localhost'}>`;
}

async function readFacts(tx: Transaction, requestId: number): Promise<Omit<MailFacts, 'link'>> {
  const [request] = await tx.query<Omit<MailFacts, 'link' | 'copies' | 'failed' | 'unresolved' | 'mountpoints'>>(
    sql`SELECT id AS "requestId", label, pattern, retention, files_total AS "filesTotal",
       files_on_disk AS "filesOnDisk", files_failed AS "filesFailed", bytes_on_disk AS "bytesOnDisk",
       (SELECT count(*)::int FROM unresolved_path a WHERE a.request_id = ${requestId} AND a.reason = 'UNKNOWN') AS "filesUnknown",
       (SELECT count(*)::int FROM unresolved_path a WHERE a.request_id = ${requestId} AND a.reason = 'QUOTA_FULL') AS "filesRefused",
       (SELECT count(*)::int FROM unresolved_path a WHERE a.request_id = ${requestId} AND a.reason = 'LIMIT') AS "filesOverLimit",
       (SELECT count(*)::int FROM request_file h WHERE h.request_id = ${requestId} AND h.state = 'RELEASED') AS "filesReleased"
     FROM request WHERE id = ${requestId}`,
  );
  if (!request) throw new Error(`request ${requestId} vanished`);
  const copies = await tx.query<{ path: string; mountpoint: string | null }>(
    sql`SELECT CASE WHEN ${isAllowedIn('FETCH')} AND d.id IS NOT NULL THEN ${diskPath} ELSE f.path END AS path, CASE WHEN ${isAllowedIn('FETCH')} THEN d.mountpoint END AS mountpoint
     FROM request_file h JOIN request r ON r.id = h.request_id JOIN tape_file f ON f.id = h.file_id
       LEFT JOIN restore_disk d ON d.id = ${diskOfCopy}
     WHERE h.request_id = ${requestId} AND h.state = 'ON_DISK' AND h.ordinal > 0 AND (d.id IS NOT NULL OR ${isAtPrimaryPath})
     ORDER BY h.ordinal LIMIT ${LISTED_PATHS}`,
  );
  const failed = await tx.query<{ path: string; error: string }>(
    sql`SELECT f.path, h.error FROM request_file h JOIN tape_file f ON f.id = h.file_id
     WHERE h.request_id = ${requestId} AND h.state = 'FAILED' AND h.ordinal > 0 ORDER BY h.ordinal LIMIT ${LISTED_PATHS}`,
  );
  const unresolved = await tx.query<MailFacts['unresolved'][number]>(
    sql`SELECT path, reason FROM unresolved_path WHERE request_id = ${requestId} ORDER BY ordinal LIMIT ${LISTED_PATHS}`,
  );
  const disks = await tx.query<{ mountpoint: string }>(
    // if a file is not at its logical path, leave the email's list of mount points empty
    sql`SELECT unnest(array_agg(DISTINCT d.mountpoint ORDER BY d.mountpoint)) AS mountpoint FROM request_file h JOIN request r ON r.id = h.request_id
       JOIN tape_file f ON f.id = h.file_id JOIN restore_disk d ON d.id = ${diskOfCopy}
     WHERE h.request_id = ${requestId} AND h.state = 'ON_DISK' AND ${isAllowedIn('FETCH')} HAVING bool_and(f.disk_path IS NULL)`,
  );
  return { ...request, copies, failed, unresolved, mountpoints: disks.map((disk) => disk.mountpoint) };
}

const BATCH = 50;

/**
 * Queues expiry notices. If a request's retention date has changed, the new notice replaces the earlier notice. A
 * request with a lifetime shorter than the notice period does not get a notice.
 */
export async function queueExpiring(ctx: Context, stop: AbortSignal): Promise<number> {
  let emails = 0;
  while (!stop.aborted) {
    const isDue = isExpiring(ctx);
    const rows = await ctx.db.rows<{ id: number }>(
      sql`SELECT r.id FROM request r WHERE ${isDue} ORDER BY r.retention LIMIT ${BATCH}`,
    );
    if (rows.length === 0) break;
    emails += await transaction(ctx.db.pool, 'queueExpiring', async (tx) => {
      const ids = await lockRequests(tx, sql`r.id = ANY(${rows.map(({ id }) => id)}::int[])`);
      // check again whether a notice is due: another transaction might have changed the requests before this
      // transaction locked them
      const due = await tx.query<DueLetter>(
        sql`SELECT r.id, 'EXPIRING' AS kind, coalesce(r.notify_on_last_file, r.notify_on_first_file) AS recipient,
              r.retention AS "expiresAt" FROM request r WHERE r.id = ANY(${ids}::int[]) AND ${isDue} ORDER BY r.id`,
      );
      if (due.length === 0) return 0;
      // delete the row of the earlier notice; otherwise, an engine that is sending this notice would record its result
      // for the new notice
      await tx.query(
        sql`DELETE FROM notification WHERE kind = 'EXPIRING' AND request_id = ANY(${due.map(({ id }) => id)}::int[])`,
      );
      tx.send(plannedFreely());
      for (const email of due) await writeEmail(ctx, tx, email);
      return due.length;
    });
  }
  return emails;
}

function isExpiring(ctx: Context): Sql {
  const now = ctx.now();
  const seconds = ctx.config.expiryNoticeHours * 3600;
  return sql`(r.retention > ${now}::timestamp AND r.retention <= ${addSeconds(now, seconds)}::timestamp AND ${isLive}
    AND r.retention > r.request_date + ${seconds}::float8 * interval '1 second' AND r.files_total > r.files_failed
    AND (r.notify_on_last_file IS NOT NULL OR r.notify_on_first_file IS NOT NULL)
    AND NOT EXISTS (SELECT FROM notification n
      WHERE n.request_id = r.id AND n.kind = 'EXPIRING' AND n.expires_at = r.retention))`;
}
