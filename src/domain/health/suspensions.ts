/**
 * Suspensions of volumes, drives, users, libraries, restore disks and the database's clock. No new work starts on a
 * suspended object. The mode IMMEDIATE also stops running work, and the mode DRAINING lets running work finish.
 */

import { InvalidInputError, NotFoundError, oneLine, quote } from '../../core/errors.js';
import { locking } from '../../db/locks.js';
import { allOf, empty, raw, type Sql, sql } from '../../db/sql.js';
import type { Suspension as SuspensionRow } from '../../generated/prisma/client.js';
import { SuspensionKind, type SuspensionMode } from '../../generated/prisma/enums.js';
import { type AuditedAction, type AuditKind, auditRowOfEach } from '../audit/audit.js';
import { audited } from '../audit/audited.js';
import { needsRoom } from '../conditions.js';
import type { Context } from '../context.js';
import { checkText } from '../input.js';
import { countRows } from '../page-keys.js';
import { allow, isVisibleQuota } from '../policy.js';
import { describeFull, isFull, MAX_REASON, resetOf, takesAgain } from './circuits.js';

export type { SuspensionMode };

export interface Suspension extends Omit<SuspensionRow, 'retryAt'> {
  /** Time at which an engine tries to use the object again; null if only an operator can resume the object. */
  nextTry: string | null;
}

export type SuspensionKey = Pick<Suspension, 'kind' | 'name'>;

const columns = sql`kind, name, mode, reason, since, retry_at AS "nextTry"`;

interface DriveLocation {
  driveName: string;
  libraryId: number;
}

/**
 * Work that a drive is about to do. While a library is draining, its drives can read staged files, but cannot mount
 * volumes.
 */
type DriveUse = 'mounting' | 'reading';

/**
 * Returns the SQL condition that is true if the recall `c` can begin. The recall's volume, drive and library must not
 * be suspended. At least one user who is not suspended must need the file.
 */
export function mayBegin(location: DriveLocation, use: DriveUse = 'mounting'): Sql {
  return sql`${isOpen(location, use)}
    AND NOT EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = c.volume_id)
    AND (NOT EXISTS (SELECT FROM suspended_quota) OR EXISTS (
      SELECT FROM live_request_file h WHERE h.file_id = c.file_id
        AND NOT EXISTS (SELECT FROM suspended_quota s WHERE s.quota_id = h.quota_id)))`;
}

function isOpen({ driveName, libraryId }: DriveLocation, use: DriveUse): Sql {
  const stops = use === 'mounting' ? sql`true` : sql`s.mode = 'IMMEDIATE'`;
  return sql`(NOT EXISTS (SELECT FROM suspension s WHERE s.kind = 'DRIVE' AND s.name = ${driveName})
    AND NOT EXISTS (SELECT FROM suspended_library s WHERE s.library_id = ${libraryId}::int AND ${stops}))`;
}

/**
 * Returns the SQL expression for a text such as `suspended: it squeaks`. `alias` is the alias of a table or view with
 * the suspension's mode and reason. The expression is NULL if the object is not suspended.
 */
export function suspensionText(alias: string): Sql {
  const [mode, reason] = [raw(`${alias}.mode`), raw(`${alias}.reason`)];
  return sql`(CASE ${mode} WHEN 'DRAINING' THEN 'draining' WHEN 'IMMEDIATE' THEN 'suspended' END || coalesce(': ' || nullif(${reason}, ''), ''))`;
}

/** Suspends an object, or changes the mode and reason of its suspension. @throws NotFoundError, InvalidInputError */
export async function suspend(ctx: Context, input: Omit<Suspension, 'since' | 'nextTry'>): Promise<Suspension> {
  const { kind, name, mode, reason } = input;
  const action = { operation: 'suspend', kind: auditKind(kind), object: name, given: { mode, reason } } as const;
  return await audited(ctx, action, async (auditEntry) => {
    const key = await checkKey(ctx, input);
    const why = checkText('reason', reason);
    const rows = await ctx.db.rows<Suspension>(
      sql`WITH entry AS (${auditEntry()})
          INSERT INTO suspension (kind, name, mode, reason, since)
          VALUES (${key.kind}, ${key.name}, ${mode}, ${why}, ${ctx.now()})
          ON CONFLICT (kind, name) DO UPDATE SET mode = excluded.mode, reason = excluded.reason, retry_at = NULL
          RETURNING ${columns}`,
    );
    return rows[0] as Suspension;
  });
}

