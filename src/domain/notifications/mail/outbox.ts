/**
 * Sends emails from the outbox at limited rates: one rate for each user and one for the whole site. A rate is the
 * maximum number of emails that engines claim per minute. The next email goes to the user whose last email was sent
 * longest ago. Therefore, one user's many emails do not delay other users' emails.
 */

import { logFailure } from '../../../core/errors.js';
import { addSeconds } from '../../../core/time.js';
import { locking } from '../../../db/locks.js';
import { allOf, empty, raw, type Sql, sql } from '../../../db/sql.js';
import { type Transaction, transaction } from '../../../db/transaction.js';
import type { Notification } from '../../../generated/prisma/client.js';
import { isLive } from '../../conditions.js';
import type { Context } from '../../context.js';
import { boundsOf, countRows, type KeyPage } from '../../page-keys.js';
import { allow, isVisibleQuota } from '../../policy.js';

export interface ClaimedMail
  extends Pick<
      Notification,
      'id' | 'requestId' | 'kind' | 'recipient' | 'subject' | 'body' | 'messageId' | 'attempts' | 'createdAt'
    >,
    Pick<Notification, 'deferredSince' | 'deferrals'> {
  isLate: boolean;
  /**
   * Whether the email announces an outdated expiry date: the date has passed, or was postponed after the email was
   * queued.
   */
  isMoot: boolean;
}

export type SendResult =
  | { state: 'SENT' | 'LOGGED' }
  | { state: 'REJECTED'; error: string }
  | { state: 'PENDING'; error: string; nextTryAt: string; isDeferred: boolean };

/** Seconds after which a claim on an email expires. A sender that waits longer for the mail server renews its claim. */
const CLAIM_SECONDS = 180;

const RENEW_MS = 60_000;

/**
 * Maximum number of seconds for sending one email. A mail server can take 10 minutes to accept or reject a message (RFC
 * 5321, 4.5.3.2.6).
 */
export const SEND_SECONDS = 900;

/**
 * Claims the next email, sends it with `send`, and records the result. No transaction is open while the email is sent.
 * If the sender dies, another sender can claim the email when the first claim has expired. The function `send` must not
 * throw, and must end within `SEND_SECONDS`.
 */
export async function claimMail(
  ctx: Context,
  { inTurn, send }: { inTurn: boolean; send: (email: ClaimedMail) => Promise<SendResult> },
): Promise<boolean> {
  const now = ctx.now();
  let claimedUntil = addSeconds(now, CLAIM_SECONDS);
  const email = await transaction(ctx.db.pool, 'claimMail', async (tx) => {
    if (!inTurn) return await claimOldest(tx, { now, claimedUntil, which: sql`true` });
    const quotaId = await findNextQuota(ctx, tx, now);
    return quotaId && (await claimOldest(tx, { now, claimedUntil, which: sql`n.quota_id = ${quotaId}` }));
  });
  if (!email) return false;
  if (email.isMoot) {
    await ctx.db.pool.query(sql`DELETE FROM notification WHERE id = ${email.id} AND state = 'PENDING'`);
    return true;
  }
  let renewal = Promise.resolve();
  const renew = async () => {
    claimedUntil = await renewClaim(ctx, email, claimedUntil);
  };
  const timer = setInterval(() => {
    renewal = renewal
      .then(renew)
      .catch((error: unknown) => logFailure(ctx.log, error, 'cannot renew the claim on an email'));
  }, RENEW_MS);
  const result = await send(email).finally(() => clearInterval(timer));
  await renewal;
  await recordMail(ctx, email, { result, claimedUntil });
  return true;
}

async function renewClaim(ctx: Context, { id }: ClaimedMail, claimedUntil: string): Promise<string> {
  const until = addSeconds(ctx.now(), CLAIM_SECONDS);
  const { rowCount } = await ctx.db.pool.query(
    sql`UPDATE notification SET next_try_at = ${until} WHERE id = ${id} AND state = 'PENDING' AND next_try_at = ${claimedUntil}`,
  );
  return rowCount === 1 ? until : claimedUntil;
}

