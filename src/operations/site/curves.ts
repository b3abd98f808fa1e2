/**
 * Curves: what the site did, in a row for each five minutes, and of older days for each hour. One engine at a time counts what events tell
 * since the last one that was counted; that and the figures are one transaction, so that nothing is counted twice, whoever is killed.
 */
import type { Context } from '../../context.js';
import { tryAdvisory } from '../../database/locks.js';
import { queryWithin } from '../../database/pipeline.js';
import { type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { InvalidInputError } from '../../errors.js';
import { newestNumber } from '../../event-table.js';
import { addSeconds, isBefore } from '../../time.js';
import { isClaimed } from '../conditions.js';
import { allow } from '../policy.js';
import { writeQuotaHistory } from './quota-history.js';

/** What was done in some time. */
export interface CurvePoint {
  /** When it began, and how long it is. */
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

export const SLOT_SECONDS = 300;
const HOUR_SECONDS = 3600;
const DAY_SECONDS = 24 * HOUR_SECONDS;
/** Rows of five minutes are kept for so long, those of hours for so long. */
const FINE_DAYS = 2;
export const CURVE_DAYS = 90;
/** All that there may be, and some more: 48 hours of five minutes, and the hours before. */
const MOST_POINTS = 3000;
/** Numbers of events that are counted in one step. */
const STEP = 20_000n;
/** A queue of ten million files is counted in some seconds. */
const SAMPLE_MS = 20_000;

const slotOf = (time: Sql, seconds: number) =>
  sql`date_bin(make_interval(secs => ${seconds}), ${time}, timestamp '2000-01-01')`;

/** Counts what has come since, and once in each slot what waits. May be killed at any line. */
export async function writeHistory(ctx: Context, stop: AbortSignal): Promise<void> {
  const now = ctx.now();
  while (!stop.aborted && (await countStep(ctx, now)));
  await sampleSlot(ctx, now);
  await writeQuotaHistory(ctx);
}

/** @returns whether there is more to count */
async function countStep(ctx: Context, now: string): Promise<boolean> {
  await ctx.events.numbers.number();
  return await transaction(ctx.db.pool, 'writeHistory', async (tx) => {
    if (!(await tryAdvisory(tx, 'curves'))) return false;
    const [row] = await tx.query<{ after: bigint; newest: bigint }>(
      sql`SELECT coalesce((SELECT max(y.up_to) FROM site_history y), ${newestNumber}) AS after, ${newestNumber} AS newest`,
    );
    const { after, newest } = row ?? { after: 0n, newest: 0n };
    // numbers leap where the database was put back to a state before
    const [next] = await tx.query<{ first: bigint }>(
      sql`SELECT b.first_number AS first FROM event_batch b WHERE b.last_number > ${after} ORDER BY b.last_number LIMIT 1`,
    );
    const begin = next && next.first > after ? next.first - 1n : after;
    const upTo = newest - begin > STEP ? begin + STEP : newest;
    await tx.query(addCounted(now, after, upTo));
    await coarsen(tx, now);
    return upTo < newest;
  });
}

const NUMBER = sql`b.first_number + e.id - b.first_id`;

/** Events go to the slots of their own times; the present slot has a row in any case. */
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
  INSERT INTO site_history AS y (at, seconds, files_restored, bytes_restored, files_failed, up_to)
  SELECT at, ${SLOT_SECONDS}, sum(files), sum(bytes), sum(failed), ${upTo}::bigint FROM counted GROUP BY at
  ON CONFLICT (at) DO UPDATE SET files_restored = y.files_restored + excluded.files_restored,
    bytes_restored = y.bytes_restored + excluded.bytes_restored, files_failed = y.files_failed + excluded.files_failed,
    up_to = excluded.up_to`;

/** Whole hours of older days become a row each; what is older than all that goes. */
async function coarsen(tx: Transaction, now: string): Promise<void> {
  const fine = slotOf(sql`${addSeconds(now, -FINE_DAYS * DAY_SECONDS)}::timestamp`, HOUR_SECONDS);
  const [row] = await tx.query<{ isDue: boolean }>(
    sql`SELECT EXISTS (SELECT FROM site_history WHERE at < ${fine} AND seconds = ${SLOT_SECONDS})
          OR EXISTS (SELECT FROM site_history WHERE at < ${addSeconds(now, -CURVE_DAYS * DAY_SECONDS)}::timestamp) AS "isDue"`,
  );
  if (!row?.isDue) return;
  await tx.query(sql`DELETE FROM site_history WHERE at < ${addSeconds(now, -CURVE_DAYS * DAY_SECONDS)}::timestamp`);
  const hour = slotOf(sql`y.at`, HOUR_SECONDS);
  // the row of the hour has the key of its first slot, so that these are read and taken away before
  const hours = await tx.query<{ rows: string }>(
    sql`WITH old AS (DELETE FROM site_history y WHERE y.at < ${fine} AND y.seconds = ${SLOT_SECONDS} RETURNING y.*)
        SELECT coalesce(json_agg(x), '[]')::text AS rows FROM (
          SELECT ${hour} AS at, ${HOUR_SECONDS}::int AS seconds, sum(files_restored)::int AS files_restored, sum(bytes_restored) AS bytes_restored,
            sum(files_failed)::int AS files_failed, round(avg(files_waiting))::int AS files_waiting, max(oldest_seconds) AS oldest_seconds,
            avg(drives_in_use) AS drives_in_use, max(drives) AS drives, max(up_to) AS up_to FROM old y GROUP BY 1) x`,
  );
  await tx.query(
    sql`INSERT INTO site_history AS y SELECT * FROM json_populate_recordset(NULL::site_history, ${hours[0]?.rows ?? '[]'}::json)
        ON CONFLICT (at) DO UPDATE SET files_restored = y.files_restored + excluded.files_restored,
          bytes_restored = y.bytes_restored + excluded.bytes_restored, files_failed = y.files_failed + excluded.files_failed`,
  );
}

/** What waits, once in each slot: whoever comes first. */
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

/** The points that begin from `since` on and before `until`, in order; the newest ones where there are too many. @throws InvalidInputError */
export async function readHistory(
  ctx: Context,
  { since, until }: { since: string; until?: string | null | undefined },
): Promise<CurvePoint[]> {
  allow(ctx, 'readHistory');
  const end = until ?? ctx.now();
  if (isBefore(end, since)) throw new InvalidInputError('until', `must not be before since, which is ${since}`);
  const { rows } = await ctx.db.pool.query<CurvePoint>(
    sql`SELECT y.at, y.seconds, y.files_restored AS "filesRestored", y.bytes_restored AS "bytesRestored", y.files_failed AS "filesFailed",
          y.files_waiting AS "filesWaiting", y.oldest_seconds AS "oldestSeconds", y.drives_in_use AS "drivesInUse", y.drives
        FROM site_history y WHERE y.at >= ${since}::timestamp AND y.at < ${end}::timestamp ORDER BY y.at DESC LIMIT ${MOST_POINTS}`,
  );
  return rows.reverse();
}
