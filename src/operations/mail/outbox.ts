/** The sending side of the outbox. */

import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { addSeconds } from '../../time.js';
import { isLive } from '../conditions.js';
import { findTurn, useTurn } from './turns.js';

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

/** How long sending may take. */
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
