/** Reads requests, their files and their unresolved paths. */

import { noRequest, quote } from '../../core/errors.js';
import { askAtLength, type ListPages, PAGE, readList } from '../../db/lists/snapshot.js';
import { locking } from '../../db/locks.js';
import { prepared } from '../../db/prepared.js';
import { allOf, join, raw, type Sql, sql } from '../../db/sql.js';
import type { Transaction } from '../../db/transaction.js';
import {
  Prisma,
  type Quota,
  type Request,
  type RequestFile,
  type TapeFile,
  type UnresolvedPath,
} from '../../generated/prisma/client.js';
import type { RequestState } from '../../generated/prisma/enums.js';
import { mayPath, mayPathOfRequest } from '../access/paths.js';
import { diskOfCopy, isAtPrimaryPath, isLive } from '../conditions.js';
import type { Context } from '../context.js';
import { checkText } from '../input.js';
import { atListServer } from '../list-server.js';
import {
  countInnerRows,
  countRows,
  type KeyPage,
  type PageItem,
  type PageWish,
  readInnerPages,
  readPage,
} from '../page-keys.js';
import { allow, allowChange, isVisibleQuota, type Operation } from '../policy.js';
import { columnsOf, commonFileFields, rowTaker } from '../row-columns.js';
import { checkConnected } from '../turn.js';

export interface LockedRequest extends Request {
  user: string;
}

export function isEnded(state: RequestState): boolean {
  return state === 'EXPIRED' || state === 'CANCELLED';
}

/** Returns the text that explains which paths are not in a request. */
export function describeForeign(id: number, path: string, count: number): string {
  const more = count === 1 ? '' : ` and ${count - 1} more`;
  return `must all be in request ${id}, which does not contain ${quote(path)}${more}`;
}

/**
 * Locks a request so that the caller can change it.
 * @throws NotFoundError, also if the caller is not allowed to see the request; ForbiddenError
 */
export async function lockOwnRequest(
  ctx: Context,
  tx: Transaction,
  operation: Operation,
  id: number,
): Promise<LockedRequest> {
  const [request] = await tx.query<LockedRequest>(
    // check visibility in the locking statement, because a caller must not wait for a lock on a hidden request
    sql`SELECT ${columnsOf(requestFields, 'r')}, q."user"
        FROM request r JOIN quota q ON q.id = r.quota_id WHERE r.id = ${id} AND ${isVisibleQuota(ctx)} ${locking.request}`,
  );
  if (!request) throw noRequest(id);
  checkConnected(ctx);
  allowChange(ctx, operation, request);
  return request;
}

/**
 * Checks that the caller is allowed to see a request. An operation checks visibility before it waits for a lock on the
 * request.
 * @throws NotFoundError
 */
export async function checkVisible(ctx: Context, id: number): Promise<void> {
  if (ctx.caller.reads === 'all') return;
  const { rowCount } = await ctx.db.pool.query(
    sql`SELECT FROM request r JOIN quota q ON q.id = r.quota_id WHERE r.id = ${id} AND ${isVisibleQuota(ctx)}`,
  );
  if (rowCount === 0) throw noRequest(id);
}

export interface RequestWithQuota extends Request {
  quota: Quota;
}

const { RequestScalarFieldEnum: requestFields, QuotaScalarFieldEnum: quotaFields } = Prisma;

/**
 * Returns the columns of a request and its quota.
 * @param alias the request table's alias. The quota table's alias is `q`
 */
function withQuotaColumns(alias: 'r' | 'c'): Sql {
  return sql`${columnsOf(requestFields, alias)}, ${columnsOf(quotaFields, 'q', 'quota.')}`;
}

const requestColumns = withQuotaColumns('r');

const takeRequest = rowTaker<Request>(requestFields, '');
const takeQuota = rowTaker<Quota>(quotaFields, 'quota.');

function toRequest(row: object): RequestWithQuota {
  return { ...takeRequest(row), quota: takeQuota(row) };
}

