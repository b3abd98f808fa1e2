/**
 * The files of a new request that the catalogue knows: charged together or not at all. All of it holds the catalogue's lock
 * (lockCatalogue in database/locks.ts), so that no file slips in between; how files come into a request later is in joins.ts.
 */
import { type Sql, sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { likeSubstring } from '../match.js';
import { checkRoom, type QuotaRow } from '../quotas/charges.js';
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

/**
 * Holds the listed files that the catalogue knows, and notes the other paths.
 * @returns the bytes to be charged for them
 * @throws InvalidInputError when they are beyond the limits
 */
export async function holdListed(tx: Transaction, request: NewRequest, files: readonly string[]): Promise<bigint> {
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
  const bytes = BigInt(row?.bytes ?? 0);
  checkWithin(request.limits, { files: row?.files ?? 0, bytes });
  return bytes;
}

/**
 * Holds the files whose path holds the pattern.
 * @returns the bytes to be charged for them
 * @throws InvalidInputError when they are beyond the limits, QuotaExceededError; before anything is stored
 */
export async function holdMatching(
  tx: Transaction,
  request: NewRequest & { pattern: string; quota: QuotaRow },
): Promise<bigint> {
  const match = likeSubstring(request.pattern);
  const [sum] = await tx.query<{ files: number; bytes: string }>(
    sql`SELECT count(*)::int AS files, coalesce(sum(size), 0) AS bytes FROM tape_file f WHERE path LIKE ${match} AND ${request.isAllowed}`,
  );
  const bytes = BigInt(sum?.bytes ?? 0);
  checkWithin(request.limits, { files: sum?.files ?? 0, bytes });
  await checkRoom(tx, request.quota, bytes);
  const [held] = await tx.query<{ bytes: string }>(
    sql`WITH held AS (
       INSERT INTO hold (request_id, file_id, ordinal, size)
       SELECT ${request.id}, id, row_number() OVER (ORDER BY path), size FROM tape_file f
       WHERE path LIKE ${match} AND ${request.isAllowed}
       RETURNING size
     ) SELECT coalesce(sum(size), 0) AS bytes FROM held`,
  );
  return BigInt(held?.bytes ?? 0);
}
