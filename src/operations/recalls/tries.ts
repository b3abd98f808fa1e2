/** How the recall of a file goes that a request waits for: its tries so far, and the next one. */

import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import type { ErrorClass } from '../../errors.js';
import type { RecallState } from '../../generated/prisma/enums.js';
import { needsRoom } from '../conditions.js';

export interface Tries {
  state: RecallState;
  /** Tries that have failed. */
  attempts: number;
  /** Of the last one that failed, or of what keeps the next one from beginning. */
  errorClass: ErrorClass | null;
  error: string | null;
  /** Nothing when it may begin at any time, waits for room on a restore disk, or runs. */
  nextTry: string | null;
}

export interface HoldKey {
  requestId: number;
  fileId: bigint;
}

/** One text for each hold. */
export function keyOf({ requestId, fileId }: HoldKey): string {
  return `${requestId}/${fileId}`;
}

/** The tries for holds, by their keys. A hold that waits for no recall, or whose request has ended, is left out. */
export async function readTries(ctx: Context, holds: readonly HoldKey[]): Promise<Map<string, Tries>> {
  const { rows } = await ctx.db.pool.query<Tries & HoldKey>(
    sql`SELECT h.request_id AS "requestId", h.file_id AS "fileId", c.state, c.attempts, c.error_class AS "errorClass", c.error,
       CASE WHEN c.state = 'WAITING' AND c.not_before > ${ctx.now()} AND NOT ${needsRoom} THEN c.not_before END AS "nextTry"
     FROM unnest(${holds.map((hold) => hold.requestId)}::int[], ${holds.map((hold) => hold.fileId)}::bigint[]) AS k (request_id, file_id)
       JOIN live_hold h ON h.request_id = k.request_id AND h.file_id = k.file_id AND h.state = 'WAITING'
       JOIN recall c ON c.file_id = h.file_id`,
  );
  return new Map(rows.map((row) => [keyOf(row), row]));
}