/** Returns a request by its id, even if the request has ended. @throws NotFoundError */
export async function getRequest(ctx: Context, id: number): Promise<RequestWithQuota> {
  allow(ctx, 'getRequest');
  const [row] = await ctx.db.rows<object>(
    prepared(sql`SELECT ${requestColumns} FROM request r JOIN quota q ON q.id = r.quota_id
      WHERE r.id = ${id}::int AND ${isVisibleQuota(ctx)}`),
  );
  if (!row) throw noRequest(id);
  return toRequest(row);
}

/** Returns the requests with the given ids. Omits requests that the caller is not allowed to see. */
export async function readRequestsById(ctx: Context, ids: readonly number[]): Promise<Map<number, RequestWithQuota>> {
  const rows = await ctx.db.rows<object>(
    sql`SELECT ${requestColumns} FROM request r JOIN quota q ON q.id = r.quota_id
        WHERE r.id = ANY(${ids}::int[]) AND ${isVisibleQuota(ctx)}`,
  );
  return new Map(rows.map((row) => [toRequest(row).id, toRequest(row)]));
}

/**
 * Parses a request id.
 * @throws NotFoundError if the text is not an id
 */
export function parseRequestId(text: string): number {
  const id = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
  if (!(id <= 0x7fffffff)) throw noRequest(quote(text));
  return id;
}

interface ListRequestsInput {
  quota?: string | null | undefined;
  /**
   * States of the requests to list. Default: the states of live requests. Requests past their retention are listed only
   * if `states` contains an ended state.
   */
  states?: readonly RequestState[] | null | undefined;
  /** A substring of the label, of the pattern, or of the path of a file in the request. */
  match?: string | null | undefined;
  /** Period in which the requests were created, from `since` (inclusive) to `until` (exclusive). */
  since?: string | null | undefined;
  until?: string | null | undefined;
  orderBy?: RequestOrder | null | undefined;
}

export interface RequestOrder {
  field: keyof typeof orderColumns;
  direction: 'ASC' | 'DESC';
}

/** Position of a request in an ordered list. The id makes the position unique. */
export interface RequestKey {
  value: string;
  id: number;
}

const orderColumns = {
  requestDate: sql`r.request_date`,
  retention: sql`r.retention`,
  state: sql`r.state`,
  label: sql`r.label`,
  bytesTotal: sql`r.bytes_total`,
  filesTotal: sql`r.files_total`,
} as const;

const orderTypes = {
  requestDate: raw('timestamp'),
  retention: raw('timestamp'),
  state: raw('"RequestState"'),
  label: raw('text'),
  bytesTotal: raw('bigint'),
  filesTotal: raw('int'),
} as const;

export interface RequestRow
  extends Pick<Request, 'id' | 'requestDate' | 'retention' | 'label' | 'tapestoreRequestStart' | 'tapestoreRequestEnd'>,
    Pick<Request, 'firstFilesOnDisk' | 'lastFilesOnDisk'> {
  quota: string;
}

const restColumns = sql`r.id, q."user" AS quota, r.request_date AS "requestDate", r.retention, r.label,
  r.tapestore_request_start AS "tapestoreRequestStart", r.tapestore_request_end AS "tapestoreRequestEnd",
  r.first_files_on_disk AS "firstFilesOnDisk", r.last_files_on_disk AS "lastFilesOnDisk"`;

const LIVE_STATES: readonly RequestState[] = ['QUEUED', 'RESTORING', 'COMPLETED', 'PARTIAL'];
const ENDED_STATES = ['EXPIRED', 'CANCELLED'] as const satisfies readonly RequestState[];

/** Largest number of ended requests that is counted, because a site keeps all ended requests. */
export const MAX_COUNTED = 10_000;

export interface StateCount {
  state: RequestState;
  count: number;
}

/**
 * Returns functions to count requests, to count them by state, to read a page of them, and to stream all of them. The
 * stream reads all requests in one snapshot of the database, from the oldest request to the newest.
 */
