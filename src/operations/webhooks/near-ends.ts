/** What webhooks are told that no event brings: a request that expires soon, once for each retention, and a quota that is nearly full. */
import type { Context } from '../../context.js';
import { tryWebhooks } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import type { WebhookEvent } from '../../generated/prisma/enums.js';
import { addSeconds } from '../../time.js';
import { isLive } from '../conditions.js';
import { describeRequest, eventTypes, queueMessages, type ToldQuota, type ToldRequest } from './messages.js';
import { tellsOf } from './news.js';

/** Requests, or quotas, of one transaction. */
const BATCH = 200;

/** Parts of a quota: from the one on it is nearly full, and below the other one it is that no more. */
const NEARLY_FULL = 0.9;
const ROOM_AGAIN = 0.8;

/** Of several engines one does it. */
export async function queueNearEnds(ctx: Context, stop: AbortSignal): Promise<void> {
  for (const step of [tellExpiring, tellNearlyFull]) {
    for (let told = BATCH; told === BATCH && !stop.aborted; ) {
      told = await transaction(ctx.db.pool, 'queueWebhooks', async (tx) => {
        return (await tryWebhooks(tx)) ? await step(ctx, tx) : 0;
      });
    }
  }
}

/** The webhooks that are told of this event of that quota, as a list. */
const toldOf = (event: WebhookEvent, quotaId: Sql): Sql => sql`ARRAY(SELECT w.id FROM webhook w
  WHERE w.disabled_at IS NULL AND ${event}::"WebhookEvent" = ANY(w.events) AND ${tellsOf(quotaId)} ORDER BY w.id)`;

/** Nobody whose request lives no longer than the notice, from when it was made, is told: whoever made it knows. */
async function tellExpiring(ctx: Context, tx: Transaction): Promise<number> {
  const now = ctx.now();
  const seconds = ctx.config.expiryNoticeHours * 3600;
  const rows = await tx.query<ToldRequest & { quotaId: number; webhooks: number[] }>(
    sql`SELECT * FROM (
          SELECT r.id AS "requestId", r.quota_id AS "quotaId", q."user", r.label, r.state, r.files_total AS "filesTotal",
            r.files_on_disk AS "filesOnDisk", r.files_failed AS "filesFailed", r.bytes_total AS "bytesTotal",
            r.bytes_on_disk AS "bytesOnDisk", r.retention, ${toldOf('REQUEST_EXPIRING', sql`r.quota_id`)} AS webhooks
          FROM request r JOIN quota q ON q.id = r.quota_id JOIN webhook_request s ON s.request_id = r.id
          WHERE r.retention > ${now}::timestamp AND r.retention <= ${addSeconds(now, seconds)}::timestamp AND ${isLive}
            AND r.retention > r.request_date + ${seconds}::float8 * interval '1 second' AND r.files_total > r.files_failed
            AND s.expires_at IS DISTINCT FROM r.retention
        ) r WHERE r.webhooks <> '{}' ORDER BY r.retention LIMIT ${BATCH}`,
  );
  await queueMessages(
    ctx,
    tx,
    rows.flatMap(({ quotaId, webhooks, ...request }) => {
      const data = describeRequest(ctx, request);
      const { requestId, retention } = request;
      const key = `${requestId} ${retention}`;
      const about = { type: eventTypes.REQUEST_EXPIRING, key, at: now, quotaId, requestId, data };
      return webhooks.map((webhookId) => ({ webhookId, ...about }));
    }),
  );
  await tx.query(
    sql`UPDATE webhook_request s SET expires_at = t.retention
        FROM unnest(${rows.map((row) => row.requestId)}::int[], ${rows.map((row) => row.retention)}::timestamp[]) AS t (id, retention)
        WHERE s.request_id = t.id`,
  );
  return rows.length;
}

async function tellNearlyFull(ctx: Context, tx: Transaction): Promise<number> {
  const now = ctx.now();
  const usedOf = (part: number) => sql`q.size::numeric * ${part}::numeric`;
  await tx.query(
    sql`DELETE FROM nearly_full_quota n USING quota q
        WHERE q.id = n.quota_id AND (q.used < ${usedOf(ROOM_AGAIN)} OR q.removed_at IS NOT NULL)`,
  );
  const rows = await tx.query<ToldQuota & { id: number; webhooks: number[] }>(
    sql`SELECT * FROM (
          SELECT q.id, q."user", q.size, q.used, ${toldOf('QUOTA_NEARLY_FULL', sql`q.id`)} AS webhooks FROM quota q
          WHERE q.removed_at IS NULL AND q.used > 0 AND q.used >= ${usedOf(NEARLY_FULL)}
            AND NOT EXISTS (SELECT FROM nearly_full_quota n WHERE n.quota_id = q.id)
        ) q WHERE q.webhooks <> '{}' ORDER BY q.id LIMIT ${BATCH}`,
  );
  await queueMessages(
    ctx,
    tx,
    rows.flatMap(({ id, webhooks, ...data }) => {
      const key = `${id} ${now}`;
      const about = { type: eventTypes.QUOTA_NEARLY_FULL, key, at: now, quotaId: id, requestId: null, data };
      return webhooks.map((webhookId) => ({ webhookId, ...about }));
    }),
  );
  await tx.query(
    sql`INSERT INTO nearly_full_quota (quota_id, since) SELECT i.id, ${now} FROM unnest(${rows.map((row) => row.id)}::int[]) AS i (id)
        ON CONFLICT (quota_id) DO NOTHING`,
  );
  return rows.length;
}
