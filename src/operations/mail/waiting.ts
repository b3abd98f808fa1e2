/** The letters that wait to be sent, for people: whose, how many, and why. */
import type { Context } from '../../context.js';
import { allOf, empty, raw, type Sql, sql } from '../../database/sql.js';
import { allow, isVisibleQuota } from '../policy.js';
import { hasTurn, turnAt, waitingUsers } from './turns.js';

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

/** Which users, by the ids of their quotas that bound them. */
export interface WaitingMailPage {
  after?: number | undefined;
  before?: number | undefined;
  limit: number;
  /** From the other end of the list. */
  inverted?: boolean;
}

/** A row a user with letters that wait, of those that the caller may see, in the order of their quotas. */
export async function listWaitingMail(ctx: Context, page: WaitingMailPage): Promise<WaitingMail[]> {
  allow(ctx, 'listWaitingMail');
  const now = ctx.now();
  const { mailRate, userMailRate } = ctx.config.limits;
  const conditions: Sql[] = [isVisibleQuota(ctx)];
  if (page.after !== undefined) conditions.push(sql`q.id > ${page.after}`);
  if (page.before !== undefined) conditions.push(sql`q.id < ${page.before}`);
  const user = { rate: userMailRate, usedUntil: sql`t.used_until`, now };
  const site = { rate: mailRate, usedUntil: sql`s.used_until`, now };
  const { rows } = await ctx.db.pool.query<WaitingMail>(
    sql`${waitingUsers}, page AS (
          SELECT q.id, q."user" FROM waiting w JOIN quota q ON q.id = w.quota_id
          WHERE ${allOf(conditions)} ORDER BY q.id ${page.inverted ? raw('DESC') : empty} LIMIT ${page.limit})
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
