/** In which trace the file of a recall is brought: that of the first request that waits for it and was traced. */
import type { Context } from '../../context.js';
import { queryByKeys } from '../../database/planning.js';
import { sql } from '../../database/sql.js';

/** By the ids of files; those that are in none are left out. */
export async function readTraceparents(ctx: Context, fileIds: readonly bigint[]): Promise<Map<bigint, string>> {
  if (fileIds.length === 0) return new Map();
  const rows = await queryByKeys<{ fileId: bigint; traceparent: string }>(
    ctx.db.pool,
    sql`SELECT DISTINCT ON (h.file_id) h.file_id AS "fileId", r.trace_parent AS traceparent
        FROM live_hold h JOIN request r ON r.id = h.request_id
        WHERE h.file_id = ANY(${fileIds}::bigint[]) AND h.state = 'WAITING' AND r.trace_parent IS NOT NULL
        ORDER BY h.file_id, r.id`,
  );
  return new Map(rows.map(({ fileId, traceparent }) => [fileId, traceparent]));
}