export function listRequests(ctx: Context, input: ListRequestsInput, reader?: AbortSignal) {
  allow(ctx, 'listRequests');
  const rows = sql`request r JOIN quota q ON q.id = r.quota_id WHERE ${filterOf(ctx, input)}`;
  return {
    count: () => atListServer(ctx, (at) => countRows(at, { rows, reader })),
    countStates: async (): Promise<StateCount[]> => {
      const counts = await atListServer(ctx, (at) => askAtLength<StateCount>(at, countsByState(ctx, input), reader));
      const countOf = (state: RequestState) => counts.find((each) => each.state === state)?.count ?? 0;
      return [...LIVE_STATES, ...ENDED_STATES].map((state) => ({ state, count: countOf(state) }));
    },
    page: (page: KeyPage<number>) =>
      atListServer(ctx, (at) => readPage(at, { rows, reader, columns: requestColumns, key: sql`r.id` }, page)).then(
        (page) => page.map(toRequest),
      ),
    orderedPage: ({ field, direction }: RequestOrder, { after, before, ...page }: KeyPage<RequestKey>) => {
      const rowOf = (key: RequestKey | undefined) =>
        key && sql`ROW(${key.value}::${orderTypes[field]}, ${key.id}::int)`;
      const list = { rows, reader, columns: requestColumns, key: sql`ROW(${orderColumns[field]}, r.id)` };
      const keyPage = { ...page, after: rowOf(after), before: rowOf(before), descending: direction === 'DESC' };
      return atListServer(ctx, (at) => readPage(at, list, keyPage)).then((found) => found.map(toRequest));
    },
    stream: <T>(consume: (pages: ListPages<RequestRow>) => Promise<T>) => {
      const list = sql`SELECT ${restColumns} FROM ${rows} ORDER BY r.id`;
      return atListServer(ctx, (at, given) => readList<RequestRow, T>(at, list, (pages) => consume(given(pages))));
    },
  };
}

const ofQuota = {
  table: 'request',
  parent: 'quota_id',
  key: 'id',
  columns: withQuotaColumns('c'),
  join: sql`JOIN quota q ON q.id = p.id`,
} as const;

/** Returns a page of requests for each quota, including ended requests. */
export async function readRequestsOf(
  ctx: Context,
  quotaIds: readonly number[],
  page: PageWish,
): Promise<Map<number, PageItem<RequestWithQuota>[]>> {
  const pages = await readInnerPages<RequestWithQuota>(ctx, ofQuota, quotaIds, page);
  for (const item of [...pages.values()].flat()) if (item.row) item.row = toRequest(item.row);
  return pages;
}

/** Counts live requests exactly, and at most `MAX_COUNTED` requests in each ended state. */
function countsByState(ctx: Context, input: ListRequestsInput): Sql {
  const from = sql`FROM request r JOIN quota q ON q.id = r.quota_id`;
  const counts = ENDED_STATES.map((state) => {
    const found = sql`SELECT ${from} WHERE ${filterOf(ctx, { ...input, states: [state] })} LIMIT ${raw(String(MAX_COUNTED))}`;
    return sql`UNION ALL SELECT ${state}::"RequestState", (SELECT count(*)::int FROM (${found}) few)`;
  });
  return sql`SELECT r.state, count(*)::int AS count ${from}
    WHERE ${isLive} AND ${filterOf(ctx, { ...input, states: LIVE_STATES })} GROUP BY r.state
    ${join(counts, ' ')}`;
}

function filterOf(ctx: Context, input: ListRequestsInput): Sql {
  const states = input.states ?? LIVE_STATES;
  const conditions = [
    sql`r.state = ANY(${states}::"RequestState"[])`,
    sql`(NOT (${isLive}) OR r.retention > ${ctx.now()})`,
    isVisibleQuota(ctx),
  ];
  if (input.quota) conditions.push(sql`q."user" = ${checkText('quota', input.quota)}`);
  if (input.since) conditions.push(sql`r.request_date >= ${input.since}::timestamp`);
  if (input.until) conditions.push(sql`r.request_date < ${input.until}::timestamp`);
  if (input.match) conditions.push(containsText(ctx, checkText('match', input.match)));
  return allOf(conditions);
}

const containsText = (ctx: Context, text: string): Sql =>
  sql`(strpos(r.label, ${text}) > 0 OR strpos(r.pattern, ${text}) > 0 OR EXISTS (
        SELECT FROM request_file h JOIN tape_file f ON f.id = h.file_id
        WHERE h.request_id = r.id AND strpos(f.path, ${text}) > 0 AND ${mayPathOfRequest(ctx)}))`;

