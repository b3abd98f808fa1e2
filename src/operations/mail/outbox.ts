/** The sending side of the outbox. */

import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
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
