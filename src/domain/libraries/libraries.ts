/**
 * Reads libraries: the site's tape systems, with their volumes and drives. At every site, the library with id 1 is a
 * directory below Tapegate's data directory. Operators can add further libraries.
 */

import { type Sql, sql } from '../../db/sql.js';
import { type Library as LibraryRow, Prisma } from '../../generated/prisma/client.js';
import type { Context } from '../context.js';
import { keyedList } from '../page-keys.js';
import { allow } from '../policy.js';
import { columnsOf } from '../row-columns.js';

/** Id of the library in the data directory, which every site has. */
export const FIRST_LIBRARY = 1;

/**
 * Default for the maximum number of files that a staging library stages at the same time. The default is large, because
 * a library that knows many requested files can choose an efficient order for reading its tapes.
 */
export const DEPTH_FILES = 10_000;

export interface Library extends Omit<LibraryRow, 'addedAt' | 'drives' | 'settings'> {
  settings: object;
  /** Number of drives. In a staging library, this is the number of concurrent reads. */
  drives: number;
}

export const libraryColumns: Sql = columnsOf(Prisma.LibraryScalarFieldEnum, 'b');

export async function readLibraries(ctx: Context): Promise<Library[]> {
  const rows = await ctx.db.rows<Library>(sql`SELECT ${libraryColumns} FROM library b ORDER BY b.id`);
  return rows.map((row) => ({ ...row, drives: row.drives ?? ctx.config.drives }));
}

export function listLibraries(ctx: Context) {
  allow(ctx, 'listLibraries');
  return keyedList<number, LibraryRow>(ctx, { rows: sql`library b WHERE true`, id: sql`b.id` }, (at, id, query) =>
    at.db.prisma.library.findMany({ ...query, where: { id }, orderBy: { id: 'asc' } }),
  );
}

/**
 * Returns the settings of libraries, by library id. Only operators may see the settings, because the settings show
 * where a site keeps its tapes.
 */
export async function readSettings(ctx: Context, ids: readonly number[]): Promise<Map<number, object>> {
  allow(ctx, 'readSettings');
  const rows = await ctx.db.rows<{ id: number; settings: object }>(
    sql`SELECT b.id, b.settings FROM library b WHERE b.id = ANY(${ids}::int[])`,
  );
  return new Map(rows.map(({ id, settings }) => [id, settings]));
}

export interface RequestUsage {
  /** Name of the request in the tape system's documentation, such as `GetObject`. */
  request: string;
  /** Number of requests sent, including requests whose response was lost. */
  sent: bigint;
  bytes: bigint;
}

export async function addUsage(ctx: Context, libraryId: number, used: readonly RequestUsage[]): Promise<void> {
  if (used.length === 0) return;
  const [names, sent] = [used.map((each) => each.request), used.map((each) => each.sent)];
  const bytes = used.map((each) => each.bytes);
  await ctx.db.pool.query(
    sql`INSERT INTO library_usage AS u (library_id, request, requests, bytes)
        SELECT b.id, n.* FROM unnest(${names}::text[], ${sent}::bigint[], ${bytes}::bigint[]) AS n (request, requests, bytes)
          JOIN library b ON b.id = ${libraryId}
        ORDER BY n.request
        ON CONFLICT (library_id, request) DO UPDATE SET requests = u.requests + excluded.requests, bytes = u.bytes + excluded.bytes`,
  );
}

export async function readUsage(ctx: Context, ids: readonly number[]): Promise<Map<number, RequestUsage[]>> {
  allow(ctx, 'readUsage');
  const rows = await ctx.db.rows<RequestUsage & { id: number }>(
    sql`SELECT u.library_id AS id, u.request, u.requests AS sent, u.bytes FROM library_usage u
        WHERE u.library_id = ANY(${ids}::int[]) ORDER BY u.library_id, u.request`,
  );
  const usage = new Map<number, RequestUsage[]>();
  for (const { id, ...row } of rows) usage.set(id, [...(usage.get(id) ?? []), row]);
  return usage;
}
