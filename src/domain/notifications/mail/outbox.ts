/**
 * The sending side of the outbox. Each user and the whole site have a rate: emails claimed in the last minute count,
 * and emails over the rate wait in order. The user whose last email is the oldest is first, so that many emails of
 * one user delay no other user. The times of the claims are stored, so rates apply across engines and restarts.
 */

import { logFailure } from '../../../core/errors.js';
import { addSeconds } from '../../../core/time.js';
import { locking } from '../../../db/locks.js';
import { allOf, empty, raw, type Sql, sql } from '../../../db/sql.js';
import { type Transaction, transaction } from '../../../db/transaction.js';
import type { Notification } from '../../../generated/prisma/client.js';
import { isLive } from '../../conditions.js';
import type { Context } from '../../context.js';
import { boundsOf, type KeyPage } from '../../page-keys.js';
import { allow, isVisibleQuota } from '../../policy.js';

export interface ClaimedMail
  extends Pick<Notification, 'id' | 'recipient' | 'subject' | 'body' | 'messageId' | 'attempts' | 'createdAt'>,
    Pick<Notification, 'deferredSince' | 'deferrals'> {
  /** Its request has ended since it was written. */
  isLate: boolean;
  /** It announces an expiry that has passed, or was postponed. */
  isMoot: boolean;
}

export type SendResult =
  | { state: 'SENT' | 'LOGGED' }
  | { state: 'REJECTED'; error: string }
  | { state: 'PENDING'; error: string; nextTryAt: string; isDeferred: boolean };

/** Lifetime of a claim, which the sender renews while it waits for the mail server. */
const CLAIM_SECONDS = 180;

const RENEW_MS = 60_000;

/** Limit for sending one email. A mail server may check a message for 10 minutes before it answers (RFC 5321, 4.5.3.2.6). */
export const SEND_SECONDS = 900;

/**
 * Claims the next email, has it sent, and records the result. No transaction is open meanwhile. If the sender dies, the
 * email is due again when the claim expires.
 * @param options.inTurn false if nothing is delivered: takes the oldest email, without rates
 * @param options.send must not throw, and must end within `SEND_SECONDS`
 * @returns false if no email is due, or the rates allow none
 */
export async function claimMail(
  ctx: Context,
  { inTurn, send }: { inTurn: boolean; send: (letter: ClaimedMail) => Promise<SendResult> },
): Promise<boolean> {
  const now = ctx.now();
  let claimedUntil = addSeconds(now, CLAIM_SECONDS);
  const letter = await transaction(ctx.db.pool, 'claimMail', async (tx) => {
    if (!inTurn) return await claimOldest(tx, { now, claimedUntil, which: sql`true` });
    const quotaId = await findNextQuota(ctx, tx, now);
    return quotaId && (await claimOldest(tx, { now, claimedUntil, which: sql`n.quota_id = ${quotaId}` }));
  });
  if (!letter) return false;
  if (letter.isMoot) {
    await ctx.db.pool.query(sql`DELETE FROM notification WHERE id = ${letter.id} AND state = 'PENDING'`);
    return true;
  }
  let renewal = Promise.resolve();
  const renew = async () => {
    claimedUntil = await renewClaim(ctx, letter, claimedUntil);
  };
  const timer = setInterval(() => {
    renewal = renewal
      .then(renew)
      .catch((error: unknown) => logFailure(ctx.log, error, 'cannot renew the claim of an email'));
  }, RENEW_MS);
  const result = await send(letter).finally(() => clearInterval(timer));
  await renewal;
  await recordMail(ctx, letter, { result, claimedUntil });
  return true;
}

/** @returns the time until which the email is claimed; the given one if another sender has claimed it */
async function renewClaim(ctx: Context, { id }: ClaimedMail, claimedUntil: string): Promise<string> {
  const until = addSeconds(ctx.now(), CLAIM_SECONDS);
  const { rowCount } = await ctx.db.pool.query(
    sql`UPDATE notification SET next_try_at = ${until} WHERE id = ${id} AND state = 'PENDING' AND next_try_at = ${claimedUntil}`,
  );
  return rowCount === 1 ? until : claimedUntil;
}

/** @param choice.which a condition on the email `n` */
async function claimOldest(
  tx: Transaction,
  { now, claimedUntil, which }: { now: string; claimedUntil: string; which: Sql },
): Promise<ClaimedMail | undefined> {
  const [found] = await tx.query<ClaimedMail>(
    sql`UPDATE notification m SET next_try_at = ${claimedUntil}, claimed_at = ${now} FROM (
          SELECT n.id FROM notification n WHERE n.state = 'PENDING' AND n.next_try_at <= ${now} AND ${which}
          ORDER BY n.next_try_at, n.id LIMIT 1 ${locking.freeEmail}
        ) due WHERE m.id = due.id
        RETURNING m.id, m.recipient, m.subject, m.body, m.message_id AS "messageId", m.attempts, m.created_at AS "createdAt",
          m.deferred_since AS "deferredSince", m.deferrals,
          NOT EXISTS (SELECT FROM request r WHERE r.id = m.request_id AND ${isLive} AND r.retention > ${now}) AS "isLate",
          m.kind = 'EXPIRING' AND NOT EXISTS (SELECT FROM request r
            WHERE r.id = m.request_id AND ${isLive} AND r.retention > ${now} AND r.retention = m.expires_at) AS "isMoot"`,
  );
  return found;
}

