/**
 * Decides which engine calls a staging library. An engine leases a library as it leases a drive (recalls/drives.ts),
 * and at most one engine holds the lease. The lease only prevents needless calls to the library. Two engines that call
 * the same library do no harm, because their calls have different batch ids.
 */

import { locking } from '../../db/locks.js';
import { type Sql, sql } from '../../db/sql.js';
import type { SuspensionMode } from '../../generated/prisma/enums.js';
import { isRunning, databaseNow as now } from '../conditions.js';
import type { Context } from '../context.js';
import { allow } from '../policy.js';

export interface StagerLease {
  libraryId: number;
  engineId: string;
  epoch: bigint;
}

export function isStagedUnder({ libraryId, engineId, epoch }: StagerLease): Sql {
  return sql`(y.library_id = ${libraryId} AND y.epoch = ${epoch} AND y.engine_id = ${engineId}::uuid)`;
}

export async function ensureStager(ctx: Context, libraryId: number): Promise<void> {
  await ctx.db.pool.query(sql`INSERT INTO stager (library_id) VALUES (${libraryId}) ON CONFLICT DO NOTHING`);
}

export async function claimStager(
  ctx: Context,
  claim: { libraryId: number; engineId: string; leaseSeconds: number },
): Promise<StagerLease | undefined> {
  const { libraryId, engineId, leaseSeconds } = claim;
  const rows = await ctx.db.rows<{ epoch: bigint }>(
    sql`UPDATE stager SET engine_id = ${engineId}::uuid,
          epoch = greatest(epoch + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint),
          lease_until = ${now} + make_interval(secs => ${leaseSeconds})
        WHERE library_id = (
          SELECT y.library_id FROM stager y
          WHERE y.library_id = ${libraryId} AND NOT ${isRunning(sql`y.lease_until`)} ${locking.freeStager})
        RETURNING epoch`,
  );
  return rows[0] && { libraryId, engineId, epoch: rows[0].epoch };
}

export async function renewStager(ctx: Context, lease: StagerLease, leaseSeconds: number): Promise<boolean> {
  const rows = await ctx.db.vitalRows(
    sql`UPDATE stager y SET lease_until = ${now} + make_interval(secs => ${leaseSeconds}) WHERE ${isStagedUnder(lease)}
        RETURNING y.library_id`,
  );
  return rows.length === 1;
}

export async function giveBackStager(ctx: Context, lease: StagerLease): Promise<void> {
  await ctx.db.pool.query(sql`UPDATE stager y SET engine_id = NULL, lease_until = NULL WHERE ${isStagedUnder(lease)}`);
}

export interface Rests {
  mode: SuspensionMode | null;
  restUntil: string | null;
  readRestUntil: string | null;
  failures: number;
  readFailures: number;
}

export async function readRests(ctx: Context, libraryId: number): Promise<Rests> {
  const rows = await ctx.db.rows<Rests>(
    sql`SELECT (SELECT s.mode FROM suspended_library s WHERE s.library_id = ${libraryId}) AS mode,
          CASE WHEN t.rest_until > ${ctx.now()} THEN t.rest_until END AS "restUntil",
          CASE WHEN t.read_rest_until > ${ctx.now()} THEN t.read_rest_until END AS "readRestUntil",
          t.failures, t.read_failures AS "readFailures"
        FROM stager t WHERE t.library_id = ${libraryId}`,
  );
  return rows[0] ?? { mode: null, restUntil: null, readRestUntil: null, failures: 0, readFailures: 0 };
}

export interface StagingFigures {
  /** Number of files that engines have requested from the library, or will include in the next request. */
  asked: number;
  ready: number;
  releasing: number;
  /** Number of unneeded files that are still on the library's disk. */
  kept: number;
  bytes: bigint;
  /**
   * Time at which calls to the library resume after a failure; null if calls are not paused. `problem` is the error
   * from the last failed call.
   */
  restUntil: string | null;
  problem: string | null;
  /** The unneeded files that the library will remove from its disk next. */
  nextKept: KeptCopy[];
}

export interface KeptCopy {
  path: string;
  size: bigint;
  /** Time until which the library keeps the file on its disk; null if unknown. */
  until: string | null;
}

const SHOWN_COPIES = 100;

export async function readStagingFigures(ctx: Context, ids: readonly number[]): Promise<Map<number, StagingFigures>> {
  allow(ctx, 'readStagingFigures');
  const rows = await ctx.db.rows<StagingFigures & { id: number }>(
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
