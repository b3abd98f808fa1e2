/** Lists of requests, and of what is in one. */

import type { Context } from '../../context.js';
import { type ListPages, readList } from '../../database/snapshot.js';
import { allOf, type Sql, sql } from '../../database/sql.js';
import { Prisma, type Request } from '../../generated/prisma/client.js';
import type { RequestState } from '../../generated/prisma/enums.js';
import { mayPathOfRequest } from '../access/paths.js';
import { isLive } from '../conditions.js';
import { checkText } from '../input.js';
import { atListServer } from '../list-server.js';
import { countRows, type KeyPage, type PageWish, readInnerPages, readPage } from '../page-keys.js';
import { allow, isVisibleQuota } from '../policy.js';
import { columnsOf } from '../row-columns.js';
import { requestColumns } from './rows.js';

export interface ListRequestsInput {
  /** User. */
  quota?: string | null | undefined;
  /** Live ones unless given; a request past its retention is in no list that does not ask for ended ones. */
  states?: readonly RequestState[] | null | undefined;
}

export interface RequestRow {
  id: number;
  quota: string;
  requestDate: string;
  retention: string;
  label: string;
  tapestoreRequestStart: string | null;
  tapestoreRequestEnd: string | null;
  firstFilesOnDisk: string | null;
  lastFilesOnDisk: string | null;
}

const LIVE_STATES: readonly RequestState[] = ['QUEUED', 'RESTORING', 'COMPLETED', 'PARTIAL'];

/** Requests, oldest first: counted, by the page, or all of them from one snapshot. */
export function listRequests(ctx: Context, input: ListRequestsInput, reader?: AbortSignal) {
  allow(ctx, 'listRequests');
  const rows = sql`request r JOIN quota q ON q.id = r.quota_id WHERE ${filterOf(ctx, input)}`;
  return {
    count: () => atListServer(ctx, 'listRequests', (at) => countRows(at, { rows, reader })),
    page: (page: KeyPage<number>) =>
      atListServer(ctx, 'listRequests', (at) =>
        readPage<Request>(at, { rows, reader, columns: requestColumns, key: sql`r.id` }, page),
      ),
    stream: <T>(consume: (pages: ListPages<RequestRow>) => Promise<T>) => {
      const list = sql`SELECT r.id, q."user" AS quota, r.request_date AS "requestDate", r.retention, r.label,
            r.tapestore_request_start AS "tapestoreRequestStart", r.tapestore_request_end AS "tapestoreRequestEnd",
            r.first_files_on_disk AS "firstFilesOnDisk", r.last_files_on_disk AS "lastFilesOnDisk"
          FROM ${rows} ORDER BY r.id`;
      return atListServer(ctx, 'listRequests', (at, given) =>
        readList<RequestRow, T>(at, list, (pages) => consume(given(pages))),
      );
    },
  };
}

const ofQuota = {
  table: 'request',
  parent: 'quota_id',
  key: 'id',
  columns: columnsOf(Prisma.RequestScalarFieldEnum, 'c'),
} as const;

/** Reads a page of requests of each quota, ended ones too. */
export const readRequestsOf = async (ctx: Context, quotaIds: readonly number[], wish: PageWish) =>
  await readInnerPages<Request>(ctx, ofQuota, quotaIds, wish);

function filterOf(ctx: Context, input: ListRequestsInput): Sql {
  const states = input.states ?? LIVE_STATES;
  const conditions = [
    sql`r.state = ANY(${states}::"RequestState"[])`,
    sql`(NOT (${isLive}) OR r.retention > ${ctx.now()})`,
    isVisibleQuota(ctx),
  ];
  if (input.quota) conditions.push(sql`q."user" = ${checkText('quota', input.quota)}`);
  return allOf(conditions);
}

/**
 * Paths of a request, in the order in which it took them: files that it holds or held when it ended, and paths that it
 * waits for. A file that was released is no longer in the request. For what fits a page there is with-paths.ts.
 */
export async function streamRequestPaths<T>(
  ctx: Context,
  requestId: number,
  consume: (pages: ListPages<{ path: string }>) => Promise<T>,
): Promise<T> {
  const list = sql`SELECT path FROM (
      SELECT f.path, h.ordinal FROM any_hold h JOIN tape_file f ON f.id = h.file_id
      WHERE h.request_id = ${requestId} AND h.state <> 'RELEASED' AND ${mayPathOfRequest(ctx)}
      UNION ALL SELECT f.path, f.ordinal FROM any_awaited_path f WHERE f.request_id = ${requestId} AND ${mayPathOfRequest(ctx)}
    ) p ORDER BY ordinal`;
  return await readList<{ path: string }, T>(ctx, list, consume);
}
