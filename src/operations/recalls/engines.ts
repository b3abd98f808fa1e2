/**
 * Engines among each other: each of their processes that works with drives says where it runs, and that it asks for a drive as long as it has none to
 * work with. Times are those of the database's clock, as for leases. Programs from before say nothing: what they have is theirs until they let go.
 */
import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import type { DrivesAndAskers, SharedDrive, SharingEngine } from '../../planner/drive-shares.js';
import { isClaimed } from '../conditions.js';
import { allow } from '../policy.js';
import { type DriveRange, drivePrefix } from './drives.js';

/** A process that works with drives. */
export interface EngineProcess {
  /** By which it claims drives. */
  id: string;
  /** The same for all processes of an engine. */
  engineId: string;
  host: string;
  /** It works with the drives of this one. */
  library: Pick<DriveRange, 'id' | 'name'>;
  /** Drives that it works with at once. */
  drives: number;
  /** It may have drives 1 to so many. */
  reach: number;
  /** Of the engine. */
  weight: number;
}

/** A process that has not asked for so long and has no drive is forgotten. */
const KEPT_SECONDS = 60;

const now = sql`timezone('utc', clock_timestamp())`;

/** Notes the process, and that it asks for so long; 0: not any more. */
export async function noteEngineProcess(ctx: Context, process: EngineProcess, askSeconds: number): Promise<void> {
  const { id, engineId, host, library, drives, reach, weight } = process;
  await ctx.db.pool.query(
    sql`INSERT INTO engine_process (id, engine_id, host, library_id, drives, reach, weight, asks_until)
        VALUES (${id}::uuid, ${engineId}::uuid, ${host}, ${library.id}, ${drives}, ${reach}, ${weight}, ${now} + make_interval(secs => ${askSeconds}))
        ON CONFLICT (id) DO UPDATE SET asks_until = excluded.asks_until`,
  );
}

/** The process ends. */
export async function forgetEngineProcess(ctx: Context, id: string): Promise<void> {
  await ctx.db.pool.query(sql`DELETE FROM engine_process WHERE id = ${id}::uuid`);
}

/** Those that have ended without a word. One that only stood still notes itself again before it claims a drive. */
export async function forgetGoneProcesses(ctx: Context): Promise<void> {
  await ctx.db.pool.query(
    sql`DELETE FROM engine_process WHERE id IN (
          SELECT p.id FROM engine_process p
          WHERE p.asks_until < ${now} - make_interval(secs => ${KEPT_SECONDS}) AND NOT EXISTS (SELECT FROM drive d WHERE d.engine_id = p.id)
          ${locking.freeProcess})`,
  );
}

/** What an engine has to know of the others to share the drives of a library with them; nothing of the drives where nobody else asks. */
export async function readDrivesAndAskers(
  ctx: Context,
  { engineId, library }: Pick<EngineProcess, 'engineId' | 'library'>,
): Promise<DrivesAndAskers> {
  const prefix = drivePrefix(library);
  const { rows: askers } = await ctx.db.pool.query<SharingEngine>(
    sql`SELECT p.engine_id AS id, max(p.weight) AS weight, max(p.reach) AS reach FROM engine_process p
        WHERE p.engine_id <> ${engineId}::uuid AND p.library_id = ${library.id} AND p.asks_until >= ${now}
          AND (SELECT count(*) FROM drive d WHERE d.engine_id = p.id AND ${isClaimed}) < p.drives
        GROUP BY p.engine_id`,
  );
  if (askers.length === 0) return { drives: [], askers };
  const { rows: drives } = await ctx.db.pool.query<{
    id: number;
    number: number;
    holder: string | null;
    isMounted: boolean;
  }>(
    sql`SELECT d.id, substring(d.name FROM length(${prefix}::text) + 1)::int AS number, d.volume_id IS NOT NULL AS "isMounted", CASE WHEN ${isClaimed} THEN coalesce(p.engine_id, d.engine_id) END AS holder
        FROM drive d LEFT JOIN engine_process p ON p.id = d.engine_id
        WHERE d.library_id = ${library.id} AND starts_with(d.name, ${prefix}) AND substring(d.name FROM length(${prefix}::text) + 1) ~ '^[0-9]{1,9}$'
          AND NOT EXISTS (SELECT FROM suspended_drive s WHERE s.drive_id = d.id)`,
  );
  return { drives: drives.map((drive): SharedDrive => ({ ...drive, holder: drive.holder ?? undefined })), askers };
}

/** By the ids of drives: the hosts of the engines that hold them and live, as far as these have said so. */
export async function readDriveHosts(ctx: Context, driveIds: readonly number[]): Promise<Map<number, string>> {
  allow(ctx, 'readDriveHosts');
  const { rows } = await ctx.db.pool.query<{ id: number; host: string }>(
    sql`SELECT d.id, p.host FROM drive d JOIN engine_process p ON p.id = d.engine_id
        WHERE d.id = ANY(${driveIds}::int[]) AND ${isClaimed}`,
  );
  return new Map(rows.map(({ id, host }) => [id, host]));
}
