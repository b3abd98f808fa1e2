/** Reads the volumes and drives of libraries, for nested lists. */
import { sql } from '../../db/sql.js';
import { type Drive, Prisma, type Volume } from '../../generated/prisma/client.js';
import type { Context } from '../context.js';
import { countInnerRows, type PageItem, type PageWish, readInnerPages } from '../page-keys.js';
import { allow } from '../policy.js';
import { columnsOf } from '../row-columns.js';

/** Returns a page of the volumes in each library. Omits retired volumes. */
export async function readVolumesIn(
  ctx: Context,
  libraryIds: readonly number[],
  page: PageWish,
): Promise<Map<number, PageItem<Volume>[]>> {
  allow(ctx, 'listVolumes');
  const columns = columnsOf(Prisma.VolumeScalarFieldEnum, 'c');
  const volumes = {
    table: 'volume',
    parent: 'library_id',
    key: 'id',
    columns,
    where: sql`c.retired_at IS NULL`,
  } as const;
  return await readInnerPages<Volume>(ctx, volumes, libraryIds, page);
}

export const countVolumesIn = (ctx: Context, libraryIds: readonly number[]): Promise<Map<number, number>> =>
  countInnerRows(ctx, { rows: sql`volume v WHERE v.retired_at IS NULL`, parent: sql`v.library_id` }, libraryIds);

/** Returns a page of the drives in each library. */
export async function readDrivesIn(
  ctx: Context,
  libraryIds: readonly number[],
  page: PageWish,
): Promise<Map<number, PageItem<Drive>[]>> {
  allow(ctx, 'listDrives');
  const columns = columnsOf(Prisma.DriveScalarFieldEnum, 'c');
  return await readInnerPages<Drive>(
    ctx,
    { table: 'drive', parent: 'library_id', key: 'id', columns },
    libraryIds,
    page,
  );
}

export const countDrivesIn = (ctx: Context, libraryIds: readonly number[]): Promise<Map<number, number>> =>
  countInnerRows(ctx, { rows: sql`drive d WHERE true`, parent: sql`d.library_id` }, libraryIds);
