/** Files of a bulk are cancelled or released, and bulks are removed: by the operations on the requests that hold the files. */
import { ownerOf } from '../../caller.js';
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { InvalidInputError, quote } from '../../errors.js';
import { isLive } from '../conditions.js';
import { allow, isVisibleQuota } from '../policy.js';
import { cancelRequest } from '../requests/ends.js';
import { releaseFiles } from '../requests/releases.js';
import { isBulkId, noBulk } from './read.js';

interface Members {
  /** The paths of each request that holds some. */
  requests: { id: number; paths: string[] }[];
}

/**
 * All of them or none: what is still to come is not waited for any more, and what has come is let go.
 * @param paths logical ones
 * @throws InvalidInputError for a path that is not in the bulk, and nothing is changed then; NotFoundError, ForbiddenError
 */
export async function cancelInBulk(ctx: Context, id: string, paths: readonly string[]): Promise<void> {
  await letGoAll(ctx, id, await findMembers(ctx, id, paths));
  await ctx.db.pool.query(sql`UPDATE bulk SET cancelled_at = ${ctx.now()}::timestamp WHERE id = ${id}::uuid`);
}

/** The same of what the client needs no more. @throws as `cancelInBulk` */
export async function releaseInBulk(ctx: Context, id: string, paths: readonly string[]): Promise<void> {
  await letGoAll(ctx, id, await findMembers(ctx, id, paths));
}

/** Of one who does not say in which bulk: in all that the caller has made. What is in none of them is passed over. */
export async function releaseInAll(ctx: Context, paths: readonly string[]): Promise<void> {
  allow(ctx, 'releaseFiles');
  const { rows } = await ctx.db.pool.query<{ bulkId: string; id: number; paths: string[] }>(
    sql`SELECT b.bulk_id AS "bulkId", r.id, array_agg(b.path) AS paths
        FROM tape_file f JOIN bulk_file b ON b.file_id = f.id JOIN request r ON r.id = b.request_id JOIN quota q ON q.id = r.quota_id
        WHERE f.path = ANY(${paths}::text[]) AND ${isLive} AND r.made_by = ${ownerOf(ctx.caller)} AND ${isVisibleQuota(ctx)}
        GROUP BY b.bulk_id, r.id ORDER BY r.id`,
  );
  for (const { bulkId, ...request } of rows) await letGoAll(ctx, bulkId, { requests: [request] });
}

/**
 * Ends all of its requests; nobody finds it any more.
 * @throws NotFoundError, ForbiddenError; what was ended before stays so
 */
export async function removeBulk(ctx: Context, id: string): Promise<void> {
  const { quota, requests } = await findRequests(ctx, id);
  if (requests.length === 0) allow(ctx, 'createRequest', quota);
  for (const request of requests) await cancelRequest(ctx, request);
  await ctx.db.pool.query(sql`DELETE FROM bulk WHERE id = ${id}::uuid`);
}

async function findRequests(ctx: Context, id: string): Promise<{ quota: string; requests: number[] }> {
  allow(ctx, 'cancelRequest');
  if (!isBulkId(id)) throw noBulk(id);
  const { rows } = await ctx.db.pool.query<{ quota: string; requests: number[] }>(
    sql`SELECT q."user" AS quota, ARRAY(
          SELECT DISTINCT f.request_id FROM bulk_file f WHERE f.bulk_id = b.id AND f.request_id IS NOT NULL ORDER BY 1) AS requests
        FROM bulk b JOIN quota q ON q.id = b.quota_id WHERE b.id = ${id}::uuid AND ${isVisibleQuota(ctx)}`,
  );
  const [found] = rows;
  if (!found) throw noBulk(id);
  return found;
}

async function findMembers(ctx: Context, id: string, paths: readonly string[]): Promise<Members> {
  await findRequests(ctx, id);
  const { rows } = await ctx.db.pool.query<{ path: string; isIn: boolean; requestId: number | null }>(
    sql`SELECT w.path, f.path IS NOT NULL AS "isIn", f.request_id AS "requestId"
        FROM unnest(${paths}::text[]) AS w (path) LEFT JOIN bulk_file f ON f.bulk_id = ${id}::uuid AND f.path = w.path`,
  );
  const foreign = rows.filter(({ isIn }) => !isIn);
  if (foreign[0]) {
    const more = foreign.length === 1 ? '' : ` and ${foreign.length - 1} more`;
    throw new InvalidInputError(
      'paths',
      `has what stage request ${id} does not hold: ${quote(foreign[0].path)}${more}`,
    );
  }
  const byRequest = new Map<number, string[]>();
  for (const { path, requestId } of rows) {
    if (requestId !== null) byRequest.set(requestId, [...(byRequest.get(requestId) ?? []), path]);
  }
  return { requests: [...byRequest].map(([request, own]) => ({ id: request, paths: own })) };
}

/** What was on disk by then has been completed, whatever becomes of it. */
async function letGoAll(ctx: Context, bulkId: string, { requests }: Members): Promise<void> {
  for (const { id, paths } of requests) {
    await ctx.db.pool.query(
      sql`UPDATE bulk_file b SET was_on_disk = true FROM hold h
          WHERE b.bulk_id = ${bulkId}::uuid AND b.request_id = ${id} AND b.path = ANY(${paths}::text[])
            AND h.request_id = b.request_id AND h.file_id = b.file_id AND h.state = 'ON_DISK'`,
    );
    await releaseFiles(ctx, { id, paths });
  }
}
