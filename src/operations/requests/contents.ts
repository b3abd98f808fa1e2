/** What is in requests, by the ordinals of a page: holds and awaited paths, of ended requests in their compact form too. */

import type { Context } from '../../context.js';
import { raw, sql } from '../../database/sql.js';
import type { AwaitedPath, Hold } from '../../generated/prisma/client.js';
import { mayPathOfRequest } from '../access/paths.js';

/** Some ordinals of a request. */
export interface OrdinalPage {
  parentId: number;
  keys: readonly number[];
}

/** What has gone meanwhile is left out. */
export async function readHolds(ctx: Context, pages: readonly OrdinalPage[]): Promise<Hold[]> {
  const columns = sql`h.request_id AS "requestId", h.file_id AS "fileId", h.ordinal, h.size, h.state,
    h.error_class AS "errorClass", h.error`;
  const isSeen = sql`EXISTS (SELECT FROM tape_file f WHERE f.id = h.file_id AND ${mayPathOfRequest(ctx)})`;
  return (await ctx.db.pool.query<Hold>(sql`SELECT ${columns} FROM ${rowsOf('hold', pages)} AND ${isSeen}`)).rows;
}

/** The same of paths that have no file. */
export async function readAwaited(ctx: Context, pages: readonly OrdinalPage[]): Promise<AwaitedPath[]> {
  const columns = sql`h.request_id AS "requestId", h.path, h.ordinal, h.reason`;
  const isSeen = sql`EXISTS (SELECT FROM (SELECT h.path) f WHERE ${mayPathOfRequest(ctx)})`;
  return (
    await ctx.db.pool.query<AwaitedPath>(sql`SELECT ${columns} FROM ${rowsOf('awaited_path', pages)} AND ${isSeen}`)
  ).rows;
}

/** Each row, and each bundle that has some, is read once, by its last ordinal. */
function rowsOf(table: 'hold' | 'awaited_path', pages: readonly OrdinalPage[]) {
  const bundle = raw(table === 'hold' ? 'hold_bundle' : 'path_bundle');
  const parents = pages.flatMap(({ parentId, keys }) => keys.map(() => parentId));
  const ordinals = pages.flatMap(({ keys }) => keys);
  const wanted = sql`SELECT request_id, ordinal FROM unnest(${parents}::int[], ${ordinals}::int[]) AS w (request_id, ordinal)`;
  return sql`(
      SELECT request_id, ordinal AS last_ordinal FROM (${wanted}) w
      UNION SELECT b.request_id, b.last_ordinal FROM (${wanted}) w CROSS JOIN LATERAL (
        SELECT b.request_id, b.last_ordinal FROM ${bundle} b
        WHERE b.request_id = w.request_id AND b.last_ordinal >= w.ordinal ORDER BY b.last_ordinal LIMIT 1
      ) b
    ) p CROSS JOIN LATERAL (
      SELECT * FROM ${raw(`any_${table}`)} h WHERE h.request_id = p.request_id AND h.last_ordinal = p.last_ordinal OFFSET 0
    ) h
    WHERE (h.request_id, h.ordinal) IN (${wanted})`;
}