async function claimOldest(
  tx: Transaction,
  { now, claimedUntil, which }: { now: string; claimedUntil: string; which: Sql },
): Promise<ClaimedMail | undefined> {
  const [found] = await tx.query<ClaimedMail>(
    sql`UPDATE notification m SET next_try_at = ${claimedUntil}, claimed_at = ${now} FROM (
          SELECT n.id FROM notification n WHERE n.state = 'PENDING' AND n.next_try_at <= ${now} AND ${which}
          ORDER BY n.next_try_at, n.id LIMIT 1 ${locking.freeEmail}
        ) due WHERE m.id = due.id
        RETURNING m.id, m.request_id AS "requestId", m.kind, m.recipient, m.subject, m.body, m.message_id AS "messageId", m.attempts, m.created_at AS "createdAt",
          m.deferred_since AS "deferredSince", m.deferrals,
          NOT EXISTS (SELECT FROM request r WHERE r.id = m.request_id AND ${isLive} AND r.retention > ${now}) AS "isLate",
          m.kind = 'EXPIRING' AND NOT EXISTS (SELECT FROM request r
            WHERE r.id = m.request_id AND ${isLive} AND r.retention > ${now} AND r.retention = m.expires_at) AS "isMoot"`,
  );
  return found;
}

/**
 * Records the result of sending an email. An accepted email is recorded as sent even if another engine has claimed the
 * email in the meantime. A failure is recorded only by the sender that made the latest claim.
 */
async function recordMail(
  ctx: Context,
  email: ClaimedMail,
  { result, claimedUntil }: { result: SendResult; claimedUntil: string },
): Promise<void> {
  const none = { error: null, nextTryAt: null, isDeferred: false };
  const { error, nextTryAt, isDeferred } = { ...none, ...result };
  const isOver = result.state === 'SENT' || result.state === 'LOGGED';
  await ctx.db.pool.query(
    sql`UPDATE notification SET state = ${result.state}, attempts = attempts + 1, last_error = ${error},
          next_try_at = coalesce(${nextTryAt}::timestamp, next_try_at), deferrals = deferrals + ${isDeferred ? 1 : 0}::int,
          deferred_since = CASE WHEN ${isDeferred} THEN coalesce(deferred_since, ${ctx.now()}::timestamp) ELSE deferred_since END,
          sent_at = CASE WHEN ${result.state === 'SENT'} THEN ${ctx.now()}::timestamp END
        WHERE id = ${email.id} AND state = 'PENDING' AND (${isOver} OR next_try_at = ${claimedUntil})`,
  );
}

const NOTE_SECONDS = 60;

/**
 * Records that an engine with a configured mail server is running. Engines without a configured mail server then leave
 * emails in the outbox.
 */
export async function recordSender(ctx: Context): Promise<void> {
  const now = ctx.now();
  await ctx.db.pool.query(
    sql`INSERT INTO mail_sender (id, seen_at) VALUES (1, ${now}) ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
        WHERE mail_sender.seen_at < ${addSeconds(now, -NOTE_SECONDS)}::timestamp`,
  );
}

const SENDER_SECONDS = 7 * 24 * 3600;

/** Returns whether an engine with a configured mail server has run in the last seven days. */
export async function hasSender(ctx: Context): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(
    sql`SELECT FROM mail_sender WHERE seen_at > ${addSeconds(ctx.now(), -SENDER_SECONDS)}::timestamp`,
  );
  return rowCount !== 0;
}

/** Returns whether engines send emails. Otherwise, they only write emails to the log, or no engine has run yet. */
export async function isEmailSent(ctx: Context): Promise<boolean> {
  allow(ctx, 'isEmailSent');
  return await hasSender(ctx);
}

const MINUTE_SECONDS = 60;

/**
 * Returns SQL for the time at which the rate allows another email: one minute after the oldest of the last `rate`
 * claims. The SQL yields null if the rate allows an email now. Ignores claims whose time is more than a minute in the
 * future, because the clock was set back after these claims. The condition `which` selects the emails (`m`) to count.
 */
function freeAt(rate: number, now: string, which: Sql): Sql {
  return sql`(SELECT m.claimed_at + interval '1 minute' FROM notification m
    WHERE m.claimed_at > ${addSeconds(now, -MINUTE_SECONDS)}::timestamp AND m.claimed_at <= ${addSeconds(now, MINUTE_SECONDS)}::timestamp AND ${which}
    ORDER BY m.claimed_at DESC OFFSET ${rate - 1} LIMIT 1)`;
}

/**
 * Selects users with waiting emails as `w`, each with the time at which the user's first email is due. The query needs
 * one index lookup for each user, regardless of the number of emails.
 */