/**
 * Streams the paths of a request's files and its unresolved paths, in the order in which the paths were added. For an
 * ended request, streams the paths that the request contained when it ended. Released files are omitted.
 */
export async function streamRequestPaths<T>(
  ctx: Context,
  requestId: number,
  consume: (pages: ListPages<{ path: string }>) => Promise<T>,
): Promise<T> {
  const list = sql`SELECT path FROM (
      SELECT f.path, h.ordinal FROM request_file h JOIN tape_file f ON f.id = h.file_id
      WHERE h.request_id = ${requestId} AND h.state <> 'RELEASED' AND ${mayPathOfRequest(ctx)}
      UNION ALL SELECT f.path, f.ordinal FROM unresolved_path f WHERE f.request_id = ${requestId} AND ${mayPathOfRequest(ctx)}
    ) p ORDER BY ordinal`;
  return await readList<{ path: string }, T>(ctx, list, consume);
}

interface RequestWithPaths extends RequestRow, Pick<Request, 'pattern' | 'notifyOnFirstFile' | 'notifyOnLastFile'> {
  /**
   * The request's paths as comma-separated JSON strings, in the order in which they were added. Null if the paths do
   * not fit into one page.
   */
  paths: string | null;
}

/** Returns a request with its paths, even if the request has ended. @throws NotFoundError */
export async function getRequestWithPaths(ctx: Context, id: number): Promise<RequestWithPaths> {
  allow(ctx, 'getRequest');
  const [request] = await ctx.db.rows<RequestWithPaths>(prepared(byId(ctx, id)));
  if (!request) throw noRequest(id);
  return request;
}

const MOST = raw(String(PAGE));
const ONE_MORE = raw(String(PAGE + 1));

const byId = (ctx: Context, id: number) => sql`
  SELECT ${restColumns}, r.pattern, r.notify_on_first_file AS "notifyOnFirstFile",
    r.notify_on_last_file AS "notifyOnLastFile", p.paths
  FROM request r JOIN quota q ON q.id = r.quota_id
    LEFT JOIN LATERAL (
      SELECT CASE WHEN count(*) <= ${MOST}
        THEN coalesce(string_agg(to_json(l.path)::text, ',' ORDER BY l.ordinal) FILTER (WHERE l.is_seen), '') END AS paths
      FROM (
        SELECT f.path, h.ordinal, h.state <> 'RELEASED' AND ${mayPathOfRequest(ctx)} AS is_seen
        FROM (SELECT file_id, ordinal, state FROM request_file WHERE request_id = r.id LIMIT ${ONE_MORE}) h
          JOIN tape_file f ON f.id = h.file_id
        UNION ALL
        SELECT f.path, f.ordinal, ${mayPathOfRequest(ctx)}
        FROM (SELECT path, ordinal FROM unresolved_path WHERE request_id = r.id LIMIT ${ONE_MORE}) f
      ) l
    ) p ON r.files_total <= ${MOST}
  WHERE r.id = ${id}::int AND ${isVisibleQuota(ctx)}`;

const list = { parent: 'request_id', key: 'ordinal' } as const;

const { RequestFileScalarFieldEnum: requestFileFields, TapeFileScalarFieldEnum: fileFields } = Prisma;

const withFields = (fields: object) => ({
  columns: sql`${columnsOf(requestFileFields, 'c')}, ${columnsOf(fields, 'f', 'file.')}`,
  takeFile: rowTaker<TapeFile>(fields, 'file.'),
});
const withCommonFields = withFields(commonFileFields);
export const withAllFields = withFields(fileFields);

export interface RequestFileWithFile extends RequestFile {
  file: TapeFile;
}

/**
 * Returns a page of files for each request.
 * @param how.isCommon whether to read only those fields of the files that `commonFileFields` lists
 */
