/** Reads the site's figures for metrics with one cheap statement. The figures do not contain user names. */

import { addSeconds } from '../../core/time.js';
import { queryWithin } from '../../db/pipeline.js';
import { type Sql, sql } from '../../db/sql.js';
import { FRESH_SECONDS, isClaimed, isLive, isManned, isRunning } from '../conditions.js';
import type { Context } from '../context.js';
import { lacksRoom } from '../disks/disks.js';
import { isFull } from '../health/circuits.js';
import { allow } from '../policy.js';

export interface SiteFigures {
  /**
   * For each recall state: the number of recalls, their total size in bytes, and the age of the oldest recall in
   * seconds.
   */
  queue: { state: string; files: number; bytes: number; seconds: number }[];
  openRequests: number;
  /** Number of engines that hold or request a drive, or are ready to use one. */
  engines: number;
  drives: { library: string; drive: string; state: 'suspended' | 'working' | 'idle' | 'free' }[];
  libraries: { library: string; isSuspended: boolean; hasProblem: boolean }[];
  /** The sizes of a restore disk are in bytes. The free size is null if no engine has measured the disk recently. */
  disks: {
    disk: string;
    size: number;
    used: number;
    reserved: number;
    free: number | null;
    hasProblem: boolean;
    isSuspended: boolean;
    isFull: boolean;
  }[];
  suspensions: { kind: string; mode: string; number: number }[];
  mail: { waiting: number; failing: number; oldestSeconds: number };
  unnumberedBatches: number;
}

const TIMEOUT_MS = 8000;

/**
 * Checks that the caller is allowed to read metrics. Without authentication, every caller can read metrics.
 * @throws ForbiddenError
 */
export function allowMetrics(ctx: Context): void {
  if (ctx.caller.way !== 'open') allow(ctx, 'readMetrics');
}

/** Returns the site's figures. @throws UnavailableError if the query takes too long */
export async function readSiteFigures(ctx: Context): Promise<SiteFigures> {
  const now = ctx.now();
  const fresh = addSeconds(now, -FRESH_SECONDS);
  const ageOf = (time: Sql) => sql`greatest(extract(epoch FROM ${now}::timestamp - min(${time})), 0)::float8`;
  const [row] = await queryWithin<{ figures: string }>(
    ctx.db.pool,
    sql`SELECT json_build_object(
      'queue', coalesce((SELECT json_agg(x) FROM (
        SELECT c.state, count(*) AS files, sum(c.size) AS bytes, ${ageOf(sql`c.created_at`)} AS seconds FROM recall c GROUP BY c.state) x), '[]'),
      'openRequests', (SELECT count(*) FROM request r WHERE ${isLive}),
      'engines', (SELECT count(*) FROM (
        SELECT coalesce(p.engine_id, d.engine_id) FROM drive d LEFT JOIN engine_process p ON p.id = d.engine_id WHERE ${isClaimed}
        UNION SELECT p.engine_id FROM engine_process p WHERE ${isRunning(sql`p.asks_until`)} OR ${isRunning(sql`p.ready_until`)}) x),
      'drives', coalesce((SELECT json_agg(x) FROM (
        SELECT b.name AS library, d.name AS drive,
          CASE WHEN EXISTS (SELECT FROM suspended_drive s WHERE s.drive_id = d.id) THEN 'suspended' WHEN NOT ${isManned} THEN 'free'
            WHEN d.volume_id IS NOT NULL OR EXISTS (SELECT FROM recall c WHERE c.drive_id = d.id) THEN 'working' ELSE 'idle' END AS state
        FROM drive d JOIN library b ON b.id = d.library_id ORDER BY d.id) x), '[]'),
      'libraries', coalesce((SELECT json_agg(x) FROM (
        SELECT b.name AS library, EXISTS (SELECT FROM suspended_library s WHERE s.library_id = b.id) AS "isSuspended",
          coalesce(g.problem IS NOT NULL OR g.read_problem IS NOT NULL, false) AS "hasProblem"
        FROM library b LEFT JOIN stager g ON g.library_id = b.id ORDER BY b.id) x), '[]'),
      'disks', coalesce((SELECT json_agg(x) FROM (
        SELECT k.mountpoint AS disk, k.size, k.used, k.reserved, m.free, ${isFull(ctx)} OR ${lacksRoom(sql`m.free`)} AS "isFull",
          coalesce(m.problems > 0, false) OR EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = k.id) AS "hasProblem",
          EXISTS (SELECT FROM suspended_disk s WHERE s.disk_id = k.id) AS "isSuspended"
        FROM restore_disk k LEFT JOIN LATERAL (
          SELECT min(m.free) AS free, count(m.problem) AS problems FROM disk_measurement m
          WHERE m.disk_id = k.id AND m.measured_at >= ${fresh}::timestamp) m ON true
        ORDER BY k.id) x), '[]'),
      'suspensions', coalesce((SELECT json_agg(x) FROM (
        SELECT s.kind, s.mode, count(*) AS number FROM suspension s GROUP BY s.kind, s.mode) x), '[]'),
      'mail', (SELECT json_build_object('waiting', count(*), 'failing', count(*) FILTER (WHERE n.last_error IS NOT NULL),
          'oldestSeconds', coalesce(${ageOf(sql`n.created_at`)}, 0)) FROM notification n WHERE n.state = 'PENDING'),
      'unnumberedBatches', (SELECT count(*) FROM event_batch e WHERE e.last_number IS NULL)
    )::text AS figures`,
    TIMEOUT_MS,
  );
  return JSON.parse(row?.figures ?? '{}');
}
