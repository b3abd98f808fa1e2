/**
 * What engines saw of the restore disks, for whoever may not touch them: a gateway would hang with a disk. It stands beside the
 * disks' own rows, since a change of these tells that room was reserved, used or freed.
 */
import type { Context } from '../../context.js';
import { type Sql, sql } from '../../database/sql.js';
import { oneLine } from '../../errors.js';
import { addSeconds } from '../../time.js';
import { allow } from '../policy.js';
import type { DiskRow } from './disks.js';
import { describeFull, isFull } from './full.js';

/** Both are null where nobody has looked of late. */
export interface DiskMeasurement {
  /** Bytes that are really free; null where it cannot be seen. */
  free: bigint | null;
  /** For people. A disk that is seen has one where it takes nothing new, whatever is free. */
  problem: string | null;
}

/** What is older says nothing of a disk any more; engines look every ten seconds. */
export const FRESH_SECONDS = 60;
/** A host that has not looked for so long is forgotten. */
const KEPT_SECONDS = 3600;
const MAX_PROBLEM = 1000;

/** Disks that may be looked at: nothing is asked of one that fails before it was tried again. */
export async function listMeasurable(ctx: Context): Promise<Pick<DiskRow, 'id' | 'mountpoint'>[]> {
  const { rows } = await ctx.db.pool.query<Pick<DiskRow, 'id' | 'mountpoint'>>(
    sql`SELECT k.id, k.mountpoint FROM restore_disk k
        WHERE NOT EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id) ORDER BY k.id`,
  );
  return rows;
}

/** Another host has seen the disk `k` of late, and nothing wrong with it but that it is full. */
export function isSeenElsewhere(ctx: Context, host: string): Sql {
  return sql`EXISTS (SELECT FROM disk_measurement m WHERE m.disk_id = k.id AND m.host <> ${host} AND (m.problem IS NULL OR m.free IS NOT NULL)
    AND m.measured_at >= ${addSeconds(ctx.now(), -FRESH_SECONDS)}::timestamp)`;
}

/** Of these disks, which are not there on a host, those that another host sees. */
export async function findSeenElsewhere(ctx: Context, host: string, diskIds: readonly number[]): Promise<Set<number>> {
  const { rows } = await ctx.db.pool.query<{ id: number }>(
    sql`SELECT k.id FROM restore_disk k WHERE k.id = ANY(${diskIds}::int[]) AND ${isSeenElsewhere(ctx, host)}`,
  );
  return new Set(rows.map(({ id }) => id));
}

/** What a host sees now takes the place of what it saw before. */
export async function noteMeasurements(
  ctx: Context,
  host: string,
  seen: readonly (DiskMeasurement & { diskId: number })[],
): Promise<void> {
  const now = ctx.now();
  const [ids, free] = [seen.map(({ diskId }) => diskId), seen.map((disk) => disk.free)];
  const problems = seen.map(({ problem }) => (problem === null ? null : oneLine(problem, MAX_PROBLEM)));
  await ctx.db.pool.query(
    sql`INSERT INTO disk_measurement (disk_id, host, free, problem, measured_at)
        SELECT s.id, ${host}, s.free, s.problem, ${now}
        FROM unnest(${ids}::int[], ${free}::bigint[], ${problems}::text[]) AS s (id, free, problem) ORDER BY s.id
        ON CONFLICT (disk_id, host) DO UPDATE
          SET free = excluded.free, problem = excluded.problem, measured_at = excluded.measured_at`,
  );
  await ctx.db.pool.query(
    sql`DELETE FROM disk_measurement WHERE measured_at < ${addSeconds(now, -KEPT_SECONDS)}::timestamp`,
  );
}

/**
 * By the ids of disks: the least that any host saw free of late, and what each saw wrong, beginning with its name. Of one that is
 * held since it fails, only why. What it said itself when it refused to take more comes first.
 */
export async function readMeasurements(
  ctx: Context,
  diskIds: readonly number[],
): Promise<Map<number, DiskMeasurement>> {
  const { rows } = await ctx.db.pool.query<{
    id: number;
    free: string | null;
    problem: string | null;
    full: string | null;
  }>(
    sql`SELECT k.id, CASE WHEN g.disk_id IS NULL THEN m.free END AS free,
          CASE WHEN g.disk_id IS NULL THEN m.problem ELSE s.reason END AS problem,
          CASE WHEN g.disk_id IS NULL AND ${isFull(ctx)} THEN k.full_reason END AS full
        FROM restore_disk k LEFT JOIN failing_disk g ON g.disk_id = k.id LEFT JOIN suspended_disk s ON s.disk_id = k.id
          CROSS JOIN LATERAL (
            SELECT min(m.free)::text AS free, string_agg(m.host || ': ' || m.problem, '; ' ORDER BY m.host) AS problem
            FROM disk_measurement m
            WHERE m.disk_id = k.id AND m.measured_at >= ${addSeconds(ctx.now(), -FRESH_SECONDS)}::timestamp
          ) m WHERE k.id = ANY(${diskIds}::int[])`,
  );
  return new Map(
    rows.map(({ id, free, problem, full }) => {
      const problems = [full === null ? null : describeFull(full), problem].filter((part) => part !== null);
      return [id, { free: free === null ? null : BigInt(free), problem: problems.join('; ') || null }];
    }),
  );
}

/** More are not told of. */
const MAX_HOSTS = 100;

/** By the ids of disks: the hosts whose engines have looked at them within the last minute, whatever they saw, in order. */
export async function readHostsOf(ctx: Context, diskIds: readonly number[]): Promise<Map<number, string[]>> {
  allow(ctx, 'readHostsOf');
  const { rows } = await ctx.db.pool.query<{ id: number; hosts: string[] }>(
    sql`SELECT k.id, ARRAY(
          SELECT m.host FROM disk_measurement m
          WHERE m.disk_id = k.id AND m.measured_at >= ${addSeconds(ctx.now(), -FRESH_SECONDS)}::timestamp
          ORDER BY m.host LIMIT ${MAX_HOSTS}) AS hosts
        FROM restore_disk k WHERE k.id = ANY(${diskIds}::int[])`,
  );
  return new Map(rows.map(({ id, hosts }) => [id, hosts]));
}
