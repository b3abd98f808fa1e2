/**
 * Withdraws, reinstates and purges files. Withdrawn files are not listed and cannot be requested. If a withdrawn file
 * is on disk, the file stays in its requests. A waiting request file fails when its file is withdrawn, unless a drive
 * is already reading the file.
 */

import { InUseError, InvalidInputError, quote } from '../../core/errors.js';
import { plural } from '../../core/text/plural.js';
import { lockQuotas, lockRecalls, lockRequests } from '../../db/locks.js';
import { type Sql, sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import { recordProgress } from '../../events/event-writes.js';
import { audited } from '../audit/audited.js';
import { isLive, isOffered, isRecalledNoMore, isWaiting, isWithdrawn, whyWithdrawn } from '../conditions.js';
import type { Context } from '../context.js';
import { checkText } from '../input.js';
import { findJoining, resetWithdrawnPaths, storeJoining } from '../requests/joins.js';
import { markRequestFiles, type RequestFileOutcome } from '../requests/request-files.js';
import {
  affectedRequests,
  type ChosenFiles,
  type ChosenPaths,
  chosenFiles,
  countChosen,
  inSteps,
  lockLeaving,
  stepSize,
  whyNone,
} from './chosen-files.js';

interface WithdrawFilesInput extends ChosenPaths {
  reason?: string | null | undefined;
}

/**
 * @throws InvalidInputError, NotFoundError
 */
export async function withdrawFiles(ctx: Context, input: WithdrawFilesInput): Promise<ChosenFiles> {
  const { path, reason, isDryRun } = input;
  return await audited(
    ctx,
    { operation: 'withdrawFiles', kind: 'CATALOGUE', object: path, given: { reason, isDryRun } },
    async (auditEntry) => {
      const which = chosenFiles(path);
      const checked = reason ? checkReason(reason) : null;
      // include files that an import has withdrawn (`is_unlisted`), because a later import could reinstate them
      const isAffected = sql`${which} AND (${isOffered} OR f.is_unlisted)`;
      const chosen = await countChosen(ctx, isAffected);
      if (chosen.files === 0) throw await whyNone(ctx, { path, which, done: 'already withdrawn' });
      if (isDryRun) return chosen;
      const done = await inSteps(
        ctx,
        { which: isAffected, auditEntry: (step) => auditEntry({ given: { ...step, reason } }) },
        (tx) => withdrawStep(ctx, tx, checked),
        (work) => transaction(ctx.db.pool, 'withdrawFiles', work),
      );
      return { ...done, requests: chosen.requests };
    },
  );
}

/**
 * Reinstates withdrawn files. A reinstated file is added to requests that list its path as unresolved, or have a
 * matching pattern.
 * @throws InvalidInputError, NotFoundError
 */
export async function reinstateFiles(ctx: Context, input: ChosenPaths): Promise<ChosenFiles> {
  const { path, isDryRun } = input;
  return await audited(
    ctx,
    { operation: 'reinstateFiles', kind: 'CATALOGUE', object: path, given: { isDryRun } },
    async (auditEntry) => {
      const which = chosenFiles(path); // purging a file changes its path, so this condition never matches a purged file
      const chosen = await countChosen(ctx, sql`${which} AND ${isWithdrawn}`);
      if (chosen.files === 0) throw await whyNone(ctx, { path, which, done: 'not withdrawn' });
      if (isDryRun) return chosen;
      const done = await inSteps(
        ctx,
        { which: sql`${which} AND ${isWithdrawn}`, auditEntry: (step) => auditEntry({ given: { ...step } }) },
        (tx) => reinstateStep(ctx, tx),
        (work) => transaction(ctx.db.pool, 'reinstateFiles', work),
      );
      return { ...done, requests: chosen.requests };
    },
  );
}

/**
 * Checks the reason for a withdrawal. A reason must not contain an email address, because purging a user's data does
 * not delete the reason.
 * @throws InvalidInputError
 */
export function checkReason(reason: string): string {
  if (/[^\s@]@[^\s@]/.test(reason))
    throw new InvalidInputError('reason', `must not contain an email address: ${quote(reason)}`);
  return checkText('reason', reason);
}

async function withdrawStep(ctx: Context, tx: Transaction, reason: string | null): Promise<void> {
  const requestIds = await lockRequests(tx, sql`${isLive} AND r.id IN (${affectedRequests})`);
  await lockQuotas(tx, sql`q.id IN (SELECT quota_id FROM request WHERE id = ANY(${requestIds}::int[]))`);
  await lockLeaving(tx);
  await withdrawLeaving(ctx, tx, { requestIds, reason, isUnlisted: false });
}

interface Withdrawal {
  /**
   * Ids of the live requests that contain a withdrawn file, or list the path of a withdrawn file. The caller must have
   * locked the requests and their quotas.
   */
  requestIds: readonly number[];
  reason: string | null;
  isUnlisted: boolean;
}

/** Withdraws the files in the temporary table `leaving`. The caller must have locked the files and the catalogue. */
export async function withdrawLeaving(
  ctx: Context,
  tx: Transaction,
  { requestIds, reason, isUnlisted }: Withdrawal,
): Promise<void> {
  await lockRecalls(tx, sql`c.file_id IN (SELECT id FROM leaving)`);
  await tx.query(
    sql`UPDATE tape_file f SET withdrawn_at = ${ctx.now()}::timestamp, withdrawn_reason = ${reason}, is_unlisted = ${isUnlisted}
        FROM leaving l WHERE f.id = l.id`,
  );
  await tx.query(sql`DELETE FROM recall c USING leaving l WHERE c.file_id = l.id AND ${isWaiting}`);
  const outcomes = await tx.query<RequestFileOutcome>(
    sql`SELECT f.id AS "fileId", 'POLICY' AS "errorClass", ${whyWithdrawn} AS error FROM leaving l JOIN tape_file f ON f.id = l.id
        WHERE ${isRecalledNoMore} AND EXISTS (SELECT FROM live_request_file h WHERE h.file_id = f.id AND h.state = 'WAITING') ORDER BY f.id`,
  );
  for (let from = 0; from < outcomes.length; from += stepSize.files) {
    await markRequestFiles(ctx, tx, outcomes.slice(from, from + stepSize.files));
  }
  const unknown = await resetWithdrawnPaths(
    tx,
    sql`r.id = ANY(${requestIds}::int[]) AND f.id IN (SELECT id FROM leaving)`,
  );
  await tx.query(
    sql`UPDATE quota q SET unresolved_paths = q.unresolved_paths + u.paths
        FROM unnest(${unknown.map(({ quotaId }) => quotaId)}::int[], ${unknown.map(({ paths }) => paths)}::int[]) AS u (id, paths) WHERE q.id = u.id`,
  );
  recordProgress(ctx, tx, requestIds);
}

async function reinstateStep(ctx: Context, tx: Transaction): Promise<void> {
  await findJoining(ctx, tx, sql`SELECT id FROM leaving`, { isNew: true });
  await lockRequests(tx, sql`r.id IN (SELECT request_id FROM joining)`);
  await lockQuotas(tx, sql`q.id IN (SELECT quota_id FROM joining)`);
  await lockLeaving(tx);
  await tx.query(
    sql`UPDATE tape_file f SET withdrawn_at = NULL, withdrawn_reason = NULL, is_unlisted = false FROM leaving l WHERE f.id = l.id`,
  );
  await storeJoining(ctx, tx);
}

/** Options for an import that lists all files below a prefix. The import withdraws the files that the list omits. */
export interface Complete {
  /** Prefix of the listed files, with a trailing slash. */
  prefix: string;
  /** Maximum percentage of the files below the prefix that the import may withdraw. */
  mostPercent: number;
}

/**
 * Default for the maximum percentage of files that an import withdraws. If a list omits more than this percentage of
 * the files, the list is probably truncated or wrong.
 */
const MOST_PERCENT = 5;

export function readComplete(given: { directory: string; mostPercent?: number | undefined }): Complete {
  const prefix = given.directory.endsWith('/') ? given.directory : `${given.directory}/`;
  chosenFiles(prefix, 'complete');
  const { mostPercent = MOST_PERCENT } = given;
  if (mostPercent >= 0 && mostPercent <= 100) return { prefix, mostPercent };
  throw new InvalidInputError('maxWithdrawn', `must be a percentage from 0 to 100, not ${given.mostPercent}`);
}

/**
 * Creates the temporary table `leaving` with the files that a complete list omits. The caller must have locked the
 * catalogue.
 * @throws InUseError if the list omits more than `mostPercent` percent of the files
 */
export async function findUnlisted(
  tx: Transaction,
  complete: Complete | undefined,
): Promise<{ withdrawn: number; known: number } | undefined> {
  const which = complete ? sql`${chosenFiles(complete.prefix, 'complete')} AND ${isOffered}` : sql`false`;
  await tx.query(
    sql`CREATE TEMP TABLE leaving ON COMMIT DROP AS SELECT f.id, f.path FROM tape_file f WHERE ${which}
          AND NOT EXISTS (SELECT FROM old o WHERE o.id = f.id) AND NOT EXISTS (SELECT FROM fresh n WHERE n.id = f.id)
          AND NOT EXISTS (SELECT FROM namesake n WHERE n.path = f.path)`,
  );
  if (!complete) return undefined;
  await tx.query(sql`ANALYZE leaving`);
  const [row] = await tx.query<{ withdrawn: number; known: number }>(
    sql`SELECT (SELECT count(*)::int FROM leaving) AS withdrawn, (SELECT count(*)::int FROM tape_file f WHERE ${which}
          AND NOT EXISTS (SELECT FROM fresh n WHERE n.id = f.id)) AS known`,
  );
  const { withdrawn, known } = row ?? { withdrawn: 0, known: 0 };
  if (withdrawn * 100 > known * complete.mostPercent) {
    throw new InUseError(
      `nothing was imported: the list omits ${withdrawn} of ${plural(known, 'file')} below ${quote(complete.prefix)}, which is more than the ${complete.mostPercent} % that an import may withdraw`,
    );
  }
  return { withdrawn, known };
}

/**
 * Reinstates listed files that were withdrawn because an earlier list omitted them. Does not reinstate files that an
 * operator withdrew.
 */
export async function reinstateListed(tx: Transaction): Promise<{ reinstated?: number; staysWithdrawn?: number }> {
  const reinstated = await tx.query(
    sql`UPDATE tape_file f SET withdrawn_at = NULL, withdrawn_reason = NULL, is_unlisted = false
        FROM known k WHERE f.id = k.id AND f.is_unlisted RETURNING f.id`,
  );
  const [row] = await tx.query<{ files: number }>(
    sql`SELECT count(*)::int AS files FROM old o JOIN tape_file f ON f.id = o.id WHERE ${isWithdrawn}`,
  );
  return {
    ...(reinstated.length > 0 && { reinstated: reinstated.length }),
    ...(row && row.files > 0 && { staysWithdrawn: row.files }),
  };
}

export interface PurgedFiles {
  files: number;
  bytes: bigint;
  /** Number of withdrawn files that were not purged, because they are in use. */
  kept: number;
}

const isPurgeable = sql`(${isWithdrawn} AND f.purged_at IS NULL)`;

/** SQL condition that is true if the file `f` is on disk, in a live request, or staged by a library. */
const isInUse = sql`(f.stage IN ('RESTORING', 'RESTORED') OR f.disk_id IS NOT NULL OR f.changed_disk_id IS NOT NULL
  OR EXISTS (SELECT FROM recall c WHERE c.file_id = f.id) OR EXISTS (SELECT FROM staging s WHERE s.file_id = f.id)
  OR EXISTS (SELECT FROM stale_partial_file l WHERE l.file_id = f.id) OR EXISTS (SELECT FROM archive_link a WHERE a.file_id = f.id)
  OR EXISTS (SELECT FROM live_request_file h WHERE h.file_id = f.id AND h.state IN ('WAITING', 'ON_DISK')))`;

/**
 * Purges withdrawn files that are not in use. A purged file's path becomes free. The file's row stays, because requests
 * and events refer to the row.
 * @throws InvalidInputError, NotFoundError, InUseError
 */
export async function purgeFiles(ctx: Context, input: ChosenPaths): Promise<PurgedFiles> {
  const { path, isDryRun } = input;
  return await audited(
    ctx,
    { operation: 'purgeFiles', kind: 'CATALOGUE', object: path, given: { isDryRun } },
    async (auditEntry) => {
      const which = sql`${chosenFiles(path)} AND ${isPurgeable}`;
      const chosen = await countPurgeable(ctx, which);
      if (chosen.files + chosen.kept === 0) {
        throw await whyNone(ctx, { path, which: chosenFiles(path), done: 'not withdrawn' });
      }
      if (chosen.files === 0) throw await inUse(ctx, path, chosen.kept);
      if (isDryRun) return chosen;
      const done = await inSteps(
        ctx,
        { which: sql`${which} AND NOT ${isInUse}`, auditEntry: (step) => auditEntry({ given: { ...step } }) },
        (tx) => purgeStep(ctx, tx),
        (work) => transaction(ctx.db.pool, 'purgeFiles', work),
      );
      return { ...done, kept: chosen.kept };
    },
  );
}

async function countPurgeable(ctx: Context, which: Sql): Promise<PurgedFiles> {
  const rows = await ctx.db.rows<{ files: number; bytes: string; kept: number }>(
    sql`SELECT count(*) FILTER (WHERE NOT o.is_in_use)::int AS files, coalesce(sum(o.size) FILTER (WHERE NOT o.is_in_use), 0)::text AS bytes,
          count(*) FILTER (WHERE o.is_in_use)::int AS kept
        FROM (SELECT f.size, ${isInUse} AS is_in_use FROM tape_file f WHERE ${which}) o`,
  );
  const { files = 0, bytes = '0', kept = 0 } = rows[0] ?? {};
  return { files, bytes: BigInt(bytes), kept };
}

async function inUse(ctx: Context, path: string, kept: number): Promise<Error> {
  const rows = await ctx.db.rows<{ path: string; reason: string }>(
    sql`SELECT f.path, coalesce(
            (SELECT 'request ' || min(h.request_id) || ' contains it' FROM live_request_file h WHERE h.file_id = f.id AND h.state IN ('WAITING', 'ON_DISK')),
            (SELECT 'its library has not released it yet' FROM staging s WHERE s.file_id = f.id LIMIT 1),
            (SELECT 'the link at its archive path is not removed yet' FROM archive_link a WHERE a.file_id = f.id),
            'its copy is not removed from the disk yet') AS reason
        FROM tape_file f WHERE ${chosenFiles(path)} AND ${isPurgeable} AND ${isInUse} ORDER BY f.path LIMIT 1`,
  );
  const first = rows[0];
  if (!first) return new InUseError(`${quote(path)} is in use: try again later`);
  const others = kept > 1 ? `, and ${kept - 1} more ${kept === 2 ? 'is' : 'are'} in use` : '';
  return new InUseError(`${quote(first.path)} cannot be purged yet: ${first.reason}${others}`);
}

async function purgeStep(ctx: Context, tx: Transaction): Promise<void> {
  await lockLeaving(tx);
  // check again under the lock, because another process might have requested a file since the files were selected
  await tx.query(
    sql`DELETE FROM leaving l USING tape_file f WHERE f.id = l.id AND NOT (${isPurgeable} AND NOT ${isInUse})`,
  );
  await tx.query(sql`DELETE FROM verification w USING leaving l WHERE w.file_id = l.id`);
  await tx.query(sql`DELETE FROM removal m USING leaving l WHERE m.file_id = l.id`);
  await tx.query(
    // include the whole old path in the new path, because path rules are still applied to the old path
    // (access/paths.ts)
    sql`UPDATE tape_file f SET purged_at = ${ctx.now()}::timestamp, path = '/.tapegate-purged/' || f.id || f.path,
          volume_id = NULL, "position" = NULL, copy_volume_id = NULL, copy_position = NULL, copy_error = NULL, tape_path = NULL
        FROM leaving l WHERE f.id = l.id`,
  );
}
