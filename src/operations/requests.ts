/** Requests: made, changed, ended, read. Files join and leave them in holds.ts and joins.ts. */
import type { Context } from '../context.js';
import { withSnapshot } from '../database/snapshot.js';
import { lockCatalogue, type Transaction, transaction } from '../database/transaction.js';
import { InvalidInputError, NotFoundError, quote, WrongQuotaError } from '../errors.js';
import { recordProgress } from '../events.js';
import type { Prisma } from '../generated/prisma/client.js';
import type { RequestState } from '../generated/prisma/enums.js';
import { addSeconds, isBefore } from '../time.js';
import { charge, findQuota, type QuotaRow, release } from './charges.js';
import { checkAddress, checkPath, checkPattern, checkText, checkTime } from './checks.js';
import { advanceRequests, settleRequests } from './holds.js';
import { holdListed, holdMatching, joinFiles, type Wish } from './joins.js';
import { IS_LIVE } from './live.js';

/** The REST contract, 4.3: five days after the request is made. */
const DEFAULT_RETENTION_SECONDS = 5 * 24 * 3600;

export interface CreateRequestInput {
  /** User whose quota is charged. */
  quota: string;
  /** A plain, case-sensitive substring of logical paths. Exactly one of pattern and files is given. */
  pattern?: string | null | undefined;
  files?: readonly string[] | null | undefined;
  retention?: string | null | undefined;
  label?: string | null | undefined;
  /** An empty address means the quota's own. */
  notifyOnFirstFile?: string | null | undefined;
  notifyOnLastFile?: string | null | undefined;
}

/**
 * Makes a request and charges it for the files that the catalogue knows; the rest joins when it appears.
 * @returns the id of the request
 * @throws InvalidInputError, UnknownUserError, QuotaExceededError; nothing is stored then
 */
export async function createRequest(ctx: Context, input: CreateRequestInput): Promise<number> {
  const now = ctx.now();
  const wish = checkWish(input);
  const label = input.label ? checkText('label', input.label) : defaultLabel(wish);
  const retention = input.retention
    ? checkTime('retention', input.retention)
    : addSeconds(now, DEFAULT_RETENTION_SECONDS);
  if (!isBefore(now, retention)) {
    throw new InvalidInputError('retention', `must be in the future: ${retention} is not after ${now}`);
  }
  const user = checkText('quota', input.quota);
  const addresses = {
    first: checkNotification('notifyOnFirstFile', input.notifyOnFirstFile),
    last: checkNotification('notifyOnLastFile', input.notifyOnLastFile),
  };
  return await transaction(ctx.db.pool, async (tx) => {
    const quota = await findQuota(tx, user);
    await endOverdue(ctx, tx, quota);
    await lockCatalogue(tx, 'shared');
    const [row] = await tx.query<{ id: number }>(
      `INSERT INTO request (quota_id, pattern, label, request_date, retention, notify_on_first_file, notify_on_last_file)
       VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id`,
      [
        quota.id,
        wish.pattern,
        label,
        now,
        retention,
        addressOf(quota, addresses.first),
        addressOf(quota, addresses.last),
      ],
    );
    const id = (row as { id: number }).id;
    const bytes = wish.files ? await holdListed(tx, id, wish.files) : await holdMatching(tx, id, wish.pattern, quota);
    await charge(tx, quota, bytes);
    await settleRequests(ctx, tx, [id]);
    return id;
  });
}

function checkWish(input: CreateRequestInput): Wish {
  const pattern = checkPattern('pattern', input.pattern ?? '');
  const files = [...new Set(input.files ?? [])];
  if (pattern !== '' && files.length > 0)
    throw new InvalidInputError('pattern', 'and files exclude each other: give one of them');
  if (pattern === '' && files.length === 0)
    throw new InvalidInputError('pattern', 'or files must be given, and neither is');
  for (const file of files) checkPath('files', file);
  return files.length > 0 ? { pattern: '', files } : { pattern, files: undefined };
}

