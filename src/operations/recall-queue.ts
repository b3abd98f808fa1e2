/** The queue of recalls, by volume. */
import type { Context } from '../context.js';

/** The waiting recalls of one volume. */
export interface QueueSummary {
  volumeId: number;
  volume: string;
  files: number;
  bytes: bigint;
  oldest: string;
}

/** Volumes that have recalls to be tried now and are in no drive. */
export async function readQueues(ctx: Context): Promise<QueueSummary[]> {
  const { rows } = await ctx.db.pool.query<QueueSummary>(
    `SELECT q.*, v.name AS volume FROM (
       SELECT volume_id AS "volumeId", count(*)::int AS files, sum(size)::bigint AS bytes, min(created_at) AS oldest
       FROM recall WHERE state = 'WAITING' AND volume_id IS NOT NULL AND position IS NOT NULL AND (not_before IS NULL OR not_before <= $1)
       GROUP BY volume_id
     ) q JOIN volume v ON v.id = q."volumeId"
     WHERE NOT EXISTS (SELECT FROM drive d WHERE d.volume_id = v.id)`,
    [ctx.now()],
  );
  return rows;
}

export interface QueuedRecall {
  fileId: bigint;
  position: bigint;
  size: bigint;
}

/** The next recalls of a volume in order of position, from a position on. */
export async function readQueue(
  ctx: Context,
  queue: { volumeId: number; from: bigint; limit: number },
): Promise<QueuedRecall[]> {
  const { rows } = await ctx.db.pool.query<QueuedRecall>(
    `SELECT file_id AS "fileId", position, size FROM recall
     WHERE volume_id = $1 AND state = 'WAITING' AND position >= $2 AND (not_before IS NULL OR not_before <= $3)
     ORDER BY position, file_id LIMIT $4`,
    [queue.volumeId, queue.from, ctx.now(), queue.limit],
  );
  return rows;
}
