/**
 * Whose letter is the next to be sent. Mail has a rate, of each user and in all, so that nobody has a thousand letters sent to
 * strangers; what is over it waits for its turn, in order, and goes later. Where there is more than the rate of all lets out, the
 * user goes first whose last letter was the longest ago, so that many letters of one hold up nobody else's.
 *
 * A rate is used evenly (the generic cell rate algorithm, ITU-T I.371): each letter uses the time that one takes at that rate, and is
 * sent while no more than a quarter of a minute is used ahead. That is all there is to be remembered, a time for each user and
 * one for all, so it holds for any number of engines and over their restarts.
 */
import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { addSeconds } from '../../time.js';

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
