/**
 * Who asks a staging library: one engine at a time, under a lease, as drives have them (recalls/drives.ts). It is for economy: what
 * two of them do at once is safe, since whoever asks notes it under a batch of its own, before and after.
 *
 * A library that cannot answer rests, for its calls and for its reads by themselves: the figures are in its row, for all engines.
 */
import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import type { SuspensionMode } from '../../generated/prisma/enums.js';

export interface StagerLease {
  libraryId: number;
  engineId: string;
  epoch: bigint;
}

/** The row `y` is held under the lease. */
export function isStagedUnder({ libraryId, engineId, epoch }: StagerLease): Sql {
  return sql`(y.library_id = ${libraryId} AND y.epoch = ${epoch} AND y.engine_id = ${engineId}::uuid)`;
}

const now = sql`timezone('utc', clock_timestamp())`;

/** A library has its row before anybody turns to it. */
export async function ensureStager(ctx: Context, libraryId: number): Promise<void> {
  await ctx.db.pool.query(sql`INSERT INTO stager (library_id) VALUES (${libraryId}) ON CONFLICT DO NOTHING`);
}

/** @returns undefined while another engine has it and lives */
export async function claimStager(
  ctx: Context,
  claim: { libraryId: number; engineId: string; leaseSeconds: number },
): Promise<StagerLease | undefined> {
  const { libraryId, engineId, leaseSeconds } = claim;
  const { rows } = await ctx.db.pool.query<{ epoch: bigint }>(
    sql`UPDATE stager SET engine_id = ${engineId}::uuid,
          epoch = greatest(epoch + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint),
          lease_until = ${now} + make_interval(secs => ${leaseSeconds})
        WHERE library_id = (
          SELECT y.library_id FROM stager y
          WHERE y.library_id = ${libraryId} AND (y.lease_until IS NULL OR y.lease_until < ${now}) ${locking.freeStager})
        RETURNING epoch`,
  );
  return rows[0] && { libraryId, engineId, epoch: rows[0].epoch };
}

/** @returns false when another engine has, or had, it since */
export async function renewStager(ctx: Context, lease: StagerLease, leaseSeconds: number): Promise<boolean> {
  const { rowCount } = await ctx.db.vitalPool.query(
    sql`UPDATE stager y SET lease_until = ${now} + make_interval(secs => ${leaseSeconds}) WHERE ${isStagedUnder(lease)}`,
  );
  return rowCount === 1;
}

/** Does nothing where the lease is lost. */
export async function giveBackStager(ctx: Context, lease: StagerLease): Promise<void> {
  await ctx.db.pool.query(sql`UPDATE stager y SET engine_id = NULL, lease_until = NULL WHERE ${isStagedUnder(lease)}`);
}

/** Whether, and since what, a library may be turned to. */
export interface Rests {
  /** An operator has taken it out of service. */
  mode: SuspensionMode | null;
  /** Until when its calls rest, and its reads; null: they do not. */
  restUntil: string | null;
  readRestUntil: string | null;
  /** Calls that it could not answer, one after another, and reads. */
  failures: number;
  readFailures: number;
}

export async function readRests(ctx: Context, libraryId: number): Promise<Rests> {
  const { rows } = await ctx.db.pool.query<Rests>(
    sql`SELECT (SELECT s.mode FROM suspended_library s WHERE s.library_id = ${libraryId}) AS mode,
          CASE WHEN t.rest_until > ${ctx.now()} THEN t.rest_until END AS "restUntil",
          CASE WHEN t.read_rest_until > ${ctx.now()} THEN t.read_rest_until END AS "readRestUntil",
          t.failures, t.read_failures AS "readFailures"
        FROM stager t WHERE t.library_id = ${libraryId}`,
  );
  return rows[0] ?? { mode: null, restUntil: null, readRestUntil: null, failures: 0, readFailures: 0 };
}
