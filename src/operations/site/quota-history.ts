/** What was used of each quota, by the hour: a row where it was another thing than the hour before, so that a quota at rest costs nothing. */
import type { Context } from '../../context.js';
import { type Sql, sql } from '../../database/sql.js';
import { InvalidInputError } from '../../errors.js';
import { addSeconds, isBefore } from '../../time.js';

/** Bytes of a quota at some time. */
export interface QuotaPoint {
  at: string;
  used: bigint;
  size: bigint;
}

const HOUR_SECONDS = 3600;
/** For how long rows are kept. */
const KEPT_SECONDS = 90 * 24 * HOUR_SECONDS;

const hourOf = (time: string): Sql =>
  sql`date_bin(make_interval(secs => ${HOUR_SECONDS}), ${time}::timestamp, timestamp '2000-01-01')`;

/** Of each context, the hour that it has written. */
const written = new WeakMap<Context['db'], string>();

/** Once in each hour; any number of engines may do so at once. */
export async function writeQuotaHistory(ctx: Context): Promise<void> {
  const now = ctx.now();
  const hour = now.slice(0, 13);
  if (written.get(ctx.db) === hour) return;
  await ctx.db.pool.query(
    sql`INSERT INTO quota_history (quota_id, at, used, size)
        SELECT q.id, ${hourOf(now)}, q.used, q.size FROM quota q
        WHERE q.removed_at IS NULL AND NOT EXISTS (
          SELECT FROM (SELECT y.used, y.size FROM quota_history y WHERE y.quota_id = q.id ORDER BY y.at DESC LIMIT 1) y
          WHERE y.used = q.used AND y.size = q.size)
        ON CONFLICT (quota_id, at) DO NOTHING`,
  );
  await ctx.db.pool.query(sql`DELETE FROM quota_history WHERE at < ${addSeconds(now, -KEPT_SECONDS)}::timestamp`);
  written.set(ctx.db, hour);
}

/**
 * Of quotas that the caller sees, in order of time: what was so at `since`, as far as that is known, each change after it, and how it is now.
 * @throws InvalidInputError
 */
export async function readQuotaHistory(
  ctx: Context,
  quotaIds: readonly number[],
  since: string,
): Promise<Map<number, QuotaPoint[]>> {
  const now = ctx.now();
  if (isBefore(now, since)) throw new InvalidInputError('since', `must not be after now, which is ${now}: ${since}`);
  const { rows } = await ctx.db.pool.query<QuotaPoint & { id: number }>(
    sql`SELECT i.id, p.* FROM unnest(${quotaIds}::int[]) AS i (id) CROSS JOIN LATERAL (
          (SELECT ${since}::timestamp AS at, y.used, y.size FROM quota_history y
           WHERE y.quota_id = i.id AND y.at <= ${since}::timestamp ORDER BY y.at DESC LIMIT 1)
          UNION ALL (SELECT y.at, y.used, y.size FROM quota_history y WHERE y.quota_id = i.id AND y.at > ${since}::timestamp)
          UNION ALL (SELECT ${now}::timestamp, q.used, q.size FROM quota q WHERE q.id = i.id)
        ) p ORDER BY i.id, p.at`,
  );
  const points = new Map<number, QuotaPoint[]>();
  for (const { id, ...point } of rows) points.set(id, [...(points.get(id) ?? []), point]);
  return points;
}