const waitingUsers: Sql = sql`WITH RECURSIVE waiting AS (
    (SELECT n.quota_id, n.next_try_at FROM notification n WHERE n.state = 'PENDING' AND n.quota_id IS NOT NULL
     ORDER BY n.quota_id, n.next_try_at LIMIT 1)
    UNION ALL
    SELECT o.quota_id, o.next_try_at FROM waiting w CROSS JOIN LATERAL (
      SELECT n.quota_id, n.next_try_at FROM notification n WHERE n.state = 'PENDING' AND n.quota_id > w.quota_id
      ORDER BY n.quota_id, n.next_try_at LIMIT 1) o)`;

/**
 * Chooses the user who gets the next email, and returns the user's quota. Returns undefined if no email may be sent
 * now. Until the caller's transaction ends, no other process can choose the next user.
 */
async function findNextQuota(ctx: Context, tx: Transaction, now: string): Promise<number | undefined> {
  const { mailRate, userMailRate } = ctx.config.limits;
  const isOfUser = sql`m.quota_id = w.quota_id`;
  await tx.query(sql`SELECT FROM mail_sender s ${locking.turns}`);
  // count the claims in a separate statement after the lock, so that the count includes claims by transactions that
  // held the lock earlier
  const [next] = await tx.query<{ quotaId: number }>(
    sql`${waitingUsers} SELECT w.quota_id AS "quotaId" FROM waiting w
        WHERE w.next_try_at <= ${now} AND ${freeAt(mailRate, now, sql`true`)} IS NULL
          AND ${freeAt(userMailRate, now, isOfUser)} IS NULL
        ORDER BY (SELECT max(m.claimed_at) FROM notification m WHERE ${isOfUser} AND m.claimed_at <= ${addSeconds(now, MINUTE_SECONDS)}::timestamp) NULLS FIRST,
          w.next_try_at LIMIT 1`,
  );
  return next?.quotaId;
}

/**
 * Reasons why a user's next email waits. `ENGINE`: the email is due, and waits for an engine with a configured mail
 * server. `USER_RATE`: the user's rate is used up. `RATE`: the site's rate is used up.
 */
export const mailWaits = ['ENGINE', 'RETRY', 'USER_RATE', 'RATE'] as const;
export type MailWait = (typeof mailWaits)[number];

export interface WaitingMail {
  id: number;
  user: string;
  emails: number;
  since: string;
  waitsFor: MailWait;
  nextAt: string;
  lastError: string | null;
}

export async function countWaitingMail(ctx: Context): Promise<number> {
  allow(ctx, 'listWaitingMail');
  return await countRows(ctx, {
    rows: sql`(${waitingUsers} SELECT * FROM waiting) w JOIN quota q ON q.id = w.quota_id WHERE ${isVisibleQuota(ctx)}`,
  });
}

export async function listWaitingMail(ctx: Context, page: KeyPage<number>): Promise<WaitingMail[]> {
  allow(ctx, 'listWaitingMail');
  const now = ctx.now();
  const { mailRate, userMailRate } = ctx.config.limits;
  const { conditions, order } = boundsOf(sql`q.id`, page);
  return await ctx.db.rows<WaitingMail>(
    sql`${waitingUsers}, page AS (
          SELECT q.id, q."user" FROM waiting w JOIN quota q ON q.id = w.quota_id
          WHERE ${allOf([isVisibleQuota(ctx), ...conditions])} ${order})
        SELECT p.id, p."user", l.emails, l.since, first.last_error AS "lastError",
          CASE WHEN first.next_try_at > ${now}::timestamp THEN 'RETRY' WHEN free.of_user IS NOT NULL THEN 'USER_RATE'
            WHEN free.of_all IS NOT NULL THEN 'RATE' ELSE 'ENGINE' END AS "waitsFor",
          greatest(first.next_try_at, free.of_user, free.of_all) AS "nextAt"
        FROM page p CROSS JOIN LATERAL (SELECT ${freeAt(userMailRate, now, sql`m.quota_id = p.id`)} AS of_user,
            ${freeAt(mailRate, now, sql`true`)} AS of_all) free
          CROSS JOIN LATERAL (SELECT count(*)::int AS emails, min(n.created_at) AS since FROM notification n
            WHERE n.state = 'PENDING' AND n.quota_id = p.id) l
          CROSS JOIN LATERAL (SELECT n.next_try_at, n.last_error FROM notification n
            WHERE n.state = 'PENDING' AND n.quota_id = p.id ORDER BY n.next_try_at, n.id LIMIT 1) first
        ORDER BY p.id ${page.inverted ? raw('DESC') : empty}`,
  );
}