export async function readRequestFiles(
  ctx: Context,
  requestIds: readonly number[],
  page: PageWish,
  { isCommon = false } = {},
): Promise<Map<number, PageItem<RequestFileWithFile>[]>> {
  const { columns, takeFile } = isCommon ? withCommonFields : withAllFields;
  const join = sql`LEFT JOIN LATERAL (
    SELECT f.* FROM tape_file f WHERE f.id = c.file_id AND ${mayPathOfRequest(ctx)} OFFSET 0
  ) f ON true`;
  // a match must not reveal the paths of hidden files
  const isMatch = sql`EXISTS (SELECT FROM tape_file f
    WHERE f.id = c.file_id AND strpos(f.path, ${page.match ?? ''}) > 0 AND ${mayPathOfRequest(ctx)})`;
  const where = page.match === undefined ? sql`true` : isMatch;
  const isLong = page.match !== undefined;
  const isSeen = sql`f.id IS NOT NULL`;
  const files = { ...list, table: 'request_file', columns, where, join, isSeen, isLong } as const;
  const pages = await readInnerPages<RequestFileWithFile>(ctx, files, requestIds, page);
  for (const { row } of [...pages.values()].flat()) if (row) row.file = takeFile(row);
  return pages;
}

const unresolvedColumns = columnsOf(Prisma.UnresolvedPathScalarFieldEnum, 'c');

/** Returns a page of unresolved paths for each request. */
export async function readUnresolved(
  ctx: Context,
  requestIds: readonly number[],
  page: PageWish,
): Promise<Map<number, PageItem<UnresolvedPath>[]>> {
  const isSeen = sql`EXISTS (SELECT FROM (SELECT c.path) f WHERE ${mayPathOfRequest(ctx)})`;
  const unresolved = { ...list, table: 'unresolved_path', columns: unresolvedColumns, isSeen } as const;
  return await readInnerPages<UnresolvedPath>(ctx, unresolved, requestIds, page);
}

interface UnresolvedCounts {
  unknown: number;
  /** Number of paths excluded because their files do not fit into the quota. */
  refused: number;
  /** Number of paths excluded because their files exceed one of the request's own limits. */
  overLimit: number;
}

/** Returns the number of unresolved paths for each request id. Omits requests without unresolved paths. */
export async function countUnresolved(
  ctx: Context,
  requestIds: readonly number[],
): Promise<Map<number, UnresolvedCounts>> {
  const rows = await ctx.db.rows<UnresolvedCounts & { id: number }>(
    sql`SELECT request_id AS id, count(*) FILTER (WHERE reason = 'UNKNOWN')::int AS unknown,
       count(*) FILTER (WHERE reason = 'QUOTA_FULL')::int AS refused,
       count(*) FILTER (WHERE reason = 'LIMIT')::int AS "overLimit"
     FROM unresolved_path WHERE request_id = ANY(${requestIds}::int[]) GROUP BY request_id`,
  );
  return new Map(rows.map(({ id, ...counts }) => [id, counts]));
}

/** Returns the number of released files for each request id. Omits requests without released files. */
export async function countReleased(ctx: Context, requestIds: readonly number[]): Promise<Map<number, number>> {
  const rows = await ctx.db.rows<{ id: number; released: number }>(
    sql`SELECT request_id AS id, count(*)::int AS released FROM request_file
     WHERE request_id = ANY(${requestIds}::int[]) AND state = 'RELEASED' GROUP BY request_id`,
  );
  return new Map(rows.map(({ id, released }) => [id, released]));
}

/** Returns, for each request id, the number of files on disk at their primary paths, from which they were archived. */
export async function countAtPrimaryPath(ctx: Context, requestIds: readonly number[]): Promise<Map<number, number>> {
  const rows = await ctx.db.rows<{ id: number; files: number }>(
    sql`SELECT h.request_id AS id, count(*)::int AS files FROM request_file h JOIN tape_file f ON f.id = h.file_id
        WHERE h.request_id = ANY(${requestIds}::int[]) AND h.state = 'ON_DISK' AND ${isAtPrimaryPath} GROUP BY h.request_id`,
  );
  return new Map(rows.map(({ id, files }) => [id, files]));
}

/**
 * Returns the mount points of the restore disks that contain files of a request, by request id. Omits requests without
 * restored files, and requests with a file that is not at its logical path.
 */
