/**
 * Prepares a database that was restored from a backup. No engine works on the database until an operator runs `tapegate
 * takeover`. Tapegate must not reuse ids from the time after the backup, because scripts store request ids, and clients
 * resume event streams after an event id.
 */

import { secondsBetween } from '../../core/time.js';
import { sql } from '../../db/sql.js';
import { transaction } from '../../db/transaction.js';
import { auditRow } from '../audit/audit.js';
import type { Context } from '../context.js';
import { fenceRestored } from '../ownership.js';

/**
 * Number of ids to skip in each sequence: `least`, plus `each` for every second since the backup. A site cannot use
 * that many ids between the backup and the restore.
 */
const LEAPS = {
  request_id_seq: { least: 1_000_000, each: 20 },
  integer: { least: 100_000, each: 1 },
  bigint: { least: 1_000_000_000, each: 10_000 },
} as const;

export interface PutBack {
  /** Smallest id that the next request can have; null if the sequence has no ids left. */
  nextRequestId: number | null;
  /**
   * Number of emails that were pending at the time of the backup. Tapegate sends the pending emails even if it already
   * sent them after the backup.
   */
  emails: number;
  /**
   * Number of tokens that the restored database accepts. An accepted token might have been revoked after the backup.
   */
  tokens: number;
}

/**
 * Fences a restored database, and skips ids. The caller must call this function only once, before any process uses the
 * database.
 * @param state.earliest earliest possible time of the restored state. The function skips all ids that might have been
 * used after `earliest`.
 */
export async function settlePutBack(ctx: Context, state: { earliest: string; asOf: string }): Promise<PutBack> {
  const { earliest, asOf } = state;
  const settled = await transaction(ctx.db.pool, 'settlePutBack', async (tx) => {
    const now = ctx.now();
    const lost = Math.max(Math.ceil(secondsBetween(earliest, now)), 0);
    const sequences = await tx.query<{ name: string; type: 'integer' | 'bigint'; last: bigint; most: bigint }>(
      sql`SELECT s.sequencename AS name, s.data_type::text AS type, coalesce(s.last_value, 0) AS last, s.max_value AS most
          FROM pg_sequences s JOIN pg_tables t ON t.schemaname = s.schemaname AND t.tablename = 'tape_file' AND t.tableowner = s.sequenceowner
          WHERE s.schemaname = 'public' ORDER BY s.sequencename`,
    );
    for (const { name, type, last, most } of sequences) {
      const to = last + leapOf(name === 'request_id_seq' ? LEAPS[name] : LEAPS[type], { lost, room: most - last });
      // a rollback does not undo `setval`, but skipped ids do no harm
      await tx.query(sql`SELECT setval(${`public.${name}`}::regclass, ${to}::bigint)`);
    }
    await tx.query(fenceRestored(asOf));
    await tx.query(auditRow(now, ctx.caller, { operation: 'restore', kind: 'NONE', object: '', given: { asOf } }));
    const [row] = await tx.query<PutBack>(
      sql`SELECT (SELECT CASE WHEN last_value < max_value THEN last_value + 1 END::int FROM pg_sequences WHERE schemaname = 'public' AND sequencename = 'request_id_seq') AS "nextRequestId",
            (SELECT count(*)::int FROM notification WHERE state = 'PENDING') AS emails,
            (SELECT count(*)::int FROM api_token WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ${now}::timestamp)) AS tokens`,
    );
    if (!row) throw new Error('the database returned no rows');
    return row;
  });
  await ctx.db.keepDatabase();
  return settled;
}

/**
 * Returns the number of ids to skip in a sequence with `room` ids left. If too few ids are left, skips the ids that
 * might have been used since the backup, and half of the ids after them.
 */
function leapOf(
  { least, each }: { least: number; each: number },
  { lost, room }: { lost: number; room: bigint },
): bigint {
  const leap = BigInt(least + each * lost);
  if (leap < room) return leap;
  const given = BigInt(each * lost);
  return given < room ? given + (room - given) / 2n : room;
}