/** The REST contract, 2.2. */
function defaultLabel(wish: Wish): string {
  return wish.files?.[0] ?? wish.pattern;
}

/** undefined: not given; null: nobody; '': the quota's own address. */
function checkNotification(field: string, address: string | null | undefined): string | null | undefined {
  return address ? checkAddress(field, address) : address;
}

function addressOf(quota: QuotaRow, address: string | null | undefined): string | null {
  return address === '' ? quota.email || null : (address ?? null);
}

export interface UpdateRequestInput {
  id: number;
  /** When given, it must be the request's own. */
  quota?: string | null | undefined;
  retention?: string | null | undefined;
  label?: string | null | undefined;
  /** Null removes the address, an empty one means the quota's own. */
  notifyOnFirstFile?: string | null | undefined;
  notifyOnLastFile?: string | null | undefined;
}

interface LockedRequest {
  id: number;
  pattern: string;
  label: string;
  retention: string;
  first: string | null;
  last: string | null;
  state: RequestState;
  quotaId: number;
  user: string;
}

/**
 * Changes what it is given and nothing else. A retention in the past ends the request; a later one revives it, charged
 * again for the files that it takes now.
 * @throws NotFoundError, UnknownUserError, WrongQuotaError, InvalidInputError, QuotaExceededError
 */
export async function updateRequest(ctx: Context, input: UpdateRequestInput): Promise<number> {
  const now = ctx.now();
  const retention = input.retention ? checkTime('retention', input.retention) : undefined;
  const label = input.label ? checkText('label', input.label) : undefined;
  const first = checkNotification('notifyOnFirstFile', input.notifyOnFirstFile);
  const last = checkNotification('notifyOnLastFile', input.notifyOnLastFile);
  const user = input.quota === undefined || input.quota === null ? undefined : checkText('quota', input.quota);
  await transaction(ctx.db.pool, async (tx) => {
    const request = await lockRequest(tx, input.id);
    const quota = await findQuota(tx, user ?? request.user);
    if (quota.id !== request.quotaId) throw new WrongQuotaError(request.id, request.user, quota.user);
    const changed = {
      label: label ?? request.label,
      retention: retention ?? request.retention,
      first: first === undefined ? request.first : addressOf(quota, first),
      last: last === undefined ? request.last : addressOf(quota, last),
    };
    await tx.query(
      `UPDATE request SET label = $2, retention = $3, notify_on_first_file = $4, notify_on_last_file = $5 WHERE id = $1`,
      [request.id, changed.label, changed.retention, changed.first, changed.last],
    );
    await endOverdue(ctx, tx, quota);
    const isOver = !isBefore(now, changed.retention);
    const hadEnded = isEnded(request.state) || !isBefore(now, request.retention);
    if (isOver) return;
    if (hadEnded) await reviveRequest(ctx, tx, request, quota);
    else await advanceRequests(ctx, tx, [request.id]); // a new address may be due its mail
  });
  return input.id;
}

function isEnded(state: RequestState): boolean {
  return state === 'EXPIRED' || state === 'CANCELLED';
}

async function lockRequest(tx: Transaction, id: number): Promise<LockedRequest> {
  const [row] = await tx.query<LockedRequest>(
    `SELECT r.id, r.pattern, r.label, r.retention, r.notify_on_first_file AS first, r.notify_on_last_file AS last,
       r.state, q.id AS "quotaId", q."user"
     FROM request r JOIN quota q ON q.id = r.quota_id WHERE r.id = $1 FOR NO KEY UPDATE OF r`,
    [id],
  );
  if (!row) throw notFound(id);
  return row;
}

function notFound(id: number | string): NotFoundError {
  return new NotFoundError(`there is no request with id ${id}`);
}

