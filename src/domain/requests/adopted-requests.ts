/**
 * Adopts requests from another system, and keeps their ids and times. Charges the quota for an adopted request even if
 * the quota is full.
 */

import { isBefore } from '../../core/time.js';
import { lockCatalogue } from '../../db/locks.js';
import { type Sql, sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import { isOffered } from '../conditions.js';
import type { Context } from '../context.js';
import { holdsText } from '../match.js';
import { findQuota } from '../quotas/charges.js';
import { recountRequests } from './progress.js';
import { settleRequests } from './request-files.js';

export interface AdoptedRequest {
  id: number;
  user: string;
  /** The request's pattern; empty if the request lists files. */
  pattern: string;
  files: readonly string[] | undefined;
  label: string;
  requestDate: string;
  retention: string;
  first: string | null;
  last: string | null;
  tapestoreRequestStart: string | null;
  tapestoreRequestEnd: string | null;
  firstFilesOnDisk: string | null;
  lastFilesOnDisk: string | null;
}

/**
 * Stores a request from another system with its files, and charges its quota.
 * @param mark a further SQL statement, run in the same transaction after the request is stored
 * @returns false if a request with this id already exists
 * @throws UnknownUserError
 */
export async function adoptRequest(ctx: Context, request: AdoptedRequest, mark: Sql): Promise<boolean> {
  return await transaction(ctx.db.pool, 'adoptRequest', async (tx) => {
    const quota = await findQuota(tx, request.user);
    await lockCatalogue(tx, 'shared');
    const isLive = isBefore(ctx.now(), request.retention);
    const [row] = await tx.query<{ id: number }>(insertAdopted(request, quota.id, isLive));
    if (!row) return false;
    const { id } = row;
    const { unknown, bytes } = await insertRequestFiles(tx, request);
    if (isLive) {
      await tx.query(
        sql`UPDATE quota q SET used = q.used + ${bytes}::numeric, unresolved_paths = q.unresolved_paths + ${unknown}
            WHERE q.id = ${quota.id}`,
      );
      await recordSentEmails(tx, request);
      await settleRequests(ctx, tx, [id], { isNew: true });
    } else await recountRequests(tx, [id], ctx.now());
    await tx.query(mark);
    return true;
  });
}

/** Returns the statement that stores a request. A request whose retention date has passed is stored as ended. */
function insertAdopted(r: AdoptedRequest, quotaId: number, isLive: boolean): Sql {
  return sql`INSERT INTO request (id, quota_id, state, is_released, pattern, label, request_date, retention, notify_on_first_file,
      notify_on_last_file, tapestore_request_start, tapestore_request_end, first_files_on_disk, last_files_on_disk)
    VALUES (${r.id}, ${quotaId}, ${isLive ? 'QUEUED' : 'EXPIRED'}::"RequestState", ${isLive}, ${r.pattern}, ${r.label}, ${r.requestDate}, ${r.retention}, ${r.first}, ${r.last},
      ${r.tapestoreRequestStart}, ${r.tapestoreRequestEnd}, ${r.firstFilesOnDisk}, ${r.lastFilesOnDisk})
    ON CONFLICT (id) DO NOTHING RETURNING id`;
}

async function insertRequestFiles(
  tx: Transaction,
  { id, pattern, files }: AdoptedRequest,
): Promise<{ unknown: number; bytes: string }> {
  const listed = files
    ? sql`SELECT l.path, l.n, f.id, f.size FROM unnest(${files}::text[]) WITH ORDINALITY AS l (path, n) LEFT JOIN tape_file f ON f.path = l.path AND ${isOffered}`
    : sql`SELECT f.path, row_number() OVER (ORDER BY f.path) AS n, f.id, f.size FROM tape_file f WHERE ${holdsText(pattern)} AND ${isOffered}`;
  const [row] = await tx.query<{ unknown: number; bytes: string }>(
    sql`WITH listed AS MATERIALIZED (${listed}), added AS (
          INSERT INTO request_file (request_id, file_id, ordinal, size) SELECT ${id}, l.id, l.n, l.size FROM listed l WHERE l.id IS NOT NULL
        ), recorded AS (
          INSERT INTO unresolved_path (request_id, path, ordinal) SELECT ${id}, l.path, l.n FROM listed l WHERE l.id IS NULL
        ) SELECT (count(*) - count(l.id))::int AS unknown, coalesce(sum(l.size), 0)::text AS bytes FROM listed l`,
  );
  if (!row) throw new Error(`request ${id} was not stored`);
  return row;
}

/** Records the emails that the other system has sent, so that Tapegate does not send them again. */
export async function recordSentEmails(
  tx: { query(statement: Sql): Promise<unknown> },
  request: Pick<
    AdoptedRequest,
    'id' | 'first' | 'last' | 'tapestoreRequestStart' | 'firstFilesOnDisk' | 'lastFilesOnDisk'
  >,
): Promise<void> {
  const first = request.firstFilesOnDisk ?? request.tapestoreRequestStart;
  const emails = [
    { kind: 'FIRST_FILE', recipient: request.first, at: first },
    { kind: 'LAST_FILE', recipient: request.last, at: request.lastFilesOnDisk },
  ];
  for (const { kind, recipient, at } of emails) {
    if (recipient === null || at === null) continue;
    const messageId = `<adopted-${request.id}-${kind.toLowerCase().replace('_', '-')}@tapegate>`;
    await tx.query(
      sql`INSERT INTO notification (request_id, kind, recipient, subject, body, message_id, state, next_try_at, created_at, sent_at)
          VALUES (${request.id}, ${kind}::"NotificationKind", ${recipient}, 'sent by the system before', '', ${messageId}, 'SENT', ${at}, ${at}, ${at})
          ON CONFLICT DO NOTHING`,
    );
  }
}