async function checkKey(ctx: Context, { kind, name: given }: SuspensionKey): Promise<SuspensionKey> {
  const name = checkText('name', given);
  if (!Object.hasOwn(SuspensionKind, kind)) {
    throw new InvalidInputError('kind', `must be one of ${Object.keys(SuspensionKind).join(', ')}, not ${quote(kind)}`);
  }
  const { rowCount } = await ctx.db.pool.query(findByName(kind, name));
  if (rowCount === 0) throw new NotFoundError(`there is no ${nameOf({ kind, name })}`);
  return { kind, name };
}

function findByName(kind: SuspensionKind, name: string): Sql {
  const queries: Record<SuspensionKind, Sql> = {
    VOLUME: sql`SELECT FROM volume WHERE name = ${name}`,
    DRIVE: sql`SELECT FROM drive WHERE name = ${name}`,
    USER: sql`SELECT FROM quota WHERE "user" = ${name} AND removed_at IS NULL`,
    DISK: sql`SELECT FROM restore_disk WHERE mountpoint = ${name}`,
    LIBRARY: sql`SELECT FROM library WHERE name = ${name}`,
    CLOCK: sql`SELECT WHERE ${name} = 'database'`,
  };
  return queries[kind];
}

function nameOf({ kind, name }: SuspensionKey): string {
  return `${kind.toLowerCase()} ${quote(name)}`;
}

/**
 * Suspends a failing object that is not suspended yet. If `retryAt` is null, only an operator can resume the object.
 */
export async function suspendFailing(
  ctx: Context,
  { kind, name }: SuspensionKey,
  { problem, retryAt = null }: { problem: string; retryAt?: string | null },
): Promise<void> {
  const reason = oneLine(problem, MAX_REASON);
  const what = kind.toLowerCase();
  ctx.log.error({ [what]: name, ...(retryAt !== null && { retryAt }) }, `${what} suspended: ${reason}`);
  await ctx.db.pool.query(
    sql`WITH suspended AS (
          INSERT INTO suspension (kind, name, mode, reason, since, retry_at) VALUES (${kind}, ${name}, 'IMMEDIATE', ${reason}, ${ctx.now()}, ${retryAt})
          ON CONFLICT (kind, name) DO NOTHING RETURNING name
        ), ${auditSuspension(ctx, kind, reason)} SELECT`,
  );
}

/** Ends the suspension of a failing object if its retry time has passed. */
export async function beginTrial(ctx: Context, { kind, name }: SuspensionKey): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(
    sql`DELETE FROM suspension WHERE kind = ${kind} AND name = ${name} AND retry_at <= ${ctx.now()}`,
  );
  return rowCount === 1;
}

export function auditSuspension(ctx: Context, kind: SuspensionKind, reason: string): Sql {
  return sql`audited AS (${auditRowOfEach(ctx.now(), ctx.caller, { operation: 'suspend', kind, given: { mode: 'IMMEDIATE', reason } }, sql`SELECT name FROM suspended`)})`;
}

function auditKind(kind: SuspensionKind): AuditKind {
  return Object.hasOwn(SuspensionKind, kind) ? kind : 'NONE';
}

/**
 * Puts an object back into service, and clears the pauses of recalls that waited for the object.
 * @returns the ended suspension
 * @throws NotFoundError, InvalidInputError
 */
export async function resume(ctx: Context, input: SuspensionKey): Promise<Suspension> {
  const { kind, name: given } = input;
  const action = { operation: 'resume', kind: auditKind(kind), object: given } as const;
  return await audited(ctx, action, async () => {
    const name = checkText('name', given);
    const ended = await endSuspension(ctx, sql`kind = ${kind} AND name = ${name}`, action);
    if (ended) await resetFailures(ctx, ended);
    const full = kind === 'DISK' ? await endFull(ctx, name, action) : undefined;
    const over = ended ?? full;
    if (over) return over;
    const key = await checkKey(ctx, input);
    throw new NotFoundError(`${nameOf(key)} is not suspended`);
  });
}

