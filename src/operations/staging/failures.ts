/** Files that do not come: a staging library has said so of them, and their recalls end, or are tried again, as any. */
import type { Context } from '../../context.js';
import { type Sql, sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import type { ErrorClass } from '../../errors.js';
import { triedNowhere, turnToCopies } from '../catalogue/second-copies.js';
import { isWaiting } from '../conditions.js';
import { lockHolders, markHolds } from '../requests/holds.js';
import type { Answered } from './answers.js';

/** What the library has said of a file that it does not bring. */
export interface FailedStaging extends Answered {
  errorClass: ErrorClass;
  error: string;
  /** It counts as a try. */
  isTry: boolean;
  /** When it is asked for again; null: it has failed for good. */
  notBefore: string | null;
}

/** Tries so far, by the ids of files whose recalls wait, or whose copies are to be read back. */
export async function readAttempts(ctx: Context, fileIds: readonly bigint[]): Promise<Map<bigint, number>> {
  const { rows } = await ctx.db.pool.query<{ fileId: bigint; attempts: number }>(
    sql`SELECT w.file_id AS "fileId", w.attempts FROM verification w WHERE w.file_id = ANY(${fileIds}::bigint[])
        UNION ALL SELECT c.file_id, c.attempts FROM recall c WHERE c.file_id = ANY(${fileIds}::bigint[])`,
  );
  return new Map(rows.map((row) => [row.fileId, row.attempts]));
}

/**
 * Writes it down, together, as far as their recalls wait for this library still. What the system may
 * keep of it is released before it is asked for again.
 */
export async function failStaged(ctx: Context, libraryId: number, failed: readonly FailedStaging[]): Promise<void> {
  if (failed.length === 0) return;
  await transaction(ctx.db.pool, 'failStaged', async (tx) => {
    const fileIds = failed.map(({ fileId }) => fileId);
    await lockHolders(tx, fileIds);
    const now = ctx.now();
    const ended = await tx.query<{ fileId: bigint }>(
      sql`UPDATE staging s SET state = 'RELEASING', since = ${now}, due_at = ${now}
          FROM unnest(${fileIds}::bigint[], ${failed.map(({ batch }) => batch)}::uuid[]) AS n (file_id, batch)
          WHERE s.library_id = ${libraryId} AND s.file_id = n.file_id AND s.batch = n.batch AND s.state = 'ASKED'
          RETURNING s.file_id AS "fileId"`,
    );
    const endedIds = new Set(ended.map(({ fileId }) => fileId));
    const told = failed.filter(({ fileId }) => endedIds.has(fileId));
    const isHere = sql`${isWaiting} AND c.volume_id IN (SELECT v.id FROM volume v WHERE v.library_id = ${libraryId})`;
    const again = told.filter(({ notBefore }) => notBefore !== null);
    await tx.query(
      sql`UPDATE recall c SET attempts = c.attempts + n.is_try::int, not_before = n.not_before, error_class = n.error_class, error = n.error
          FROM unnest(${again.map((f) => f.fileId)}::bigint[], ${again.map((f) => f.notBefore)}::timestamp[],
            ${again.map((f) => f.errorClass)}::"ErrorClass"[], ${again.map((f) => f.error)}::text[], ${again.map((f) => f.isTry)}::bool[])
            AS n (file_id, not_before, error_class, error, is_try)
          WHERE c.file_id = n.file_id AND ${isHere}`,
    );
    await tx.query(failReadBacks(told, now));
    const { turned, told: ofBoth } = await turnToCopies(
      ctx,
      tx,
      await stillHere(
        tx,
        told.filter(({ notBefore }) => notBefore === null).map((file) => ({ ...file, isOfTape: true })),
        isHere,
      ),
    );
    await tx.query(
      sql`UPDATE recall c SET ${triedNowhere} FROM tape_file f WHERE f.id = c.file_id AND c.file_id = ANY(${[...turned]}::bigint[]) AND ${isWaiting}`,
    );
    const isOver = ({ fileId, notBefore }: FailedStaging) => notBefore === null && !turned.has(fileId);
    const over = new Map(told.filter(isOver).map((file) => [file.fileId, file]));
    const gone = await tx.query<{ fileId: bigint }>(
      sql`DELETE FROM recall c WHERE c.file_id = ANY(${[...over.keys()]}::bigint[]) AND ${isHere} RETURNING c.file_id AS "fileId"`,
    );
    const outcomes = gone.flatMap(({ fileId }) => {
      const failure = over.get(fileId);
      return failure
        ? [{ fileId, failure: { errorClass: failure.errorClass, error: ofBoth.get(fileId) ?? failure.error } }]
        : [];
    });
    await markHolds(ctx, tx, outcomes);
  });
}

/** Those whose recalls wait for the library as before. */
async function stillHere(tx: Transaction, failed: readonly FailedStaging[], isHere: Sql): Promise<FailedStaging[]> {
  if (failed.length === 0) return [];
  const rows = await tx.query<{ fileId: bigint }>(
    sql`SELECT c.file_id AS "fileId" FROM recall c WHERE c.file_id = ANY(${failed.map(({ fileId }) => fileId)}::bigint[]) AND ${isHere}`,
  );
  const here = new Set(rows.map(({ fileId }) => fileId));
  return failed.filter(({ fileId }) => here.has(fileId));
}

/** Of copies that are to be read back, and for which no recall waits. */
function failReadBacks(told: readonly FailedStaging[], now: string): Sql {
  return sql`UPDATE verification w SET attempts = w.attempts + n.is_try::int, not_before = n.not_before, error_class = n.error_class, error = n.error, at = ${now}
    FROM unnest(${told.map((f) => f.fileId)}::bigint[], ${told.map((f) => f.notBefore)}::timestamp[],
      ${told.map((f) => f.errorClass)}::"ErrorClass"[], ${told.map((f) => f.error)}::text[], ${told.map((f) => f.isTry)}::bool[])
      AS n (file_id, not_before, error_class, error, is_try)
    WHERE w.file_id = n.file_id AND w.not_before IS NOT NULL AND NOT EXISTS (SELECT FROM recall c WHERE c.file_id = w.file_id)`;
}
