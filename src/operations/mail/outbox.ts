/**
 * The sending side of the outbox. Mail has a rate, for each user and for all together; letters over the rate wait in order. The user whose last
 * letter is the oldest goes first, so that many letters of one user delay nobody else's.
 *
 * A rate is used evenly (the generic cell rate algorithm, ITU-T I.371): each letter uses the time that one takes at that rate, and is sent while
 * at most a quarter of a minute is used ahead. A time for each user and one for all is stored, so the rate holds for several engines and
 * over restarts.
 */
import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { allOf, empty, raw, type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { addSeconds } from '../../time.js';
import { isLive } from '../conditions.js';
import { boundsOf, type CursorPage } from '../page-keys.js';
import { allow, isVisibleQuota } from '../policy.js';

export interface Letter {
  id: bigint;
  recipient: string;
  subject: string;
  body: string;
  messageId: string;
  attempts: number;
  createdAt: string;
  /** When a server first refused it for now; null where none did. */
  deferredSince: string | null;
  /** How often that was. */
  deferrals: number;
  /** Its request has ended since it was written. */
  isLate: boolean;
  /** It tells of an end that has come, or is put off. */
  isMoot: boolean;
}

export type SendResult =
  | { state: 'SENT' | 'LOGGED' }
  | { state: 'REJECTED'; error: string }
  | { state: 'PENDING'; error: string; nextTryAt: string; isDeferred: boolean };

/** A letter in hand is left to who has it for so long; whoever sends has to end before, with the pauses of a slow database. */
const CLAIM_SECONDS = 180;

export const SEND_SECONDS = 120;

/**
 * Claims the letter whose turn it is, has it sent, and writes down how that went. Meanwhile no transaction is open, and the
 * letter is due for nobody else. Where its sender dies, it is due again when the claim has run out.
 * @param options.inTurn false where nobody gets the letter: the oldest is the next then, and no rate bounds them
 * @param options.send must not throw, and end within `SEND_SECONDS`
 * @returns false when no letter is due, or those that are wait for their turn
 */
export async function claimMail(
  ctx: Context,
  { inTurn, send }: { inTurn: boolean; send: (letter: Letter) => Promise<SendResult> },
): Promise<boolean> {
  const now = ctx.now();
  const claimedUntil = addSeconds(now, CLAIM_SECONDS);
  const letter = await transaction(ctx.db.pool, 'claimMail', async (tx) => {
    if (!inTurn) return await claimOldest(tx, { now, claimedUntil, which: sql`true` });
    const quotaId = await findTurn(ctx, tx, now);
    if (quotaId === undefined) return undefined;
    const found = await claimOldest(tx, { now, claimedUntil, which: sql`n.quota_id = ${quotaId}` });
    if (found && !found.isMoot) await useTurn(ctx, tx, { quotaId, now });
    return found;
  });
  if (!letter) return false;
  if (letter.isMoot) {
    await ctx.db.pool.query(sql`DELETE FROM notification WHERE id = ${letter.id} AND state = 'PENDING'`);
    return true;
  }
  await noteMail(ctx, letter, { result: await send(letter), claimedUntil });
  return true;
}

/** @param choice.which a condition on the letter `n` */
async function claimOldest(
  tx: Transaction,
  { now, claimedUntil, which }: { now: string; claimedUntil: string; which: Sql },
): Promise<Letter | undefined> {
  const [found] = await tx.query<Letter>(
    sql`UPDATE notification m SET next_try_at = ${claimedUntil} FROM (
          SELECT n.id FROM notification n WHERE n.state = 'PENDING' AND n.next_try_at <= ${now} AND ${which}
          ORDER BY n.next_try_at, n.id LIMIT 1 ${locking.freeLetter}
        ) due WHERE m.id = due.id
        RETURNING m.id, m.recipient, m.subject, m.body, m.message_id AS "messageId", m.attempts, m.created_at AS "createdAt",
          m.deferred_since AS "deferredSince", m.deferrals,
          NOT EXISTS (SELECT FROM request r WHERE r.id = m.request_id AND ${isLive} AND r.retention > ${now}) AS "isLate",
          m.kind = 'EXPIRING' AND NOT EXISTS (SELECT FROM request r
            WHERE r.id = m.request_id AND ${isLive} AND r.retention > ${now} AND r.retention = m.expires_at) AS "isMoot"`,
  );
  return found;
}

/** What was taken by the server is sent, whoever has the letter by now; everything else is for who has claimed it last. */
async function noteMail(
  ctx: Context,
  letter: Letter,
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

/** A row that says the same for longer than this is written again. */
const NOTE_SECONDS = 60;

/** Notes that an engine with a mail server is at work: those without one leave the letters to it. */
export async function noteSender(ctx: Context): Promise<void> {
  const now = ctx.now();
  await ctx.db.pool.query(
    sql`INSERT INTO mail_sender (id, seen_at) VALUES (1, ${now}) ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
        WHERE mail_sender.seen_at < ${addSeconds(now, -NOTE_SECONDS)}::timestamp`,
  );
}

/** An engine with a mail server that is away is waited for so long: longer than any host is mended. */
const SENDER_SECONDS = 7 * 24 * 3600;

/** Is there, or was there of late, an engine with a mail server? */
export async function hasSender(ctx: Context): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(
    sql`SELECT FROM mail_sender WHERE seen_at > ${addSeconds(ctx.now(), -SENDER_SECONDS)}::timestamp`,
  );
  return rowCount !== 0;
}

const MINUTE = 60;

/** The part of a minute's letters that may go at once. */
const AT_ONCE = 1 / 4;

/** No rate is used so far ahead, unless it was another one then, or the clock has been set back: that counts as not used. */
const IMPOSSIBLE_SECONDS = 2 * MINUTE;

/** What may be used of a rate, and what was. */
interface Use {
  /** Letters within a minute. */
  rate: number;
  /** A column: up to when it is used; null where it never was. */
  usedUntil: Sql;
  now: string;
}

/** May another letter go? */
export function hasTurn({ rate, usedUntil, now }: Use): Sql {
  return sql`(${usedUntil} IS NULL OR ${usedUntil} <= ${addSeconds(now, aheadOf(rate))}::timestamp
    OR ${usedUntil} > ${addSeconds(now, IMPOSSIBLE_SECONDS)}::timestamp)`;
}

/** When the next may go; null where it may. */
export function turnAt(use: Use): Sql {
  return sql`CASE WHEN NOT ${hasTurn(use)} THEN ${use.usedUntil} - ${aheadOf(use.rate)}::float8 * interval '1 second' END`;
}

/** Seconds of a rate that may be used before they are there. */
const aheadOf = (rate: number): number => Math.max(AT_ONCE * rate - 1, 0) * (MINUTE / rate);

/** Up to when it is used with one letter more. */
function withOneMore({ rate, usedUntil, now }: Use): Sql {
  return sql`greatest(${possible(usedUntil, now)}, ${now}::timestamp) + ${MINUTE / rate}::float8 * interval '1 second'`;
}

const possible = (usedUntil: Sql, now: string): Sql =>
  sql`CASE WHEN ${usedUntil} <= ${addSeconds(now, IMPOSSIBLE_SECONDS)}::timestamp THEN ${usedUntil} END`;

/**
 * The users of the letters that wait, each once, with when the first of theirs is due: `w` of all statements about them. Each step
 * is a look at the index, however many letters a user has.
 */
export const waitingUsers: Sql = sql`WITH RECURSIVE waiting AS (
    (SELECT n.quota_id, n.next_try_at FROM notification n WHERE n.state = 'PENDING' AND n.quota_id IS NOT NULL
     ORDER BY n.quota_id, n.next_try_at LIMIT 1)
    UNION ALL
    SELECT o.quota_id, o.next_try_at FROM waiting w CROSS JOIN LATERAL (
      SELECT n.quota_id, n.next_try_at FROM notification n WHERE n.state = 'PENDING' AND n.quota_id > w.quota_id
      ORDER BY n.quota_id, n.next_try_at LIMIT 1) o)`;

/**
 * Whose letter goes next. Until the commit nobody else finds that out.
 * @returns the id of the quota; undefined while no letter is due, or those that are have to wait for their turn
 */
export async function findTurn(ctx: Context, tx: Transaction, now: string): Promise<number | undefined> {
  const { mailRate, userMailRate } = ctx.config.limits;
  const [site] = await tx.query<{ isFree: boolean }>(
    sql`SELECT ${hasTurn({ rate: mailRate, usedUntil: sql`s.used_until`, now })} AS "isFree" FROM mail_sender s ${locking.turns}`,
  );
  if (!site?.isFree) return undefined;
  const usedUntil = sql`t.used_until`;
  const [next] = await tx.query<{ quotaId: number }>(
    sql`${waitingUsers} SELECT w.quota_id AS "quotaId" FROM waiting w LEFT JOIN mail_turn t ON t.quota_id = w.quota_id
        WHERE w.next_try_at <= ${now} AND ${hasTurn({ rate: userMailRate, usedUntil, now })}
        ORDER BY ${possible(usedUntil, now)} NULLS FIRST, w.next_try_at LIMIT 1`,
  );
  return next?.quotaId;
}

/** A letter of the user is sent: whoever does that has found its turn in the same transaction. */
export async function useTurn(
  ctx: Context,
  tx: Transaction,
  { quotaId, now }: { quotaId: number; now: string },
): Promise<void> {
  const { mailRate, userMailRate } = ctx.config.limits;
  const first = addSeconds(now, MINUTE / userMailRate);
  await tx.query(
    sql`UPDATE mail_sender SET used_until = ${withOneMore({ rate: mailRate, usedUntil: sql`used_until`, now })}`,
  );
  await tx.query(
    sql`INSERT INTO mail_turn (quota_id, used_until) VALUES (${quotaId}, ${first}) ON CONFLICT (quota_id) DO UPDATE
          SET used_until = ${withOneMore({ rate: userMailRate, usedUntil: sql`mail_turn.used_until`, now })}`,
  );
}

/**
 * What the first of a user's letters waits for.
 * - `ENGINE`: an engine with a mail server, which takes it at once where there is one.
 * - `RETRY`: its next try, or the end of this one.
 * - `USER_RATE`, `RATE`: its turn, since the user, or the whole site, has had the letters of a minute.
 */
export const mailWaits = ['ENGINE', 'RETRY', 'USER_RATE', 'RATE'] as const;
export type MailWait = (typeof mailWaits)[number];

export interface WaitingMail {
  /** Of the quota. */
  id: number;
  user: string;
  letters: number;
  /** When the oldest of them was written. */
  since: string;
  waitsFor: MailWait;
  /** The first of them is sent no earlier. */
  nextAt: string;
  /** Why the last try of that one failed; null before one has. */
  lastError: string | null;
}

/** A row a user with letters that wait, of those that the caller may see, in the order of their quotas. */
export async function listWaitingMail(ctx: Context, page: CursorPage<number>): Promise<WaitingMail[]> {
  allow(ctx, 'listWaitingMail');
  const now = ctx.now();
  const { mailRate, userMailRate } = ctx.config.limits;
  const { conditions, order } = boundsOf(sql`q.id`, page);
  const user = { rate: userMailRate, usedUntil: sql`t.used_until`, now };
  const site = { rate: mailRate, usedUntil: sql`s.used_until`, now };
  const { rows } = await ctx.db.pool.query<WaitingMail>(
    sql`${waitingUsers}, page AS (
          SELECT q.id, q."user" FROM waiting w JOIN quota q ON q.id = w.quota_id
          WHERE ${allOf([isVisibleQuota(ctx), ...conditions])} ${order})
        SELECT p.id, p."user", l.letters, l.since, first.last_error AS "lastError",
          CASE WHEN first.next_try_at > ${now}::timestamp THEN 'RETRY' WHEN NOT ${hasTurn(user)} THEN 'USER_RATE'
            WHEN NOT ${hasTurn(site)} THEN 'RATE' ELSE 'ENGINE' END AS "waitsFor",
          greatest(first.next_try_at, ${turnAt(user)}, ${turnAt(site)}) AS "nextAt"
        FROM page p LEFT JOIN mail_turn t ON t.quota_id = p.id LEFT JOIN mail_sender s ON true
          CROSS JOIN LATERAL (SELECT count(*)::int AS letters, min(n.created_at) AS since FROM notification n
            WHERE n.state = 'PENDING' AND n.quota_id = p.id) l
          CROSS JOIN LATERAL (SELECT n.next_try_at, n.last_error FROM notification n
            WHERE n.state = 'PENDING' AND n.quota_id = p.id ORDER BY n.next_try_at, n.id LIMIT 1) first
        ORDER BY p.id ${page.inverted ? raw('DESC') : empty}`,
  );
  return rows;
}
