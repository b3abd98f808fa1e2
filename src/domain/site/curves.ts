/**
 * History of the site and of quotas. The site's history has one row for every five minutes. A quota's history has one
 * row for each hour in which the quota changed. An engine reads events and writes the counts of events in one
 * transaction, so that no event is counted twice.
 */

import { InvalidInputError } from '../../core/errors.js';
import { addSeconds, isBefore } from '../../core/time.js';
import { tryAdvisory } from '../../db/locks.js';
import { queryWithin } from '../../db/pipeline.js';
import { type Sql, sql } from '../../db/sql.js';
import { transaction } from '../../db/transaction.js';
import { newestNumber } from '../../events/event-table.js';
import { isClaimed } from '../conditions.js';
import type { Context } from '../context.js';
import { allow } from '../policy.js';

export interface CurvePoint {
  at: string;
  seconds: number;
  filesRestored: number;
  bytesRestored: bigint;
  filesFailed: number;
  filesWaiting: number | null;
  oldestSeconds: number | null;
  drivesInUse: number | null;
  drives: number | null;
}

const SLOT_SECONDS = 300;
const HOUR_SECONDS = 3600;
const DAY_SECONDS = 24 * HOUR_SECONDS;
/** Age in days after which the site's history keeps only one point per hour. */
const FINE_DAYS = 2;
const CURVE_DAYS = 90;
const MOST_POINTS = 3000;
const STEP = 20_000n;
const SAMPLE_MS = 20_000;

const slotOf = (time: Sql, seconds: number) =>
  sql`date_bin(make_interval(secs => ${seconds}), ${time}, timestamp '2000-01-01')`;

/**
 * Counts events, measures the queue once every five minutes, and writes the quotas' history. If the process is killed
 * at any point, the history stays correct.
 */
export async function writeHistory(ctx: Context, stop: AbortSignal): Promise<void> {
  const now = ctx.now();
  while (!stop.aborted && (await countStep(ctx, now)));
  await sampleSlot(ctx, now);
  await writeQuotaHistory(ctx);
}

async function countStep(ctx: Context, now: string): Promise<boolean> {
  await ctx.events.numbers.number();
  return await transaction(ctx.db.pool, 'writeHistory', async (tx) => {
    if (!(await tryAdvisory(tx, 'curves'))) return false;
    const [row] = await tx.query<{ after: bigint; newest: bigint }>(
      sql`SELECT coalesce((SELECT max(y.up_to) FROM site_history y), ${newestNumber}) AS after, ${newestNumber} AS newest`,
    );
    const { after, newest } = row ?? { after: 0n, newest: 0n };
    // after a database restore, the event ids have a gap: continue with the first event after the gap
    const [next] = await tx.query<{ first: bigint }>(
      sql`SELECT b.first_number AS first FROM event_batch b WHERE b.last_number > ${after} ORDER BY b.last_number LIMIT 1`,
    );
    const begin = next && next.first > after ? next.first - 1n : after;
    const upTo = newest - begin > STEP ? begin + STEP : newest;
    await tx.query(addCounted(now, after, upTo));
    await tx.query(sql`DELETE FROM site_history WHERE at < ${addSeconds(now, -CURVE_DAYS * DAY_SECONDS)}::timestamp`);
    return upTo < newest;
  });
}

const NUMBER = sql`b.first_number + e.id - b.first_id`;

const addCounted = (now: string, after: bigint, upTo: bigint): Sql => sql`
  WITH e AS MATERIALIZED (
    SELECT e.id, e.at, e.to_stage, e.file_id, e.request_id, e.files_failed
    FROM event_batch b JOIN LATERAL (
      SELECT * FROM event e WHERE e.batch_id = b.id AND e.id BETWEEN b.first_id AND b.last_id
        AND ${NUMBER} > ${after} AND ${NUMBER} <= ${upTo}) e ON true
    WHERE b.last_number > ${after} AND b.first_number <= ${upTo} AND NOT b.is_pruned
  ), counted AS (
    SELECT ${slotOf(sql`e.at`, SLOT_SECONDS)} AS at, count(f.id) AS files, coalesce(sum(f.size), 0) AS bytes, 0 AS failed
    FROM e JOIN tape_file f ON f.id = e.file_id WHERE e.to_stage = 'RESTORED' GROUP BY 1
    UNION ALL
    SELECT ${slotOf(sql`e.at`, SLOT_SECONDS)}, 0, 0, sum(greatest(e.files_failed - coalesce(p.files_failed, e.files_failed), 0))
    FROM e LEFT JOIN LATERAL (
      SELECT o.files_failed FROM event o WHERE o.request_id = e.request_id AND o.id < e.id ORDER BY o.id DESC LIMIT 1) p ON true
    WHERE e.request_id IS NOT NULL GROUP BY 1
    UNION ALL SELECT ${slotOf(sql`${now}::timestamp`, SLOT_SECONDS)}, 0, 0, 0
  )
  INSERT INTO site_history AS y (at, files_restored, bytes_restored, files_failed, up_to)
  SELECT at, sum(files), sum(bytes), sum(failed), ${upTo}::bigint FROM counted GROUP BY at
  ON CONFLICT (at) DO UPDATE SET files_restored = y.files_restored + excluded.files_restored,
    bytes_restored = y.bytes_restored + excluded.bytes_restored, files_failed = y.files_failed + excluded.files_failed,
    up_to = excluded.up_to`;