async function resetFailures(ctx: Context, { kind, name }: SuspensionKey): Promise<void> {
  const forget: Partial<Record<SuspensionKind, Sql>> = {
    DISK: sql`UPDATE restore_disk SET failures = 0 WHERE mountpoint = ${name}`,
    DRIVE: sql`UPDATE drive SET failures = 0 WHERE name = ${name} AND failures > 0`,
    LIBRARY: sql`UPDATE stager SET ${resetOf('calls')}, ${resetOf('reads')}
      WHERE library_id = (SELECT b.id FROM library b WHERE b.name = ${name})`,
  };
  if (forget[kind]) await ctx.db.pool.query(forget[kind]);
}

/**
 * Makes engines retry a failing library and its drives immediately, after the library's settings have changed.
 * Suspensions by operators stay.
 */
export async function endTrials(ctx: Context, library: { id: number; name: string }): Promise<void> {
  const ofDrives = sql`SELECT d.name FROM drive d WHERE d.library_id = ${library.id}`;
  const isTried = sql`retry_at IS NOT NULL AND (kind = 'LIBRARY' AND name = ${library.name} OR kind = 'DRIVE' AND name IN (${ofDrives}))`;
  await endSuspension(ctx, isTried);
  await ctx.db.pool.query(sql`UPDATE drive SET failures = 0 WHERE library_id = ${library.id} AND failures > 0`);
  await resetFailures(ctx, { kind: 'LIBRARY', name: library.name });
}

/**
 * Ends the pause in which engines put no files on a full disk (health/circuits.ts).
 * @returns the pause, described as a suspension of the disk; undefined if the disk is not full
 */
async function endFull(ctx: Context, mountpoint: string, action: AuditedAction): Promise<Suspension | undefined> {
  const rows = await ctx.db.rows<Suspension>(
    sql`WITH full_disk AS (
          SELECT k.id, k.mountpoint, k.full_reason, k.full_at, k.full_until FROM restore_disk k
          WHERE k.mountpoint = ${mountpoint} AND ${isFull(ctx)}
        ), ended AS (
          UPDATE restore_disk k SET fulls = 0, ${takesAgain} FROM full_disk e WHERE k.id = e.id
        ), notified AS (SELECT pg_notify('tapegate', 'room') FROM full_disk),
        audited AS (${auditRowOfEach(ctx.now(), ctx.caller, action, sql`SELECT mountpoint FROM full_disk`)})
        SELECT 'DISK' AS kind, e.mountpoint AS name, 'DRAINING' AS mode, e.full_reason AS reason, e.full_at AS since,
          e.full_until AS "nextTry" FROM full_disk e LEFT JOIN notified ON true`,
  );
  return rows.map((row) => ({ ...row, reason: describeFull(row.reason) }))[0];
}

/**
 * Ends a suspension, and cancels the object's next retry. Also ends the pauses of recalls that waited for the object.
 * For a volume, also resets `attempts` to zero in the rows of its waiting recalls.
 */
export async function endSuspension(ctx: Context, which: Sql, action?: AuditedAction): Promise<Suspension | undefined> {
  const audit =
    action && sql`, audited AS (${auditRowOfEach(ctx.now(), ctx.caller, action, sql`SELECT name FROM ended`)})`;
  const rows = await ctx.db.rows<Suspension>(
    // select the disk by its name and not by its retry time, because an engine might set the retry time while this
    // statement runs
    sql`WITH disk AS (
       SELECT k.id FROM restore_disk k WHERE k.mountpoint IN (SELECT name FROM suspension WHERE kind = 'DISK' AND ${which})
       ORDER BY k.id ${locking.disk}
     ), ended AS (
       DELETE FROM suspension WHERE ${which} AND (SELECT count(*) FROM disk) IS NOT NULL RETURNING ${columns}
     ), mended AS (
       UPDATE restore_disk k SET retry_at = NULL FROM ended e WHERE e.kind = 'DISK' AND k.mountpoint = e.name
     ), visited AS (
       UPDATE volume v SET ${resetOf('volume')} FROM ended e
       WHERE e.kind = 'VOLUME' AND v.name = e.name AND v.failures > 0
     ), woken AS (
       UPDATE recall SET not_before = NULL, attempts = CASE WHEN e.kind = 'VOLUME' THEN 0 ELSE attempts END,
         earlier_tries = earlier_tries + CASE WHEN e.kind = 'VOLUME' THEN attempts ELSE 0 END
       FROM ended e WHERE file_id IN (
         SELECT c.file_id FROM recall c JOIN ended e ON CASE e.kind
           WHEN 'VOLUME' THEN c.volume_id = (SELECT v.id FROM volume v WHERE v.name = e.name)
           WHEN 'LIBRARY' THEN c.error_class IN ('TRANSIENT', 'MEDIA')
             AND e.name = (SELECT b.name FROM volume v JOIN library b ON b.id = v.library_id WHERE v.id = c.volume_id)
           WHEN 'DISK' THEN c.error_class IN ('SPACE', 'TRANSIENT') AND (${needsRoom}) IS NOT TRUE ELSE false END
         WHERE c.state = 'WAITING' AND (c.not_before IS NOT NULL OR c.attempts > 0) ${locking.freeRecall})
     ), confirmed AS (
       DELETE FROM clock_reading WHERE EXISTS (SELECT FROM ended e WHERE e.kind = 'CLOCK')
     )${audit ?? empty} SELECT * FROM ended`,
  );
  return rows[0];
}

