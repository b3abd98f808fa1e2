/**
 * Claims webhook messages that are due, and records the results of sending them. At any time, at most one sender has
 * claimed a webhook, and sends one message. The least recently used webhook is claimed first, so a slow receiver does
 * not delay other webhooks.
 */

import { addSeconds, isBefore } from '../../../core/time.js';
import { locking } from '../../../db/locks.js';
import { type Sql, sql } from '../../../db/sql.js';
import { type Transaction, transaction } from '../../../db/transaction.js';
import type { Webhook, WebhookMessage } from '../../../generated/prisma/client.js';
import type { Context } from '../../context.js';

/** Seconds after which a claim on a webhook expires. A sender must finish before its claim expires. */
const CLAIM_SECONDS = 90;

export const WEBHOOK_SECONDS = 15;

/**
 * Seconds to wait before a message is sent again. The n-th number is the pause after the n-th failure. The last number
 * is also the pause after all later failures.
 */
const MESSAGE_PAUSES = [5, 60, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400];
/**
 * Engines stop sending a message when this number of attempts have failed, and the message is older than
 * `MESSAGE_SECONDS`.
 */
const MESSAGE_TRIES = 10;
const MESSAGE_SECONDS = 3 * 86_400;

const FIRST_PAUSE = 2;
const LAST_PAUSE = 1800;
/**
 * Engines disable a webhook that has failed without a success for this number of seconds, and at least `FAILURES`
 * times.
 */
const FAILING_SECONDS = 5 * 86_400;
const FAILURES = 10;
/** Longest pause in seconds that a receiver can request with `Retry-After`. */
const LONGEST_WAIT = 86_400;

export interface ClaimedMessage
  extends Omit<WebhookMessage, 'quotaId' | 'requestId' | 'state' | 'nextTryAt' | 'sentAt' | 'lastError'>,
    Pick<Webhook, 'quotaId' | 'url' | 'failures'> {
  /** Signing secrets, newest first. */
  secrets: string[];
  claimedUntil: string;
}

export type WebhookResult =
  | { state: 'SENT' }
  | { state: 'FAILED'; error: string; retryAfter?: number | undefined }
  /** The receiver answered that it does not accept messages from this webhook any more. */
  | { state: 'GONE'; error: string }
  | { state: 'LEFT' };

/** Selects the ids of webhooks with pending messages, with one index lookup for each webhook. */
const waitingWebhooks = sql`ARRAY(WITH RECURSIVE waiting AS (
    (SELECT m.webhook_id FROM webhook_message m WHERE m.state = 'PENDING' ORDER BY m.webhook_id LIMIT 1)
    UNION ALL
    SELECT o.webhook_id FROM waiting p CROSS JOIN LATERAL (
      SELECT m.webhook_id FROM webhook_message m WHERE m.state = 'PENDING' AND m.webhook_id > p.webhook_id ORDER BY m.webhook_id LIMIT 1) o)
  SELECT webhook_id FROM waiting)`;

/** Claims the next due message. Skips the webhooks of the quotas with ids in `busy`. */
export async function claimMessage(ctx: Context, busy: readonly number[] = []): Promise<ClaimedMessage | undefined> {
  const now = ctx.now();
  const claimedUntil = addSeconds(now, CLAIM_SECONDS);
  const rows = await ctx.db.rows<ClaimedMessage>(
    sql`UPDATE webhook u SET next_try_at = ${claimedUntil} FROM (
          SELECT w.id, m.* FROM webhook w CROSS JOIN LATERAL (
            SELECT m.id AS message, m.message_id, m.type, m.body, m.attempts, m.created_at FROM webhook_message m
            WHERE m.webhook_id = w.id AND m.state = 'PENDING' AND m.next_try_at <= ${now} ORDER BY m.next_try_at, m.id LIMIT 1
          ) m WHERE w.id = ANY(${waitingWebhooks}) AND w.disabled_at IS NULL AND w.next_try_at <= ${now}
            AND (w.quota_id IS NULL OR w.quota_id <> ALL(${busy}::int[])) ORDER BY w.next_try_at, w.id LIMIT 1 ${locking.freeWebhook}
        ) m WHERE u.id = m.id
        RETURNING m.message AS id, m.message_id AS "messageId", m.type, m.body, m.attempts, m.created_at AS "createdAt",
          u.id AS "webhookId", u.quota_id AS "quotaId", u.url, u.failures, u.next_try_at AS "claimedUntil",
          ARRAY[u.secret] || CASE WHEN u.old_secret_until > ${now}::timestamp THEN ARRAY[u.old_secret] ELSE '{}' END AS secrets`,
  );
  return rows[0];
}

