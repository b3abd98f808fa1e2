/** Reads what happened to requests: the recorded changes of their states and counts. */
import { sql } from '../../db/sql.js';
import type { RequestState } from '../../generated/prisma/enums.js';
import type { Context } from '../context.js';
import { countInnerRows, type PageItem, type PageWish, readInnerPages } from '../page-keys.js';

/** The state and counts of a request after a change. */
export interface RequestEvent {
  at: string;
  state: RequestState;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
  bytesTotal: bigint;
  bytesOnDisk: bigint;
}

const columns = sql`c.at, c.state, c.files_total AS "filesTotal", c.files_on_disk AS "filesOnDisk",
  c.files_failed AS "filesFailed", c.bytes_total AS "bytesTotal", c.bytes_on_disk AS "bytesOnDisk"`;

/** Returns a page of the changes of each request. Changes older than TAPEGATE_EVENT_DAYS are deleted. */
export const readRequestEvents = (
  ctx: Context,
  requestIds: readonly number[],
  page: PageWish,
): Promise<Map<number, PageItem<RequestEvent>[]>> =>
  readInnerPages<RequestEvent>(ctx, { table: 'event', parent: 'request_id', key: 'id', columns }, requestIds, page);

export const countRequestEvents = (ctx: Context, requestIds: readonly number[]): Promise<Map<number, number>> =>
  countInnerRows(ctx, { rows: sql`event c WHERE c.request_id IS NOT NULL`, parent: sql`c.request_id` }, requestIds);
