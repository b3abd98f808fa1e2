/**
 * The files of a new request that is a part of a bulk: as if each of them had been asked for alone. What cannot be had is its own problem, noted
 * with it, and is not awaited.
 */
import type { Context } from '../../context.js';
import { lockQuotas } from '../../database/locks.js';
import { type Sql, sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { UnknownUserError } from '../../errors.js';
import { firstListed, mayPath } from '../access/paths.js';
import { isOffered } from '../conditions.js';
import { type Counts, checkCounts, countColumns, countsOf } from '../quotas/counts.js';
import { insertRequest, type NewRequest } from './first-files.js';
import { checkWithin } from './limits.js';

/** Of a bulk whose row is there. The paths are distinct ones, also among its other parts. */
export interface BulkPart {
  /** Of the bulk. */
  id: string;
  files: readonly BulkFileInput[];
}

export interface BulkFileInput {
  /** Logical path. */
  path: string;
  /** As the client has written it. */
  given: string;
  /** Its place in the client's list. */
  ordinal: number;
}

type StoredRow = Counts & { id: number; files: number; bytes: string };

/**
 * In the order of the list a file is taken as long as the quota has room for it and for all that are taken before; one that is larger than
 * all of the room takes none from the others.
 * @returns the request, and how many files it holds; no id where it would hold none
 * @throws InvalidInputError, LimitReachedError, UnknownUserError
 */
export async function storeFitting(
  ctx: Context,
  tx: Transaction,
  request: NewRequest,
  bulk: BulkPart,
): Promise<{ id: number | undefined; files: number }> {
  const { quota } = request;
  await lockQuotas(tx, sql`q.id = ${quota.id}`);
  const [row] = await tx.query<StoredRow>(
    // one statement, so that a file is either held or noted as left out
    sql`WITH room AS MATERIALIZED (
       SELECT greatest(q.size - q.used, 0) AS bytes FROM quota q WHERE q.id = ${quota.id} AND q.removed_at IS NULL
     ), listed AS MATERIALIZED (
       SELECT l.path, l.given, l.n, f.id, f.size, ${problemOf(ctx)} AS problem
       FROM (${wantedFiles(bulk.files)}) l LEFT JOIN tape_file f ON f.path = l.path AND ${isOffered} AND ${mayPath(ctx, 'REQUEST')}
     ), summed AS MATERIALIZED (
       SELECT l.*, sum(l.size) FILTER (WHERE l.problem IS NULL) OVER (ORDER BY l.n) AS total FROM listed l
     ), judged AS MATERIALIZED (
       SELECT s.*, coalesce(s.problem, CASE WHEN s.size > 0 AND s.total > (SELECT bytes FROM room) THEN 'QUOTA_FULL'::"BulkProblem" END) AS reason
       FROM summed s
     ), made AS (${insertRequest(ctx, request, sql`EXISTS (SELECT FROM judged WHERE reason IS NULL) AND EXISTS (SELECT FROM room)`)}
     ), held AS (
       INSERT INTO hold (request_id, file_id, ordinal, size) SELECT m.id, j.id, j.n, j.size FROM judged j, made m WHERE j.reason IS NULL
     ), noted AS (
       INSERT INTO bulk_file (bulk_id, path, given, ordinal, request_id, file_id, problem)
       SELECT ${bulk.id}::uuid, j.path, j.given, j.n, CASE WHEN j.reason IS NULL THEN m.id END, j.id, j.reason FROM judged j LEFT JOIN made m ON true
     ), taken AS MATERIALIZED (
       SELECT count(*)::int AS files, coalesce(sum(size), 0) AS bytes FROM judged WHERE reason IS NULL
     ), charged AS (
       UPDATE quota q SET open_requests = q.open_requests + 1, used = q.used + t.bytes
       FROM taken t, made m WHERE q.id = ${quota.id} RETURNING ${countColumns}
     )
     SELECT m.id, t.*, c.* FROM room LEFT JOIN made m ON true CROSS JOIN taken t LEFT JOIN charged c ON true`,
  );
  if (!row) throw new UnknownUserError(quota.user);
  if (row.id === null) return { id: undefined, files: 0 };
  const { id, files, openRequests, awaitedPaths, standingPatterns } = row;
  checkWithin(ctx, request.limits, { files, bytes: BigInt(row.bytes) });
  checkCounts(ctx, request.user, { openRequests, awaitedPaths, standingPatterns }, countsOf(request.wish, 0));
  return { id, files };
}

/** As rows `l`. */
export function wantedFiles(files: readonly BulkFileInput[]): Sql {
  const paths = files.map(({ path }) => path);
  const given = files.map((file) => file.given);
  const ordinals = files.map(({ ordinal }) => ordinal);
  return sql`SELECT * FROM unnest(${paths}::text[], ${given}::text[], ${ordinals}::int[]) AS l (path, given, n)`;
}

/** Of the path `l` and its file `f`, whatever room there is for it: beyond the quota as a whole is beyond any room. */
const problemOf = (ctx: Context) => sql`CASE
  WHEN f.id IS NULL THEN CASE WHEN ${isFolder(ctx)} THEN 'FOLDER'::"BulkProblem" ELSE 'UNKNOWN' END
  WHEN f.stage IN ('UNVERIFIED', 'ONDISK') THEN 'ELSEWHERE'
  WHEN f.size > (SELECT bytes FROM room) THEN 'QUOTA_FULL' END`;

/** There are files below the path `l` that the caller may know of. */
export const isFolder = (ctx: Context) =>
  sql`(${firstListed(ctx, { from: sql`l.path || '/'`, before: sql`l.path || '0'` })}) IS NOT NULL`;
