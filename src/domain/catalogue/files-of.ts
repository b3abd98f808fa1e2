/** Reads the files on volumes and restore disks, for nested lists. */
import { type Sql, sql } from '../../db/sql.js';
import { Prisma, type TapeFile } from '../../generated/prisma/client.js';
import { isRuled, mayPath } from '../access/paths.js';
import { isOffered } from '../conditions.js';
import type { Context } from '../context.js';
import { countInnerRows, type PageItem, type PageWish, readInnerPages } from '../page-keys.js';
import { allow } from '../policy.js';
import { columnsOf } from '../row-columns.js';

interface FilesOf {
  parent: 'volume_id' | 'disk_id';
  /** A condition on the files `f`. */
  where: Sql;
  isAllowed: Sql;
}

const onVolumes = (ctx: Context): FilesOf => ({
  parent: 'volume_id',
  where: isOffered,
  isAllowed: mayPath(ctx, 'LIST'),
});

const onDisks = (ctx: Context): FilesOf => ({
  parent: 'disk_id',
  where: sql`${isOffered} AND f.stage = 'RESTORED'`,
  isAllowed: sql`${mayPath(ctx, 'LIST')} AND ${mayPath(ctx, 'FETCH')}`,
});

async function readFilesOf(
  ctx: Context,
  { parent, where, isAllowed }: FilesOf,
  ids: readonly number[],
  page: PageWish,
) {
  allow(ctx, 'listFiles');
  return await readInnerPages<TapeFile>(
    ctx,
    {
      table: 'tape_file',
      parent,
      key: 'id',
      columns: columnsOf(Prisma.TapeFileScalarFieldEnum, 'c'),
      where: sql`EXISTS (SELECT FROM (SELECT c.*) f WHERE ${where})`,
      // the page must not contain keys of hidden files, because its cursors would reveal and count these files
      isAllowed: isRuled(ctx.caller) ? sql`EXISTS (SELECT FROM (SELECT c.*) f WHERE ${isAllowed})` : undefined,
      isLong: true,
    },
    ids,
    page,
  );
}

const countFiles = (ctx: Context, { parent, where, isAllowed }: FilesOf, ids: readonly number[]) =>
  countInnerRows(
    ctx,
    {
      rows: sql`tape_file f WHERE ${where} AND ${isAllowed}`,
      parent: parent === 'disk_id' ? sql`f.disk_id` : sql`f.volume_id`,
    },
    ids,
  );

/** Returns a page of the files whose first copy is on a volume, for each volume, in the order of their ids. */
export const readFilesOnVolumes = (
  ctx: Context,
  ids: readonly number[],
  page: PageWish,
): Promise<Map<number, PageItem<TapeFile>[]>> => readFilesOf(ctx, onVolumes(ctx), ids, page);

export const countFilesOnVolumes = (ctx: Context, ids: readonly number[]): Promise<Map<number, number>> =>
  countFiles(ctx, onVolumes(ctx), ids);

/** Returns a page of the restored files on a disk, for each disk, in the order of their ids. */
export const readFilesOnDisks = (
  ctx: Context,
  ids: readonly number[],
  page: PageWish,
): Promise<Map<number, PageItem<TapeFile>[]>> => readFilesOf(ctx, onDisks(ctx), ids, page);

export const countFilesOnDisks = (ctx: Context, ids: readonly number[]): Promise<Map<number, number>> =>
  countFiles(ctx, onDisks(ctx), ids);
