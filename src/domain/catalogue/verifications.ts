/**
 * Verifies tape copies. A drive reads each UNVERIFIED file that was never verified. If the bytes match the catalogue,
 * the file becomes ONDISK. The table `verification` contains the failure of a file until a drive reads the file
 * successfully, or an import contains the file.
 */

import type { ErrorClass } from '../../core/errors.js';
import { locking } from '../../db/locks.js';
import { allOf, type Sql, sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import type { Verification } from '../../generated/prisma/client.js';
import { audited } from '../audit/audited.js';
import { hasPosition, isOffered, isOfStaging, isResting, pathOnTape } from '../conditions.js';
import type { Context } from '../context.js';
import { checkPattern, checkText } from '../input.js';
import { holdsText } from '../match.js';
import { keyedList } from '../page-keys.js';
import { allow } from '../policy.js';
import { moveFiles } from './moves.js';

/**
 * SQL condition that is true if the file `f` has a readable tape copy that was never verified. Excludes UNVERIFIED
 * files that were modified on disk.
 */
const isUnconfirmed = sql`f.stage = 'UNVERIFIED' AND f.verified IS NULL AND f.checksum IS NOT NULL AND ${hasPosition}
  AND f.changed_disk_id IS NULL AND ${isOffered}`;

/**
 * Returns the SQL condition that is true if a staging library's copy of the file `f` must be verified now. Only copies
 * with a row `w` in the table `verification` are verified, because staging a copy might cost money.
 */
export function isReadBackDue(now: string): Sql {
  return sql`(${isUnconfirmed} AND w.not_before <= ${now})`;
}

function isDueAt(now: string): Sql {
  return sql`NOT EXISTS (SELECT FROM verification w
    WHERE w.file_id = f.id AND (w.not_before IS NULL OR w.not_before > ${now}))`;
}

/** Returns the SQL condition that is true if the library `b` has copies that a drive could verify now. */
export function hasDueVerification(now: string): Sql {
  return sql`EXISTS (SELECT FROM volume v
    WHERE v.library_id = b.id AND b.contract = 'DRIVE' AND EXISTS (SELECT FROM tape_file f WHERE f.volume_id = v.id AND ${isUnconfirmed} AND ${isDueAt(now)})
      AND NOT EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = v.id) AND NOT ${isResting(now)})`;
}

export interface UnconfirmedVolume {
  volumeId: number;
  volume: string;
}

/** Finds a volume with copies to verify. Skips volumes that are suspended, in a drive, or named in `except`. */
export async function findUnconfirmed(
  ctx: Context,
  libraryId: number,
  except: readonly string[],
): Promise<UnconfirmedVolume | undefined> {
  const rows = await ctx.db.rows<UnconfirmedVolume>(
    sql`SELECT v.id AS "volumeId", v.name AS volume FROM volume v
     WHERE v.library_id = ${libraryId} AND v.name <> ALL(${except}::text[]) AND EXISTS (SELECT FROM tape_file f WHERE f.volume_id = v.id AND ${isUnconfirmed} AND ${isDueAt(ctx.now())})
       AND NOT EXISTS (SELECT FROM drive d WHERE d.volume_id = v.id)
       AND NOT EXISTS (SELECT FROM suspended_volume s WHERE s.volume_id = v.id) AND NOT ${isResting(ctx.now())}
     ORDER BY v.id LIMIT 1`,
  );
  return rows[0];
}

export interface UnconfirmedCopy {
  fileId: bigint;
  path: string;
  size: bigint;
  /** Position of the copy on the volume. If the position is null, the library finds the file by path. */
  position: bigint | null;
  checksum: string;
  attempts: number;
}

/** Reads the next copies to verify on a volume, in position order. Copies at unknown positions come last. */
export async function readUnconfirmed(
  ctx: Context,
  page: { volumeId: number; after: Pick<UnconfirmedCopy, 'position' | 'fileId'> | undefined; limit: number },
): Promise<UnconfirmedCopy[]> {
  const { position = -1n, fileId = 0n } = page.after ?? {};
  const isAfter =
    position === null
      ? sql`(f.position IS NULL AND f.id > ${fileId})`
      : sql`(f.position IS NULL OR (f.position, f.id) > (${position}::bigint, ${fileId}::bigint))`;
  return await ctx.db.rows<UnconfirmedCopy>(
    sql`SELECT f.id AS "fileId", ${pathOnTape} AS path, f.size, f.position, f.checksum,
       coalesce((SELECT w.attempts FROM verification w WHERE w.file_id = f.id), 0) AS attempts
     FROM tape_file f WHERE f.volume_id = ${page.volumeId} AND ${isAfter} AND ${isUnconfirmed} AND ${isDueAt(ctx.now())}
     ORDER BY f.position, f.id LIMIT ${page.limit}`,
  );
}

export interface VerificationFailure {
  errorClass: ErrorClass;
  error: string;
  isTry: boolean;
  /** Time of the next attempt to verify the copy; undefined if Tapegate will not verify the copy again. */
  notBefore: string | undefined;
}

/** Records the result of verifying a copy, unless the file has changed in the catalogue since the copy was read. */
export async function endVerification(
  ctx: Context,
  copy: UnconfirmedCopy & { volumeId: number },
  failure: VerificationFailure | undefined,
): Promise<void> {
  await transaction(ctx.db.pool, 'endVerification', async (tx) => {
    const same = await tx.query(
      sql`SELECT FROM tape_file f WHERE f.id = ${copy.fileId} AND ${isUnconfirmed}
         AND f.size = ${copy.size} AND f.volume_id = ${copy.volumeId} AND f.position IS NOT DISTINCT FROM ${copy.position}::bigint AND f.checksum = ${copy.checksum} ${locking.file}`,
    );
    if (same.length === 0) return;
    if (failure) {
      await tx.query(
        sql`INSERT INTO verification (file_id, attempts, error_class, error, at, not_before) VALUES (${copy.fileId}, ${Number(failure.isTry)}, ${failure.errorClass}, ${failure.error}, ${ctx.now()}, ${failure.notBefore ?? null})
         ON CONFLICT (file_id) DO UPDATE SET attempts = verification.attempts + excluded.attempts, error_class = excluded.error_class,
           error = excluded.error, at = excluded.at, not_before = excluded.not_before`,
      );
      return;
    }
    await tx.query(sql`UPDATE tape_file SET verified = ${ctx.now()} WHERE id = ${copy.fileId}`);
    await tx.query(sql`DELETE FROM verification WHERE file_id = ${copy.fileId}`);
    await moveFiles(ctx, tx, [copy.fileId], { from: 'UNVERIFIED', to: 'ONDISK' });
  });
}

export async function deleteVerifications(tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  if (fileIds.length === 0) return;
  await tx.query(sql`DELETE FROM verification WHERE file_id = ANY(${fileIds}::bigint[])`);
}

interface ListVerificationsInput {
  match?: string | null | undefined;
  /** Name of the volume that contains the first copy. */
  volume?: string | null | undefined;
}

export function listVerifications(ctx: Context, { match, volume }: ListVerificationsInput, reader?: AbortSignal) {
  allow(ctx, 'listVerifications');
  const conditions: Sql[] = [];
  if (match) conditions.push(holdsText(checkPattern('match', match)));
  if (volume)
    conditions.push(sql`f.volume_id = (SELECT v.id FROM volume v WHERE v.name = ${checkText('volume', volume)})`);
  const rows = sql`verification w JOIN tape_file f ON f.id = w.file_id WHERE ${allOf(conditions)}`;
  return keyedList<bigint, Verification>(ctx, { rows, reader, id: sql`w.file_id` }, (at, fileId, query) =>
    at.db.prisma.verification.findMany({ ...query, where: { fileId }, orderBy: { fileId: 'asc' } }),
  );
}

interface VerifyFilesInput {
  match: string;
  /** Whether to also verify the never-verified copies in staging libraries. Staging these copies might cost money. */
  staged?: boolean | null | undefined;
}

/** Retries copies that failed verification. @returns the number of copies to retry */
export async function verifyFiles(ctx: Context, { match: given, staged }: VerifyFilesInput): Promise<number> {
  const action = {
    operation: 'verifyFiles',
    kind: 'FILES',
    object: given,
    ...(staged && { given: { staged } }),
  } as const;
  return await audited(ctx, action, async (auditEntry) => {
    const match = checkPattern('match', given);
    const isRequested = sql`${holdsText(match)} AND f.stage = 'UNVERIFIED' AND f.verified IS NULL AND f.changed_disk_id IS NULL`;
    const isNew = staged ? sql`true` : sql`EXISTS (SELECT FROM verification o WHERE o.file_id = f.id)`;
    const rows = await ctx.db.rows<{ count: number }>(
      sql`WITH recorded AS (${auditEntry()}), again AS (
            DELETE FROM verification w USING tape_file f
            WHERE f.id = w.file_id AND ${isRequested} AND NOT ${isOfStaging(sql`f.volume_id`)} RETURNING true
          ), requested AS (
            INSERT INTO verification (file_id, attempts, error_class, error, at, not_before)
            SELECT f.id, 0, 'TRANSIENT', ${TO_BE_READ}, ${ctx.now()}, ${ctx.now()} FROM tape_file f
            WHERE ${isRequested} AND ${isUnconfirmed} AND ${isOfStaging(sql`f.volume_id`)} AND ${isNew}
            ON CONFLICT (file_id) DO UPDATE SET attempts = 0, not_before = excluded.not_before RETURNING true
          ), notified AS (SELECT pg_notify('tapegate', 'recall') FROM requested LIMIT 1)
          SELECT (SELECT count(*) FROM again)::int + (SELECT count(*) FROM requested)::int AS count FROM (SELECT count(*) FROM notified) r`,
    );
    return rows[0]?.count ?? 0;
  });
}

const TO_BE_READ = 'the file is waiting to be read back: the library stages the file when no recall needs the library';
