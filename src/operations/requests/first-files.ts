/**
 * The files of a new request that the catalogue knows: charged together or not at all. All of it holds the catalogue's lock
 * (lockCatalogue in database/locks.ts), so that no file slips in between; how files come into a request later is in joins.ts.
 */
import type { Context } from '../../context.js';
import { type Sql, sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { holdsText } from '../match.js';
import { checkRoom, type QuotaRow } from '../quotas/charges.js';
import { addCounts, checkCounts, countsOf } from '../quotas/counts.js';
import { checkWithin, type Limits } from './limits.js';

/** What a request asks for: a pattern, or a list of distinct paths. */
export interface Wish {
  pattern: string;
  files: readonly string[] | undefined;
}

/** A request that is being made: it holds nothing yet. */
export interface NewRequest {
  id: number;
  limits: Limits;
  /** What it may hold: a condition on the file `f`. */
  isAllowed: Sql;
}

/** What came into a new request: bytes to be charged, and how many paths the catalogue does not know. */
interface Taken {
  bytes: bigint;
  unknown: number;
}

/**
 * Holds the listed files that the catalogue knows, and notes the other paths.
 * @throws InvalidInputError when they are beyond the limits; LimitReachedError early, where the user waits for enough paths
 */
export async function holdListed(
  ctx: Context,
  tx: Transaction,
  request: NewRequest & { quota: QuotaRow },
  files: readonly string[],
): Promise<Taken> {
  await checkUnknown(ctx, tx, request, files);
  // one statement, so that a path is either known or noted
  const [row] = await tx.query<{ files: number; bytes: string }>(
    sql`WITH listed AS (
       SELECT path, n FROM unnest(${files}::text[]) WITH ORDINALITY AS l (path, n)
     ), known AS (
       SELECT l.path, l.n, f.id, f.size FROM listed l JOIN tape_file f ON f.path = l.path AND ${request.isAllowed}
     ), held AS (
       INSERT INTO hold (request_id, file_id, ordinal, size) SELECT ${request.id}, id, n, size FROM known
     ), noted AS (
       INSERT INTO awaited_path (request_id, path, ordinal)
       SELECT ${request.id}, l.path, l.n FROM listed l WHERE NOT EXISTS (SELECT FROM known k WHERE k.path = l.path)
     )
     SELECT count(*)::int AS files, coalesce(sum(size), 0) AS bytes FROM known`,
  );
  const [known, bytes] = [row?.files ?? 0, BigInt(row?.bytes ?? 0)];
  checkWithin(ctx, request.limits, { files: known, bytes });
  return { bytes, unknown: files.length - known };
}

/** Refuses early what is beyond by far, so that nobody has long lists stored again and again only to be taken back. */
async function checkUnknown(
  ctx: Context,
  tx: Transaction,
  { quota, isAllowed }: NewRequest & { quota: QuotaRow },
  files: readonly string[],
): Promise<void> {
  const all = countsOf({ pattern: '' }, files.length);
  if (addCounts(quota, all).awaitedPaths <= ctx.config.limits.awaitedPaths) return;
  const [row] = await tx.query<{ known: number }>(
    sql`SELECT count(*)::int AS known FROM unnest(${files}::text[]) AS l (path) JOIN tape_file f ON f.path = l.path AND ${isAllowed}`,
  );
  const added = countsOf({ pattern: '' }, files.length - (row?.known ?? 0));
  checkCounts(ctx, quota.user, addCounts(quota, added), added);
}

/**
 * Holds the files whose path holds the pattern.
 * @throws InvalidInputError when they are beyond the limits, QuotaExceededError; before anything is stored
 */
export async function holdMatching(
  ctx: Context,
  tx: Transaction,
  request: NewRequest & { pattern: string; quota: QuotaRow },
): Promise<Taken> {
  const isMatch = holdsText(request.pattern);
  const [sum] = await tx.query<{ files: number; bytes: string }>(
    sql`SELECT count(*)::int AS files, coalesce(sum(size), 0) AS bytes FROM tape_file f WHERE ${isMatch} AND ${request.isAllowed}`,
  );
  const bytes = BigInt(sum?.bytes ?? 0);
  checkWithin(ctx, request.limits, { files: sum?.files ?? 0, bytes });
  await checkRoom(tx, request.quota, bytes);
  const [held] = await tx.query<{ bytes: string }>(
    sql`WITH held AS (
       INSERT INTO hold (request_id, file_id, ordinal, size)
       SELECT ${request.id}, id, row_number() OVER (ORDER BY path), size FROM tape_file f
       WHERE ${isMatch} AND ${request.isAllowed}
       RETURNING size
     ) SELECT coalesce(sum(size), 0) AS bytes FROM held`,
  );
  return { bytes: BigInt(held?.bytes ?? 0), unknown: 0 };
}
