/** Files of a bulk are cancelled or released, and bulks are removed: by the operations on the requests that hold the files. */
import { ownerOf } from '../../caller.js';
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { InvalidInputError, quote, UserError } from '../../errors.js';
import { noteRefusal } from '../audit/audited.js';
import { isLive } from '../conditions.js';
import { findPathProblem } from '../input.js';
import { allow, allowChange, isVisibleQuota } from '../policy.js';
import { cancelRequest } from '../requests/ends.js';
import { releaseFiles } from '../requests/releases.js';
import { bulkKeyOf } from './key.js';
import { isBulkId, noBulk } from './read.js';

interface Members {
  /** Of each request that holds some, what they are called by now. */
  requests: { id: number; paths: string[] }[];
}

/**
 * All of them or none: what is still to come is not waited for any more, and what has come is let go.
 * @param paths logical ones, or what is none
 * @throws InvalidInputError for a path that is not in the bulk, and nothing is changed then; NotFoundError, ForbiddenError
 */
export async function cancelInBulk(ctx: Context, id: string, paths: readonly string[]): Promise<void> {
  await findRequests(ctx, id);
  await letGoAll(ctx, id, await findMembers(ctx, id, paths));
  await ctx.db.pool.query(sql`UPDATE bulk SET cancelled_at = ${ctx.now()}::timestamp WHERE id = ${id}::uuid`);
}

/** The same of what the client needs no more. @throws as `cancelInBulk` */
export async function releaseInBulk(ctx: Context, id: string, paths: readonly string[]): Promise<void> {
  await findRequests(ctx, id);
  await letGoAll(ctx, id, await findMembers(ctx, id, paths));
}

/** Of one who does not say in which bulk: in all that the caller has made. What is in none of them is passed over. */
export async function releaseInAll(ctx: Context, paths: readonly string[]): Promise<void> {
  allow(ctx, 'releaseFiles');
  const known = paths.filter((path) => findPathProblem(path) === undefined);
  const { rows } = await ctx.db.pool.query<{ bulkId: string; id: number; paths: string[] }>(
    // by the path by which it was staged, as in a bulk, or by the one that the file has by now
    sql`SELECT b.bulk_id AS "bulkId", r.id, array_agg(DISTINCT f.path) AS paths
        FROM (SELECT o.bulk_id, o.request_id, o.file_id FROM bulk_file o WHERE o.path = ANY(${known}::text[])
          UNION SELECT o.bulk_id, o.request_id, o.file_id FROM tape_file n JOIN bulk_file o ON o.file_id = n.id WHERE n.path = ANY(${known}::text[])) b
          JOIN tape_file f ON f.id = b.file_id JOIN request r ON r.id = b.request_id JOIN quota q ON q.id = r.quota_id
        WHERE ${isLive} AND r.made_by = ${ownerOf(ctx.caller)} AND ${isVisibleQuota(ctx)}
        GROUP BY b.bulk_id, r.id ORDER BY r.id`,
  );
  for (const { bulkId, ...request } of rows) await letGoAll(ctx, bulkId, { requests: [request] });
}

/**
 * Ends all of its requests; nobody finds it any more.
 * @throws NotFoundError, ForbiddenError; what was ended before stays so
 */
export async function removeBulk(ctx: Context, id: string): Promise<void> {
  for (const request of await findRequests(ctx, id)) await cancelRequest(ctx, request);
  await ctx.db.pool.query(sql`DELETE FROM bulk WHERE id = ${id}::uuid`);
}

/**
 * Its requests, all of which the caller may change: before any of it is changed.
 * @throws NotFoundError, also where the caller may not see it; ForbiddenError
 */
async function findRequests(ctx: Context, id: string): Promise<number[]> {
  allow(ctx, 'cancelRequest');
  if (!isBulkId(id)) throw noBulk(id);
  const { rows } = await ctx.db.pool.query<{ user: string; id: number | null; madeBy: string | null }>(
    sql`SELECT q."user", r.id, r.made_by AS "madeBy" FROM bulk b JOIN quota q ON q.id = b.quota_id LEFT JOIN LATERAL (
          SELECT DISTINCT f.request_id FROM bulk_file f WHERE f.bulk_id = b.id AND f.request_id IS NOT NULL) m ON true
          LEFT JOIN request r ON r.id = m.request_id
        WHERE b.id = ${id}::uuid AND ${isVisibleQuota(ctx)} ORDER BY r.id`,
  );
  if (rows.length === 0) throw noBulk(id);
  return rows.flatMap(({ id: request, ...of }) => {
    // of which nothing could be had is that of whoever may ask with its quota
    if (request === null) allow(ctx, 'createRequest', of.user);
    else checkChange(ctx, { id: request, ...of });
    return request ?? [];
  });
}

/** @throws ForbiddenError, which is noted as of any other request */
function checkChange(ctx: Context, request: Parameters<typeof allowChange>[2]): void {
  try {
    allowChange(ctx, 'cancelRequest', request);
  } catch (error) {
    const deed = { operation: 'cancelRequest', kind: 'REQUEST', object: request.id } as const;
    if (error instanceof UserError) noteRefusal(ctx, deed, error.code);
    throw error;
  }
}

async function findMembers(ctx: Context, id: string, paths: readonly string[]): Promise<Members> {
  const given = new Map(paths.map((path) => [bulkKeyOf(path), path]));
  const { rows } = await ctx.db.pool.query<{ path: string; name: string; isIn: boolean; requestId: number | null }>(
    // a client knows a file by the path by which it has staged it, also when it was renamed since
    sql`SELECT w.path, coalesce(n.path, w.path) AS name, f.path IS NOT NULL AS "isIn", f.request_id AS "requestId"
        FROM unnest(${[...given.keys()]}::text[]) AS w (path) LEFT JOIN bulk_file f ON f.bulk_id = ${id}::uuid AND f.path = w.path
          LEFT JOIN tape_file n ON n.id = f.file_id`,
  );
  const foreign = rows.filter(({ isIn }) => !isIn);
  if (foreign[0]) {
    const more = foreign.length === 1 ? '' : ` and ${foreign.length - 1} more`;
    const first = quote(given.get(foreign[0].path) ?? foreign[0].path);
    throw new InvalidInputError('paths', `has what stage request ${id} does not hold: ${first}${more}`);
  }
  const byRequest = new Map<number, string[]>();
  for (const { name, requestId } of rows) {
    if (requestId === null) continue;
    const own = byRequest.get(requestId) ?? [];
    byRequest.set(requestId, own);
    own.push(name);
  }
  return { requests: [...byRequest].map(([request, own]) => ({ id: request, paths: own })) };
}

/** What was on disk by then has been completed, whatever becomes of it. */
async function letGoAll(ctx: Context, bulkId: string, { requests }: Members): Promise<void> {
  for (const { id, paths } of requests) {
    await ctx.db.pool.query(
      sql`UPDATE bulk_file b SET was_on_disk = true FROM hold h JOIN tape_file f ON f.id = h.file_id
          WHERE b.bulk_id = ${bulkId}::uuid AND b.request_id = ${id} AND f.path = ANY(${paths}::text[])
            AND h.request_id = b.request_id AND h.file_id = b.file_id AND h.state = 'ON_DISK'`,
    );
    await releaseFiles(ctx, { id, paths }, { mayHaveEnded: true }); // a lifetime may be over before its client is done
  }
}