/**
 * Records the result of sending a message. A success is recorded even if another engine has claimed the message since
 * then. A failure is recorded only by the sender that made the latest claim.
 */
export async function recordMessage(ctx: Context, message: ClaimedMessage, result: WebhookResult): Promise<void> {
  const now = ctx.now();
  const isMine = sql`w.id = ${message.webhookId} AND w.next_try_at = ${message.claimedUntil}`;
  if (result.state === 'SENT') {
    await ctx.db.pool.query(
      sql`WITH sent AS (
            UPDATE webhook_message SET state = 'SENT', attempts = attempts + 1, sent_at = ${now}, last_error = NULL WHERE id = ${message.id})
          UPDATE webhook w SET ${took(now)} WHERE ${isMine}`,
    );
    return;
  }
  await transaction(ctx.db.pool, 'noteWebhook', async (tx) => {
    const mine = await tx.query(sql`SELECT FROM webhook w WHERE ${isMine} ${locking.webhook}`);
    if (mine.length === 0) return;
    if (result.state === 'LEFT') await tx.query(sql`UPDATE webhook w SET next_try_at = ${now} WHERE ${isMine}`);
    else await recordFailedTry(ctx, tx, { message, result, isMine });
  });
}

const took = (now: string): Sql =>
  sql`failures = 0, failing_since = NULL, last_error = NULL, sent_at = ${now}, next_try_at = ${now}`;

async function recordFailedTry(
  ctx: Context,
  tx: Transaction,
  failed: { message: ClaimedMessage; result: Extract<WebhookResult, { error: string }>; isMine: Sql },
): Promise<void> {
  const { message, result, isMine } = failed;
  const now = ctx.now();
  const pause = MESSAGE_PAUSES[Math.min(message.attempts, MESSAGE_PAUSES.length - 1)] ?? 0;
  const { isPlausible } = ctx.db.clock; // an implausible clock does not show how old a message is, so continue to retry
  const isOver =
    isPlausible &&
    message.attempts + 1 >= MESSAGE_TRIES &&
    isBefore(message.createdAt, addSeconds(now, -MESSAGE_SECONDS));
  await tx.query(
    sql`UPDATE webhook_message SET attempts = attempts + 1, last_error = ${result.error}, next_try_at = ${addSeconds(now, spread(pause))},
          state = CASE WHEN ${isOver} THEN 'GIVEN_UP'::"WebhookMessageState" ELSE state END WHERE id = ${message.id} AND state = 'PENDING'`,
  );
  const retryAfter = result.state === 'FAILED' ? Math.min(result.retryAfter ?? 0, LONGEST_WAIT) : 0;
  const rest = Math.max(spread(Math.min(FIRST_PAUSE * 2 ** message.failures, LAST_PAUSE)), retryAfter);
  const isGone = result.state === 'GONE';
  const reason = isGone
    ? `switched off: ${result.error}`
    : `disabled after ${FAILING_SECONDS / 86_400} days of failed deliveries: ${result.error}`;
  const [row] = await tx.query<{ isOff: boolean }>(
    sql`UPDATE webhook w SET failures = w.failures + 1, failing_since = coalesce(w.failing_since, ${now}::timestamp),
          last_error = ${result.error}, next_try_at = ${addSeconds(now, rest)},
          disabled_at = CASE WHEN o.is_off THEN ${now}::timestamp ELSE w.disabled_at END,
          disabled_reason = CASE WHEN o.is_off THEN ${reason} ELSE w.disabled_reason END
        FROM (SELECT f.id, f.disabled_at IS NULL AND (${isGone} OR (${isPlausible} AND f.failures + 1 >= ${FAILURES}
            AND f.failing_since < ${addSeconds(now, -FAILING_SECONDS)}::timestamp)) AS is_off FROM webhook f) o
        WHERE o.id = w.id AND ${isMine} RETURNING o.is_off AS "isOff"`,
  );
  if (row?.isOff) tx.afterCommit(() => ctx.log.warn({ webhook: message.webhookId }, `webhook ${reason}`));
}

const spread = (seconds: number): number => seconds * (0.8 + 0.4 * Math.random());

const MESSAGE_DAYS = 30;
const STEP = 5000;

export async function pruneMessages(ctx: Context, stop: AbortSignal): Promise<void> {
  const before = addSeconds(ctx.now(), -MESSAGE_DAYS * 86_400);
  for (let deleted = STEP; deleted === STEP && !stop.aborted; ) {
    const { rowCount } = await ctx.db.pool.query(
      sql`DELETE FROM webhook_message WHERE id = ANY(ARRAY(
            SELECT id FROM webhook_message WHERE created_at < ${before}::timestamp ORDER BY created_at LIMIT ${STEP}))`,
    );
    deleted = rowCount ?? 0;
  }
}