async function sampleSlot(ctx: Context, now: string): Promise<void> {
  const slot = slotOf(sql`${now}::timestamp`, SLOT_SECONDS);
  const { rowCount } = await ctx.db.pool.query(
    sql`SELECT FROM site_history y WHERE y.at = ${slot} AND y.files_waiting IS NULL`,
  );
  if (rowCount === 0) return;
  await queryWithin(
    ctx.db.pool,
    sql`UPDATE site_history y SET files_waiting = w.files, oldest_seconds = w.seconds, drives_in_use = w.used, drives = w.drives
        FROM (SELECT count(*) AS files, coalesce(extract(epoch FROM ${now}::timestamp - min(c.created_at)), 0) AS seconds,
                (SELECT count(*) FROM drive d WHERE ${isClaimed} AND d.volume_id IS NOT NULL) AS used, (SELECT count(*) FROM drive) AS drives
              FROM recall c WHERE c.state = 'WAITING') w
        WHERE y.at = ${slot} AND y.files_waiting IS NULL`,
    SAMPLE_MS,
  );
}

/**
 * Returns the points of the site's history that begin at or after `since` and before `until`. Returns at most the
 * newest 3,000 points.
 * @throws InvalidInputError
 */
export async function readHistory(
  ctx: Context,
  { since, until }: { since: string; until?: string | null | undefined },
): Promise<CurvePoint[]> {
  allow(ctx, 'readHistory');
  const end = until ?? ctx.now();
  if (isBefore(end, since)) throw new InvalidInputError('until', `must not be earlier than since (${since})`);
  const fine = addSeconds(ctx.now(), -FINE_DAYS * DAY_SECONDS);
  const seconds = sql`CASE WHEN y.at < ${slotOf(sql`${fine}::timestamp`, HOUR_SECONDS)} THEN ${HOUR_SECONDS}::int ELSE ${SLOT_SECONDS}::int END`;
  const rows = await ctx.db.rows<CurvePoint>(
    sql`SELECT p.at, s.seconds,
          sum(y.files_restored)::int AS "filesRestored", sum(y.bytes_restored) AS "bytesRestored",
          sum(y.files_failed)::int AS "filesFailed", round(avg(y.files_waiting))::int AS "filesWaiting",
          max(y.oldest_seconds) AS "oldestSeconds", avg(y.drives_in_use) AS "drivesInUse", max(y.drives) AS drives
        FROM site_history y CROSS JOIN LATERAL (SELECT ${seconds} AS seconds) s
          CROSS JOIN LATERAL (SELECT date_bin(make_interval(secs => s.seconds), y.at, timestamp '2000-01-01') AS at) p
        WHERE p.at >= ${since}::timestamp AND p.at < ${end}::timestamp GROUP BY 1, 2 ORDER BY 1 DESC LIMIT ${MOST_POINTS}`,
  );
  return rows.reverse();
}

export interface QuotaPoint {
  at: string;
  used: bigint;
  size: bigint;
}

const written = new WeakMap<Context['db'], string>();

/**
 * Writes a row once an hour for each quota that has changed since the quota's last row. Several engines can write these
 * rows at the same time.
 */
async function writeQuotaHistory(ctx: Context): Promise<void> {
  const now = ctx.now();
  const hour = now.slice(0, 13);
  if (written.get(ctx.db) === hour) return;
  await ctx.db.pool.query(
    sql`INSERT INTO quota_history (quota_id, at, used, size)
        SELECT q.id, ${slotOf(sql`${now}::timestamp`, HOUR_SECONDS)}, q.used, q.size FROM quota q
        WHERE q.removed_at IS NULL AND NOT EXISTS (
          SELECT FROM (SELECT y.used, y.size FROM quota_history y WHERE y.quota_id = q.id ORDER BY y.at DESC LIMIT 1) y
          WHERE y.used = q.used AND y.size = q.size)
        ON CONFLICT (quota_id, at) DO NOTHING`,
  );
  await ctx.db.pool.query(
    sql`DELETE FROM quota_history WHERE at < ${addSeconds(now, -CURVE_DAYS * DAY_SECONDS)}::timestamp`,
  );
  written.set(ctx.db, hour);
}

/**
 * Returns the history of each quota's size and used bytes, by quota id. The history contains the values at the time
 * `since` (if known), the values after each later change, and the current values.
 * @throws InvalidInputError
 */
export async function readQuotaHistory(
  ctx: Context,
  quotaIds: readonly number[],
  since: string,
): Promise<Map<number, QuotaPoint[]>> {
  const now = ctx.now();
  if (isBefore(now, since)) throw new InvalidInputError('since', `must not be in the future: ${since} is after ${now}`);
  const rows = await ctx.db.rows<QuotaPoint & { id: number }>(
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