export async function readMountpoints(ctx: Context, requestIds: readonly number[]): Promise<Map<number, string[]>> {
  const rows = await ctx.db.rows<{ id: number; mountpoints: string[] }>(
    sql`SELECT h.request_id AS id, array_agg(DISTINCT k.mountpoint ORDER BY k.mountpoint) AS mountpoints
        FROM request_file h JOIN tape_file f ON f.id = h.file_id
          JOIN restore_disk k ON k.id = ${diskOfCopy}
        WHERE h.request_id = ANY(${requestIds}::int[]) AND h.state = 'ON_DISK' AND ${mayPath(ctx, 'FETCH')}
        GROUP BY h.request_id HAVING bool_and(f.disk_path IS NULL)`,
  );
  return new Map(rows.map(({ id, mountpoints }) => [id, mountpoints]));
}

/** Returns the number of requests for each quota id, including ended requests. */
/** Returns a page of the live requests that contain a file, for each file. */
export async function readRequestsWithFiles(
  ctx: Context,
  fileIds: readonly bigint[],
  page: PageWish,
): Promise<Map<bigint, PageItem<RequestWithQuota>[]>> {
  allow(ctx, 'listRequests');
  const pages = await readInnerPages<RequestWithQuota, bigint>(ctx, ofFile(ctx), fileIds, page);
  for (const item of [...pages.values()].flat()) if (item.row) item.row = toRequest(item.row);
  return pages;
}

const ofFile = (ctx: Context) =>
  ({
    table: 'request_file',
    parent: 'file_id',
    key: 'request_id',
    columns: requestColumns,
    // the page must not contain keys of hidden requests, because its cursors would reveal and count these requests
    where: sql`NOT c.is_ended AND c.state <> 'RELEASED' AND EXISTS (
      SELECT FROM request r JOIN quota q ON q.id = r.quota_id
      WHERE r.id = c.request_id AND ${isLive} AND ${isVisibleQuota(ctx)})`,
    join: sql`JOIN request r ON r.id = c.request_id JOIN quota q ON q.id = r.quota_id`,
  }) as const;

export const countRequestsWithFiles = (ctx: Context, fileIds: readonly bigint[]): Promise<Map<bigint, number>> =>
  countInnerRows(
    ctx,
    {
      rows: sql`request_file h JOIN request r ON r.id = h.request_id JOIN quota q ON q.id = r.quota_id
        WHERE NOT h.is_ended AND h.state <> 'RELEASED' AND ${isLive} AND ${isVisibleQuota(ctx)}`,
      parent: sql`h.file_id`,
    },
    fileIds,
  );

/** Returns the number of files of each request, by request id. */
export const countFilesOf = (
  ctx: Context,
  requestIds: readonly number[],
  { states, match }: Pick<PageWish, 'states' | 'match'>,
): Promise<Map<number, number>> => {
  const conditions = [mayPathOfRequest(ctx)];
  if (states !== undefined) conditions.push(sql`h.state::text = ANY(${states}::text[])`);
  if (match !== undefined) conditions.push(sql`strpos(f.path, ${match}) > 0`);
  const rows = sql`request_file h JOIN tape_file f ON f.id = h.file_id WHERE ${allOf(conditions)}`;
  return countInnerRows(ctx, { rows, parent: sql`h.request_id` }, requestIds);
};

/** Returns the number of unresolved paths of each request, by request id. */
export const countUnresolvedPaths = (ctx: Context, requestIds: readonly number[]): Promise<Map<number, number>> =>
  countInnerRows(
    ctx,
    { rows: sql`unresolved_path f WHERE ${mayPathOfRequest(ctx)}`, parent: sql`f.request_id` },
    requestIds,
  );

export async function countRequestsOf(ctx: Context, quotaIds: readonly number[]): Promise<Map<number, number>> {
  const rows = await ctx.db.rows<{ id: number; count: number }>(
    sql`SELECT quota_id AS id, count(*)::int FROM request WHERE quota_id = ANY(${quotaIds}::int[]) GROUP BY quota_id`,
  );
  return new Map(rows.map(({ id, count }) => [id, count]));
}