interface ListSuspensionsInput {
  after?: SuspensionKey | undefined;
  before?: SuspensionKey | undefined;
  limit?: number;
  descending?: boolean;
}

function isVisibleSuspension(ctx: Context): Sql {
  if (ctx.caller.reads === 'all') return sql`true`;
  return sql`(kind <> 'USER' OR EXISTS (SELECT FROM quota q WHERE q."user" = suspension.name AND ${isVisibleQuota(ctx)}))`;
}

export async function countSuspensions(ctx: Context): Promise<number> {
  allow(ctx, 'listSuspensions');
  return await countRows(ctx, { rows: sql`suspension WHERE ${isVisibleSuspension(ctx)}` });
}

export async function listSuspensions(ctx: Context, input: ListSuspensionsInput = {}): Promise<Suspension[]> {
  allow(ctx, 'listSuspensions');
  const { after, before, limit, descending = false } = input;
  const order = raw(descending ? 'DESC' : 'ASC');
  const conditions: Sql[] = [isVisibleSuspension(ctx)];
  if (after) conditions.push(sql`(kind, name) > (${after.kind}, ${after.name})`);
  if (before) conditions.push(sql`(kind, name) < (${before.kind}, ${before.name})`);
  return await ctx.db.rows<Suspension>(
    sql`SELECT ${columns} FROM suspension WHERE ${allOf(conditions)}
        ORDER BY kind ${order}, name ${order} ${limit === undefined ? empty : sql`LIMIT ${limit}`}`,
  );
}

/** Returns the suspension of an object. Returns null if the object is not suspended, or if the caller may not see it. */
export async function readSuspension(ctx: Context, { kind, name }: SuspensionKey): Promise<Suspension | null> {
  allow(ctx, 'listSuspensions');
  const [row] = await ctx.db.rows<Suspension>(
    sql`SELECT ${columns} FROM suspension WHERE kind::text = ${kind} AND name = ${name} AND ${isVisibleSuspension(ctx)}`,
  );
  return row ?? null;
}

export async function readSuspensionsOf(
  ctx: Context,
  kind: SuspensionKind,
  names: readonly string[],
): Promise<Map<string, Suspension>> {
  const rows = await ctx.db.rows<Suspension>(
    sql`SELECT ${columns} FROM suspension WHERE kind = ${kind} AND name = ANY(${names}::text[])`,
  );
  return new Map(rows.map((row) => [row.name, row]));
}

/**
 * Returns whether any recall is waiting in the queue. Returns undefined if the drive or its library is suspended. Each
 * idle drive runs this query every second.
 */
export async function readOpening(ctx: Context, location: DriveLocation): Promise<{ isQueued: boolean } | undefined> {
  const rows = await ctx.db.rows<{ isQueued: boolean }>(
    sql`SELECT EXISTS (SELECT FROM recall c WHERE c.state = 'WAITING') AS "isQueued" WHERE ${isOpen(location, 'mounting')}`,
  );
  return rows[0];
}

export async function isSuspended(ctx: Context, location: DriveLocation, use: DriveUse = 'mounting'): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(sql`SELECT WHERE ${isOpen(location, use)}`);
  return rowCount === 0;
}
