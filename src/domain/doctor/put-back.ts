/**
 * After a restore from a backup, the database is fenced until a takeover, and ids must not be reused: of requests, which
 * scripts remember, and of events, after which clients resume. Epochs of claims are times, and need nothing.
 */

import { secondsBetween } from '../../core/time.js';
import { sql } from '../../db/sql.js';
import { transaction } from '../../db/transaction.js';
import { auditRow } from '../audit/audit.js';
import type { Context } from '../context.js';
import { fenceRestored } from '../ownership.js';

/** Skipped ids: a minimum, and more for each lost second than a site uses. */
const LEAPS = {
  request_id_seq: { least: 1_000_000, each: 20 },
  integer: { least: 100_000, each: 1 },
  bigint: { least: 1_000_000_000, each: 10_000 },
} as const;

export interface PutBack {
  /** Lower bound; null if no id is left. */
  nextRequestId: number | null;
  /** Pending emails of that time, which are sent, perhaps again. */
  letters: number;
  /** Valid tokens of that time. One that was revoked since is valid again. */
  tokens: number;
}

/**
 * Call once, before anything uses the database. A second call skips more ids.
 * @param state.earliest a time that the restored state is not older than: ids that were used since are skipped
 * @param state.asOf the time of the restored state for people, RFC 3339
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
      // not rolled back with the transaction, which does no harm
      await tx.query(sql`SELECT setval(${`public.${name}`}::regclass, ${to}::bigint)`);
    }
    await tx.query(fenceRestored(asOf));
    await tx.query(auditRow(now, ctx.caller, { operation: 'putBack', kind: 'NONE', object: '', given: { asOf } }));
    const [row] = await tx.query<PutBack>(
      sql`SELECT (SELECT CASE WHEN last_value < max_value THEN last_value + 1 END::int FROM pg_sequences WHERE schemaname = 'public' AND sequencename = 'request_id_seq') AS "nextRequestId",
            (SELECT count(*)::int FROM notification WHERE state = 'PENDING') AS letters,
            (SELECT count(*)::int FROM api_token WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ${now}::timestamp)) AS tokens`,
    );
    if (!row) throw new Error('the database answers nothing');
    return row;
  });
  await ctx.db.keepDatabase();
  return settled;
}

/**
 * If fewer ids are left: half of those beyond all that can have been used, or all if more can have been used. A
 * database without remaining ids is restored only for its data.
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