async function reviveRequest(ctx: Context, tx: Transaction, request: LockedRequest, quota: QuotaRow): Promise<void> {
  await lockCatalogue(tx, 'shared');
  // the row may still count as live when nobody has noticed that its retention had passed
  await endRequests(ctx, tx, `r.id = ${request.id}`, 'EXPIRED');
  await tx.query(
    `UPDATE request SET state = 'QUEUED', tapestore_request_start = NULL, tapestore_request_end = NULL,
       first_files_on_disk = NULL, last_files_on_disk = NULL WHERE id = $1`,
    [request.id],
  );
  await tx.query(
    `UPDATE hold h SET state = 'WAITING', error_class = NULL, error = NULL, size = f.size
     FROM tape_file f WHERE h.request_id = $1 AND f.id = h.file_id`,
    [request.id],
  );
  if (request.pattern !== '') await holdMatching(tx, request.id, request.pattern, quota);
  else await holdListed(tx, request.id, await readAwaited(tx, request.id));
  const [sum] = await tx.query<{ bytes: string }>(
    'SELECT coalesce(sum(size), 0) AS bytes FROM hold WHERE request_id = $1',
    [request.id],
  );
  await charge(tx, quota, BigInt(sum?.bytes ?? 0));
  await settleRequests(ctx, tx, [request.id]);
}

async function readAwaited(tx: Transaction, requestId: number): Promise<string[]> {
  const rows = await tx.query<{ path: string }>('DELETE FROM awaited_path WHERE request_id = $1 RETURNING path', [
    requestId,
  ]);
  return rows.map((row) => row.path);
}

/**
 * Ends a request now: its holds are let go and its charge is given back. Cancelling one that has ended changes nothing.
 * @throws NotFoundError
 */
export async function cancelRequest(ctx: Context, id: number): Promise<number> {
  await transaction(ctx.db.pool, async (tx) => {
    await lockRequest(tx, id);
    await endRequests(ctx, tx, `r.id = ${id}`, 'CANCELLED');
  });
  return id;
}

/**
 * Ends the requests that are past their retention.
 * @returns how many
 */
export async function expireRequests(ctx: Context): Promise<number> {
  return await transaction(ctx.db.pool, async (tx) => {
    return await endRequests(ctx, tx, 'r.retention <= $2', 'EXPIRED');
  });
}

/**
 * Lets files join that were refused for a full quota, now that there may be room again.
 */
export async function joinAwaited(ctx: Context): Promise<void> {
  const { rowCount } = await ctx.db.pool.query(
    'SELECT FROM awaited_path w JOIN tape_file f ON f.path = w.path LIMIT 1',
  );
  if (rowCount === 0) return;
  await transaction(ctx.db.pool, async (tx) => {
    await lockCatalogue(tx, 'shared');
    await joinFiles(ctx, tx, 'SELECT f.id FROM awaited_path w JOIN tape_file f ON f.path = w.path', { isNew: false });
  });
}

/** A request that nobody has noticed to be over must not count against its quota. */
async function endOverdue(ctx: Context, tx: Transaction, quota: QuotaRow): Promise<void> {
  await endRequests(ctx, tx, `r.quota_id = ${quota.id} AND r.retention <= $2`, 'EXPIRED');
}

/** `condition` may use `r` and, as `$2`, the present time. */
async function endRequests(
  ctx: Context,
  tx: Transaction,
  condition: string,
  state: 'EXPIRED' | 'CANCELLED',
): Promise<number> {
  const now = ctx.now();
  const ended = await tx.query<{ id: number; quotaId: number; bytes: bigint }>(
    `WITH ended AS (
       SELECT r.id FROM request r WHERE ${IS_LIVE} AND (${condition}) AND $2::timestamp IS NOT NULL
       ORDER BY r.id FOR NO KEY UPDATE
     )
     UPDATE request r SET state = $1, is_released = false, retention = least(r.retention, $2::timestamp)
     FROM ended WHERE r.id = ended.id RETURNING r.id, r.quota_id AS "quotaId", r.bytes_total AS bytes`,
    [state, now],
  );
  if (ended.length === 0) return 0;
  await release(tx, ended);
  await dropRecalls(
    tx,
    ended.map((request) => request.id),
  );
  recordProgress(
    tx,
    ended.map((request) => request.id),
  );
  return ended.length;
}

