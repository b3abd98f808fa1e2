/** What is at staging libraries for Tapegate, to be shown to those who run the site. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { allow } from '../policy.js';

/** Of one library. Files, unless it says otherwise. */
export interface StagingFigures {
  /** It was asked for them, or is about to be, and they are on their way to its disk. */
  asked: number;
  /** They can be read there. */
  ready: number;
  /** It is to be told that nobody needs them. */
  releasing: number;
  /** Nobody needs them, and they leave its disk by themselves. */
  kept: number;
  /** Bytes of all these. */
  bytes: bigint;
  /** Until when it is left alone, since it could not answer, or not be read; and what it said. */
  restUntil: string | null;
  problem: string | null;
  /** Of what is kept, what leaves first. */
  nextKept: KeptCopy[];
}

export interface KeptCopy {
  path: string;
  size: bigint;
  /** When it leaves; null: the library does not say. */
  until: string | null;
}

/** Copies that are shown of a library at most. */
const SHOWN_COPIES = 100;

/** By the ids of libraries; those that do not stage files are left out. */
export async function readStagingFigures(ctx: Context, ids: readonly number[]): Promise<Map<number, StagingFigures>> {
  allow(ctx, 'readStagingFigures');
  const { rows } = await ctx.db.pool.query<StagingFigures & { id: number }>(
    sql`SELECT b.id, w.*, CASE WHEN greatest(t.rest_until, t.read_rest_until) > ${ctx.now()} THEN greatest(t.rest_until, t.read_rest_until) END AS "restUntil", coalesce(t.problem, t.read_problem) AS problem
        FROM library b LEFT JOIN stager t ON t.library_id = b.id CROSS JOIN LATERAL (
          SELECT count(*) FILTER (WHERE s.state IN ('INTENDED', 'ASKED'))::int AS asked,
            count(*) FILTER (WHERE s.state = 'READY')::int AS ready, count(*) FILTER (WHERE s.state = 'RELEASING')::int AS releasing,
            count(*) FILTER (WHERE s.state = 'KEPT')::int AS kept, coalesce(sum(s.size), 0) AS bytes
          FROM staging s WHERE s.library_id = b.id) w
        WHERE b.id = ANY(${ids}::int[]) AND b.contract = 'STAGING'`,
  );
  const { rows: copies } = await ctx.db.pool.query<KeptCopy & { id: number }>(
    sql`SELECT b.id, k.path, k.size, k.until FROM unnest(${rows.map(({ id }) => id)}::int[]) AS b (id) CROSS JOIN LATERAL (
          SELECT f.path, s.size, s.ready_until AS until FROM staging s JOIN tape_file f ON f.id = s.file_id
          WHERE s.library_id = b.id AND s.state = 'KEPT' ORDER BY s.ready_until, s.file_id LIMIT ${SHOWN_COPIES}) k
        ORDER BY b.id, k.until, k.path`,
  );
  return new Map(
    rows.map(({ id, ...figures }) => [
      id,
      { ...figures, nextKept: copies.filter((copy) => copy.id === id).map(({ id: _id, ...copy }) => copy) },
    ]),
  );
}
