/** What is in requests, by the page: files and unresolved paths, of ended requests in their compact form too. */

import type { Context } from '../../context.js';
import { sql } from '../../database/sql.js';
import { type AwaitedPath, type Hold, Prisma, type TapeFile } from '../../generated/prisma/client.js';
import { mayPathOfRequest } from '../access/paths.js';
import { type PageItem, type PageWish, readInnerPages } from '../page-keys.js';
import { columnsOf, takeRow } from '../row-columns.js';

const list = { parent: 'request_id', key: 'ordinal' } as const;

const { HoldScalarFieldEnum: holdFields, TapeFileScalarFieldEnum: fileFields } = Prisma;
const holdColumns = sql`${columnsOf(holdFields, 'c')}, ${columnsOf(fileFields, 'f', 'file.')}`;

export interface HoldWithFile extends Hold {
  file: TapeFile;
}

/** Reads a page of files of each request. Each file is looked up by its id, whatever the planner expects of the size of a page. */
export async function readHolds(
  ctx: Context,
  requestIds: readonly number[],
  wish: PageWish,
): Promise<Map<number, PageItem<HoldWithFile>[]>> {
  const join = sql`LEFT JOIN LATERAL (
    SELECT f.* FROM tape_file f WHERE f.id = c.file_id AND ${mayPathOfRequest(ctx)} OFFSET 0
  ) f ON true`;
  const holds = { ...list, table: 'any_hold', columns: holdColumns, join, isSeen: sql`f.id IS NOT NULL` } as const;
  const pages = await readInnerPages<HoldWithFile>(ctx, holds, requestIds, wish);
  for (const { row } of [...pages.values()].flat()) if (row) row.file = takeRow(row, fileFields, 'file.');
  return pages;
}

const awaitedColumns = columnsOf(Prisma.AwaitedPathScalarFieldEnum, 'c');

/** Reads a page of unresolved paths of each request. */
export async function readAwaited(
  ctx: Context,
  requestIds: readonly number[],
  wish: PageWish,
): Promise<Map<number, PageItem<AwaitedPath>[]>> {
  const isSeen = sql`EXISTS (SELECT FROM (SELECT c.path) f WHERE ${mayPathOfRequest(ctx)})`;
  const awaited = { ...list, table: 'any_awaited_path', columns: awaitedColumns, isSeen } as const;
  return await readInnerPages<AwaitedPath>(ctx, awaited, requestIds, wish);
}
