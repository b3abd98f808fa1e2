/**
 * A database that was put back to an earlier state: what has been given out since is not to be given again. Ids of requests, which
 * scripts remember, of events, by which clients resume, and all others go on far beyond what there can have been. Claims of drives and of
 * libraries need nothing: their epochs are times.
 */
import { auditRow } from '../../audit.js';
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { transaction } from '../../database/transaction.js';
import { secondsBetween } from '../../time.js';

/** Ids that go on beyond so many, and so many more for each second that was lost: more than anybody makes. */
const LEAPS = {
  request_id_seq: { least: 1_000_000, each: 20 },
  /** Of users, disks, drives and the like. */
  integer: { least: 100_000, each: 1 },
  bigint: { least: 1_000_000_000, each: 10_000 },
} as const;

export interface PutBack {
  /** That the next request has at least; null where no id is left, so that none can be made. */
  nextRequestId: number | null;
  /** Letters that were waiting then: they may have been sent since, and are sent. */
  letters: number;
  /** Tokens that were good then: what was revoked since is good again. */
  tokens: number;
}

/**
 * To be called once, before anything works with the database; a second time does no harm but to leave more ids out.
 * @param asOf when the database was in this state, at the earliest
 */
export async function settlePutBack(ctx: Context, asOf: string): Promise<PutBack> {
  return await transaction(ctx.db.pool, 'settlePutBack', async (tx) => {
    const now = ctx.now();
    const lost = Math.max(Math.ceil(secondsBetween(asOf, now)), 0);
    const sequences = await tx.query<{ name: string; type: 'integer' | 'bigint'; last: bigint; most: bigint }>(
      sql`SELECT s.sequencename AS name, s.data_type::text AS type, coalesce(s.last_value, 0) AS last, s.max_value AS most
          FROM pg_sequences s WHERE s.schemaname = 'public' ORDER BY s.sequencename`,
    );
    for (const { name, type, last, most } of sequences) {
      const to = last + leapOf(name === 'request_id_seq' ? LEAPS[name] : LEAPS[type], { lost, room: most - last });
      // not taken back with the transaction, which does no harm
      await tx.query(sql`SELECT setval(${`public.${name}`}::regclass, ${to}::bigint)`);
    }
    await tx.query(auditRow(now, ctx.caller, { operation: 'putBack', kind: 'NONE', object: '', given: { asOf } }));
    const [row] = await tx.query<PutBack>(
      sql`SELECT (SELECT CASE WHEN last_value < max_value THEN last_value + 1 END::int FROM pg_sequences WHERE schemaname = 'public' AND sequencename = 'request_id_seq') AS "nextRequestId",
            (SELECT count(*)::int FROM notification WHERE state = 'PENDING') AS letters,
            (SELECT count(*)::int FROM api_token WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ${now}::timestamp)) AS tokens`,
    );
    if (!row) throw new Error('the database answers nothing');
    return row;
  });
}

/**
 * Where less is left: half of what is left beyond all that can have been given, and all of it where more can have been given. A database
 * with no ids left has its data still, so that it is put back.
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
