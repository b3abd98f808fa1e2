/** The sending side of the outbox. */

import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { addSeconds } from '../../time.js';

export interface Letter {
  id: bigint;
  recipient: string;
  subject: string;
  body: string;
  messageId: string;
  attempts: number;
  createdAt: string;
}

export type SendResult =
  | { state: 'SENT' | 'LOGGED' }
  | { state: 'REJECTED'; error: string }
  | { state: 'PENDING'; error: string; nextTryAt: string };

/**
 * Locks the oldest letter that is due, has it sent, and writes down how that went. It must not throw.
 * @returns false when no letter is due
 */
export async function claimMail(ctx: Context, send: (letter: Letter) => Promise<SendResult>): Promise<boolean> {
  return await transaction(ctx.db.pool, 'claimMail', async (tx) => {
    const [letter] = await tx.query<Letter>(
      sql`SELECT n.id, n.recipient, n.subject, n.body, n.message_id AS "messageId", n.attempts, n.created_at AS "createdAt"
          FROM notification n WHERE n.state = 'PENDING' AND n.next_try_at <= ${ctx.now()}
          ORDER BY n.next_try_at, n.id LIMIT 1 ${locking.freeLetter}`,
    );
    if (!letter) return false;
    // a mail server may take its time, and nothing else waits for this row
    await tx.query(sql`SET LOCAL idle_in_transaction_session_timeout = '10min'`);
    const result = await send(letter);
    const { error = null, nextTryAt = null } = { error: undefined, nextTryAt: undefined, ...result };
    await tx.query(
      sql`UPDATE notification SET state = ${result.state}, attempts = attempts + 1, last_error = ${error},
            next_try_at = coalesce(${nextTryAt}::timestamp, next_try_at),
            sent_at = CASE WHEN ${result.state === 'SENT'} THEN ${ctx.now()}::timestamp END
          WHERE id = ${letter.id}`,
    );
    return true;
  });
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
