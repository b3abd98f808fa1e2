/**
 * Engines among each other: each of their processes that works with drives says so every now and then, and counts as gone when it does not. Times are
 * those of the database's clock, as for leases. Programs from before say nothing: what they have is theirs until they let go.
 */
import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { sql } from '../../database/sql.js';
import type { SharedDrive, SharingEngine } from '../../planner/drive-shares.js';
import { isClaimed } from '../conditions.js';
import { allow } from '../policy.js';

/** A process that works with drives. */
export interface EngineProcess {
  /** By which it claims drives. */
  id: string;
  /** The same for all processes of an engine. */
  engineId: string;
  host: string;
  /** Drives that it works with at once. */
  drives: number;
  /** It may have drives 1 to so many. */
  reach: number;
  /** Of the engine; 0: it takes only what nobody else wants. */
  weight: number;
}

const isThere = sql`(p.lease_until >= timezone('utc', clock_timestamp()))`;

/** The process is there, for so long unless it says so again. */
export async function noteEngineProcess(ctx: Context, process: EngineProcess, leaseSeconds: number): Promise<void> {
  const { id, engineId, host, drives, reach, weight } = process;
  await ctx.db.vitalPool.query(
    sql`INSERT INTO engine_process (id, engine_id, host, drives, reach, weight, lease_until)
        VALUES (${id}::uuid, ${engineId}::uuid, ${host}, ${drives}, ${reach}, ${weight},
          timezone('utc', clock_timestamp()) + make_interval(secs => ${leaseSeconds}))
        ON CONFLICT (id) DO UPDATE SET weight = excluded.weight, lease_until = excluded.lease_until`,
  );
}

/** The process ends; those that have ended without a word are forgotten with it. */
export async function forgetEngineProcess(ctx: Context, id: string): Promise<void> {
  await ctx.db.pool.query(sql`DELETE FROM engine_process WHERE id = ${id}::uuid`);
  await forgetGoneProcesses(ctx);
}

/** Those that have ended without a word. */
export async function forgetGoneProcesses(ctx: Context): Promise<void> {
  await ctx.db.pool.query(
    sql`DELETE FROM engine_process WHERE id IN (SELECT p.id FROM engine_process p WHERE NOT ${isThere} ${locking.freeProcess})`,
  );
}

/** What engines share. */
export interface DrivesAndEngines {
  /** Held by an engine that is there, or by nobody. */
  drives: (SharedDrive & { id: number })[];
  /** Those that want drives. */
  engines: SharingEngine[];
}

export async function readDrivesAndEngines(ctx: Context): Promise<DrivesAndEngines> {
  const { rows: drives } = await ctx.db.pool.query<{ id: number; number: number; holder: string | null }>(
    sql`SELECT d.id, substring(d.name FROM 7)::int AS number, CASE WHEN ${isClaimed} THEN p.engine_id END AS holder
        FROM drive d LEFT JOIN engine_process p ON p.id = d.engine_id AND ${isThere}
        WHERE d.name ~ '^drive-[0-9]{1,9}$' AND (NOT ${isClaimed} OR p.id IS NOT NULL) ORDER BY d.id`,
  );
  const { rows: engines } = await ctx.db.pool.query<SharingEngine>(
    sql`SELECT p.engine_id AS id, max(p.weight) AS weight, sum(p.drives)::int AS drives, max(p.reach) AS reach
        FROM engine_process p WHERE ${isThere} AND p.weight > 0 GROUP BY p.engine_id`,
  );
  return { drives: drives.map((drive) => ({ ...drive, holder: drive.holder ?? undefined })), engines };
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
