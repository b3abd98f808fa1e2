/** What libraries were sent since they were added, as far as that is counted: what a bill is made of. */
import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { allow } from '../policy.js';

export interface RequestUsage {
  /** As the documentation of the system calls it: `GetObject`. */
  request: string;
  /** How many of them, also those whose answers were lost. */
  sent: bigint;
  /** Of files, as they came with the answers. */
  bytes: bigint;
}

/** More of each, in one order for all who write. */
export async function addUsage(ctx: Context, libraryId: number, used: readonly RequestUsage[]): Promise<void> {
  if (used.length === 0) return;
  const [names, sent, bytes] = [
    used.map((each) => each.request),
    used.map((each) => each.sent),
    used.map((each) => each.bytes),
  ];
  await ctx.db.pool.query(
    sql`INSERT INTO library_usage AS u (library_id, request, requests, bytes)
        SELECT b.id, n.* FROM unnest(${names}::text[], ${sent}::bigint[], ${bytes}::bigint[]) AS n (request, requests, bytes)
          JOIN library b ON b.id = ${libraryId}
        ORDER BY n.request
        ON CONFLICT (library_id, request) DO UPDATE SET requests = u.requests + excluded.requests, bytes = u.bytes + excluded.bytes`,
  );
}

/** By the ids of libraries, each by the names of requests; those of which nothing is counted, or that were sent nothing, are left out. */
export async function readUsage(ctx: Context, ids: readonly number[]): Promise<Map<number, RequestUsage[]>> {
  allow(ctx, 'readUsage');
  const { rows } = await ctx.db.pool.query<RequestUsage & { id: number }>(
    sql`SELECT u.library_id AS id, u.request, u.requests AS sent, u.bytes FROM library_usage u
        WHERE u.library_id = ANY(${ids}::int[]) ORDER BY u.library_id, u.request`,
  );
  const usage = new Map<number, RequestUsage[]>();
  for (const { id, ...row } of rows) usage.set(id, [...(usage.get(id) ?? []), row]);
  return usage;
}