/** Drops the waiting recalls that nobody waits for any more; a running one runs out, and its file leaves the disk again. */
async function dropRecalls(tx: Transaction, requestIds: readonly number[]): Promise<void> {
  // locked first and judged in a second statement, which sees the holds of whoever had them locked before
  await tx.query(
    `SELECT count(*) FROM (
       SELECT FROM recall c WHERE c.state = 'WAITING'
         AND c.file_id IN (SELECT file_id FROM hold WHERE request_id = ANY($1::int[]))
       ORDER BY c.file_id FOR UPDATE
     ) locked`,
    [requestIds],
  );
  await tx.query(
    `DELETE FROM recall c WHERE c.state = 'WAITING'
       AND c.file_id IN (SELECT file_id FROM hold WHERE request_id = ANY($1::int[]))
       AND NOT EXISTS (SELECT FROM hold h JOIN request r ON r.id = h.request_id WHERE h.file_id = c.file_id AND ${IS_LIVE})`,
    [requestIds],
  );
}

type RequestQuery = Pick<Prisma.RequestFindManyArgs, 'include' | 'select'>;

/** A request by its id, past its retention too: history is kept. @throws NotFoundError */
export async function getRequest(ctx: Context, id: number, query: RequestQuery = {}) {
  const request = await ctx.db.prisma.request.findUnique({ ...(query as object), where: { id } });
  if (!request) throw notFound(id);
  return request;
}

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
export function listRequests(ctx: Context, input: ListRequestsInput) {
  const states = input.states ?? LIVE_STATES;
  const user = input.quota ? checkText('quota', input.quota) : undefined;
  const now = ctx.now();
  const where: Prisma.RequestWhereInput = {
    OR: [
      { state: { in: states.filter((state) => !isEnded(state)) }, retention: { gt: now } },
      { state: { in: states.filter(isEnded) } },
    ],
    ...(user === undefined ? {} : { quota: { user } }),
  };
  return {
    count: () => ctx.db.prisma.request.count({ where }),
    page: (query: RequestQuery) =>
      ctx.db.prisma.request.findMany({ ...(query as object), where, orderBy: { id: 'asc' } }),
    stream: <T>(consume: (pages: AsyncIterable<RequestRow[]>) => Promise<T>) =>
      withSnapshot(ctx.db.streamPool, (snapshot) =>
        consume(
          snapshot.stream<RequestRow>(
            `SELECT r.id, q."user" AS quota, r.request_date AS "requestDate", r.retention, r.label,
               r.tapestore_request_start AS "tapestoreRequestStart", r.tapestore_request_end AS "tapestoreRequestEnd",
               r.first_files_on_disk AS "firstFilesOnDisk", r.last_files_on_disk AS "lastFilesOnDisk"
             FROM request r JOIN quota q ON q.id = r.quota_id
             WHERE r.state = ANY($1::"RequestState"[]) AND (NOT (${IS_LIVE}) OR r.retention > $2)
               AND ($3::text IS NULL OR q."user" = $3)
             ORDER BY r.id`,
            [states, now, user ?? null],
          ),
        ),
      ),
  };
}

/** @throws NotFoundError for a text that is no id */
export function parseRequestId(text: string): number {
  const id = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
  if (!(id <= 0x7fffffff)) throw notFound(quote(text));
  return id;
}

/** Paths of a request, in the order in which it took them: files that it holds, and paths that it waits for. */
export async function streamRequestPaths<T>(
  ctx: Context,
  requestId: number,
  consume: (pages: AsyncIterable<{ path: string }[]>) => Promise<T>,
): Promise<T> {
  return await withSnapshot(ctx.db.streamPool, (snapshot) =>
    consume(
      snapshot.stream<{ path: string }>(
        `SELECT path FROM (
           SELECT f.path, h.ordinal FROM hold h JOIN tape_file f ON f.id = h.file_id WHERE h.request_id = $1
           UNION ALL SELECT path, ordinal FROM awaited_path WHERE request_id = $1
         ) p ORDER BY ordinal`,
        [requestId],
      ),
    ),
  );
}