/** Records an accepted email as sent, even if another engine holds the claim by now. Other results count only from the last claimant. */
async function recordMail(
  ctx: Context,
  letter: ClaimedMail,
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
        WHERE id = ${letter.id} AND state = 'PENDING' AND (${isOver} OR next_try_at = ${claimedUntil})`,
  );
}

/** Age at which an unchanged row is written again. */
const NOTE_SECONDS = 60;

/** Records that an engine with a mail server is running, so that engines without one leave the mail to it. */
export async function recordSender(ctx: Context): Promise<void> {
  const now = ctx.now();
  await ctx.db.pool.query(
    sql`INSERT INTO mail_sender (id, seen_at) VALUES (1, ${now}) ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
        WHERE mail_sender.seen_at < ${addSeconds(now, -NOTE_SECONDS)}::timestamp`,
  );
}

/** Time for which engines without a mail server leave the mail to an absent one: longer than any repair of a host. */
const SENDER_SECONDS = 7 * 24 * 3600;

/** Whether an engine with a mail server is running, or was lately. */
export async function hasSender(ctx: Context): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(
    sql`SELECT FROM mail_sender WHERE seen_at > ${addSeconds(ctx.now(), -SENDER_SECONDS)}::timestamp`,
  );
  return rowCount !== 0;
}

const MINUTE_SECONDS = 60;

/**
 * When the rate allows one more of these emails: a minute after the oldest of the last `rate` claims; null if now. A
 * concurrent claim may be slightly later than `now`. Times further in the future, as after the clock was set back, do not
 * count.
 * @param which a condition on the emails `m`
 */
function freeAt(rate: number, now: string, which: Sql): Sql {
  return sql`(SELECT m.claimed_at + interval '1 minute' FROM notification m
    WHERE m.claimed_at > ${addSeconds(now, -MINUTE_SECONDS)}::timestamp AND m.claimed_at <= ${addSeconds(now, MINUTE_SECONDS)}::timestamp AND ${which}
    ORDER BY m.claimed_at DESC OFFSET ${rate - 1} LIMIT 1)`;
}

/** Rows `w` of users with waiting emails and the first due time, by index lookups however many emails there are. */
const waitingUsers: Sql = sql`WITH RECURSIVE waiting AS (
    (SELECT n.quota_id, n.next_try_at FROM notification n WHERE n.state = 'PENDING' AND n.quota_id IS NOT NULL
     ORDER BY n.quota_id, n.next_try_at LIMIT 1)
    UNION ALL
    SELECT o.quota_id, o.next_try_at FROM waiting w CROSS JOIN LATERAL (
      SELECT n.quota_id, n.next_try_at FROM notification n WHERE n.state = 'PENDING' AND n.quota_id > w.quota_id
      ORDER BY n.quota_id, n.next_try_at LIMIT 1) o)`;

/** Finds the quota whose email is sent next, until the commit for this process alone; undefined if none may be sent. */
async function findNextQuota(ctx: Context, tx: Transaction, now: string): Promise<number | undefined> {
  const { mailRate, userMailRate } = ctx.config.limits;
  const isOfUser = sql`m.quota_id = w.quota_id`;
  await tx.query(sql`SELECT FROM mail_sender s ${locking.turns}`);
  // a later statement sees the claims of earlier lock holders
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
 * Reasons for which a user's first email waits:
 * - `ENGINE`: an engine with a mail server, which takes it at once.
 * - `RETRY`: its next try, or the end of this one.
 * - `USER_RATE`, `RATE`: the rate of the user, or of the site.
 */
export const mailWaits = ['ENGINE', 'RETRY', 'USER_RATE', 'RATE'] as const;
export type MailWait = (typeof mailWaits)[number];

export interface WaitingMail {
  /** Id of the quota. */
  id: number;
  user: string;
  letters: number;
  since: string;
  waitsFor: MailWait;
  /** The first of them is sent no earlier. */
  nextAt: string;
  lastError: string | null;
}

/** Returns a row for each user with waiting emails, of quotas that the caller may see, by quota. */
export async function listWaitingMail(ctx: Context, page: KeyPage<number>): Promise<WaitingMail[]> {
  allow(ctx, 'listWaitingMail');
  const now = ctx.now();
  const { mailRate, userMailRate } = ctx.config.limits;
  const { conditions, order } = boundsOf(sql`q.id`, page);
  return await ctx.db.rows<WaitingMail>(
    sql`${waitingUsers}, page AS (
          SELECT q.id, q."user" FROM waiting w JOIN quota q ON q.id = w.quota_id
          WHERE ${allOf([isVisibleQuota(ctx), ...conditions])} ${order})
        SELECT p.id, p."user", l.letters, l.since, first.last_error AS "lastError",
          CASE WHEN first.next_try_at > ${now}::timestamp THEN 'RETRY' WHEN free.of_user IS NOT NULL THEN 'USER_RATE'
            WHEN free.of_all IS NOT NULL THEN 'RATE' ELSE 'ENGINE' END AS "waitsFor",
          greatest(first.next_try_at, free.of_user, free.of_all) AS "nextAt"
        FROM page p CROSS JOIN LATERAL (SELECT ${freeAt(userMailRate, now, sql`m.quota_id = p.id`)} AS of_user,
            ${freeAt(mailRate, now, sql`true`)} AS of_all) free
          CROSS JOIN LATERAL (SELECT count(*)::int AS letters, min(n.created_at) AS since FROM notification n
            WHERE n.state = 'PENDING' AND n.quota_id = p.id) l
          CROSS JOIN LATERAL (SELECT n.next_try_at, n.last_error FROM notification n
            WHERE n.state = 'PENDING' AND n.quota_id = p.id ORDER BY n.next_try_at, n.id LIMIT 1) first
        ORDER BY p.id ${page.inverted ? raw('DESC') : empty}`,
  );
}
