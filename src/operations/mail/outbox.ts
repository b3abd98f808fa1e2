/** The sending side of the outbox. */
import type { Context } from '../../context.js';
import { transaction } from '../../database/transaction.js';

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
  return await transaction(ctx.db.pool, async (tx) => {
    const [letter] = await tx.query<Letter>(
      `SELECT id, recipient, subject, body, message_id AS "messageId", attempts, created_at AS "createdAt"
       FROM notification WHERE state = 'PENDING' AND next_try_at <= $1
       ORDER BY next_try_at, id LIMIT 1 FOR UPDATE SKIP LOCKED`,
      [ctx.now()],
    );
    if (!letter) return false;
    // a mail server may take its time, and nothing else waits for this row
    await tx.query(`SET LOCAL idle_in_transaction_session_timeout = '10min'`);
    const result = await send(letter);
    await tx.query(
      `UPDATE notification SET state = $2::"NotificationState", attempts = attempts + 1, last_error = $3,
         next_try_at = coalesce($4::timestamp, next_try_at),
         sent_at = CASE WHEN $2::"NotificationState" = 'SENT' THEN $5::timestamp END
       WHERE id = $1`,
      [
        letter.id,
        result.state,
        'error' in result ? result.error : null,
        'nextTryAt' in result ? result.nextTryAt : null,
        ctx.now(),
      ],
    );
    return true;
  });
}
