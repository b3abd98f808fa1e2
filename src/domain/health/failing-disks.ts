/**
 * Suspends and retries failing restore disks. The pause before a retry grows until a copy is put on the disk. A disk
 * with a retry time (`retry_at`) is always suspended, and a disk that an engine has suspended always has a retry time.
 * To keep both rows consistent, each statement locks the row of the disk before the row of its suspension.
 */

import { oneLine } from '../../core/errors.js';
import { addSeconds } from '../../core/time.js';
import { lockDisks, locking } from '../../db/locks.js';
import { type Sql, sql } from '../../db/sql.js';
import { transaction } from '../../db/transaction.js';
import { FRESH_SECONDS, isSeenElsewhere } from '../conditions.js';
import type { Context } from '../context.js';
import { MAX_REASON, pauseOf } from './circuits.js';
import { auditSuspension, endSuspension } from './suspensions.js';

const pause = pauseOf(sql`k.failures`);

export const isOnFailingDisk: Sql = sql`EXISTS (SELECT FROM failing_disk g WHERE g.disk_id = f.disk_id)`;

/** Returns the ids of the failing disks as one text, so that callers can detect changes. */
export async function nameFailing(ctx: Context): Promise<string> {
  const rows = await ctx.db.rows<{ ids: string | null }>(
    sql`SELECT string_agg(g.disk_id::text, ',' ORDER BY g.disk_id) AS ids FROM failing_disk g`,
  );
  return rows[0]?.ids ?? '';
}

/** Suspends a failing disk. If the disk is already suspended, the existing suspension stays. */
export async function suspendDisk(ctx: Context, mountpoint: string, problem: string): Promise<void> {
  await suspendWhere(ctx, problem, sql`k.mountpoint = ${mountpoint}`);
}

/**
 * Suspends a disk that is missing on this host. Does nothing if another host sees the disk, or if no marker file is
 * recorded for the disk.
 */
export async function suspendAbsent(
  ctx: Context,
  { host, mountpoint }: { host: string; mountpoint: string },
  problem: string,
): Promise<void> {
  const which = sql`k.mountpoint = ${mountpoint} AND k.marked_at IS NOT NULL AND NOT ${isSeenElsewhere(ctx.now(), host)}`;
  await suspendWhere(ctx, problem, which);
}

async function suspendWhere(ctx: Context, problem: string, which: Sql): Promise<void> {
  const reason = oneLine(problem, MAX_REASON);
  const now = ctx.now();
  const [disk] = await ctx.db.rows<{ mountpoint: string; isSuspended: boolean }>(
    sql`WITH failing AS (
          UPDATE restore_disk k SET failures = k.failures + 1, retry_at = ${now}::timestamp + ${pause}
          WHERE ${which} AND k.retry_at IS NULL RETURNING k.mountpoint, k.retry_at
        ), known AS (
          SELECT k.mountpoint, k.retry_at FROM restore_disk k WHERE ${which} AND k.retry_at IS NOT NULL ${locking.disk}
        ), suspended AS (
          INSERT INTO suspension (kind, name, mode, reason, since, retry_at)
          SELECT 'DISK', f.mountpoint, 'IMMEDIATE', ${reason}, ${now}, f.retry_at
          FROM (SELECT * FROM failing UNION ALL SELECT * FROM known) f
          ON CONFLICT (kind, name) DO NOTHING RETURNING name
        ), ${auditSuspension(ctx, 'DISK', reason)}
        SELECT mountpoint, EXISTS (SELECT FROM suspended) AS "isSuspended" FROM failing UNION SELECT name, true FROM suspended`,
  );
  if (disk)
    ctx.log.error({ disk: disk.mountpoint }, `restore disk ${disk.isSuspended ? 'suspended' : 'fails'}: ${reason}`);
}

export interface FailingDisk {
  id: number;
  mountpoint: string;
}

/**
 * Returns the failing disks whose retry is due. Also postpones each returned disk's next retry by a pause, so that
 * other engines do not retry the same disk now.
 */
export async function takeRetries(ctx: Context, except: readonly number[] = []): Promise<FailingDisk[]> {
  const now = ctx.now();
  return await ctx.db.rows<FailingDisk>(
    sql`WITH taken AS (
          UPDATE restore_disk k SET retry_at = ${now}::timestamp + ${pause}
          WHERE k.retry_at <= ${now} AND k.id <> ALL(${except}::int[]) RETURNING k.id, k.mountpoint, k.retry_at
        ), shown AS (
          UPDATE suspension s SET retry_at = t.retry_at FROM taken t
          WHERE s.kind = 'DISK' AND s.name = t.mountpoint AND s.retry_at IS NOT NULL
        ) SELECT id, mountpoint FROM taken`,
  );
}

/**
 * Schedules a retry in one second for a disk that is missing on this host, so that an engine on another host can retry
 * it.
 * @returns whether another host measures disks
 */
export async function leaveToOthers(
  ctx: Context,
  { host, mountpoint }: { host: string; mountpoint: string },
): Promise<boolean> {
  const soon = addSeconds(ctx.now(), 1);
  const { rowCount } = await ctx.db.pool.query(
    sql`WITH others AS (
          SELECT FROM disk_measurement m WHERE m.host <> ${host} AND m.measured_at >= ${addSeconds(ctx.now(), -FRESH_SECONDS)}::timestamp LIMIT 1
        ), failing AS (
          UPDATE restore_disk k SET retry_at = ${soon} FROM others WHERE k.mountpoint = ${mountpoint} AND k.retry_at IS NOT NULL
        ) SELECT FROM others`,
  );
  return rowCount !== 0;
}

export async function recordStillFailing(ctx: Context, mountpoint: string, problem: string): Promise<void> {
  await ctx.db.pool.query(
    sql`WITH failing AS (
          UPDATE restore_disk SET failures = failures + 1 WHERE mountpoint = ${mountpoint} AND retry_at IS NOT NULL
          RETURNING mountpoint
        ) UPDATE suspension s SET reason = ${oneLine(problem, MAX_REASON)} FROM failing f
          WHERE s.kind = 'DISK' AND s.name = f.mountpoint AND s.retry_at IS NOT NULL`,
  );
}

/**
 * Ends a disk's suspension after the disk works again. If an operator has suspended the disk, that suspension stays.
 * Engines can then access the disk, but put no new files on it.
 */
export async function returnDisk(ctx: Context, mountpoint: string): Promise<void> {
  // end the suspension first, because `endSuspension` also clears the disk's retry time
  const ended = await endSuspension(ctx, sql`kind = 'DISK' AND name = ${mountpoint} AND retry_at IS NOT NULL`);
  const cleared = await transaction(ctx.db.pool, 'returnDisk', async (tx) => {
    // lock the disk before the update, so that the update sees a suspension that another engine has just added
    await lockDisks(tx, sql`k.mountpoint = ${mountpoint}`);
    return await tx.query(
      sql`UPDATE restore_disk k SET retry_at = NULL WHERE k.mountpoint = ${mountpoint} AND k.retry_at IS NOT NULL
            AND NOT EXISTS (SELECT FROM suspension s WHERE s.kind = 'DISK' AND s.name = k.mountpoint AND s.retry_at IS NOT NULL)
          RETURNING k.id`,
    );
  });
  if (ended)
    ctx.log.warn(
      { disk: mountpoint },
      `restore disk is in service again; the reason for its suspension was: ${ended.reason}`,
    );
  else if (cleared.length > 0)
    ctx.log.warn({ disk: mountpoint }, 'restore disk works again, but an operator has suspended it');
}
