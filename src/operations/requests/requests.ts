/** Requests: made and changed. How they end is in ends.ts, how they are read in lists.ts. */
import type { Context } from '../../context.js';
import { lockCatalogue, type Transaction, transaction } from '../../database/transaction.js';
import { InvalidInputError, WrongQuotaError } from '../../errors.js';
import { addSeconds, isBefore } from '../../time.js';
import { checkAddress, checkPath, checkPattern, checkText, checkTime } from '../input.js';
import { charge, findQuota, type QuotaRow } from '../quotas/charges.js';
import { endOverdue, endRequests } from './ends.js';
import { advanceRequests, settleRequests } from './holds.js';
import { holdListed, holdMatching, joinAwaitedOf, joinRequest, type Wish } from './joins.js';
import { checkWithin, type LimitsInput, readLimits } from './limits.js';
import { isEnded, type LockedRequest, lockRequest } from './rows.js';

/** The REST contract, 4.3: five days after the request is made. */
const DEFAULT_RETENTION_SECONDS = 5 * 24 * 3600;

export interface CreateRequestInput extends LimitsInput {
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
 * Makes a request and charges it for the files that the catalogue knows; the rest joins when it appears, as far as the
 * request's limits and its quota allow then.
 * @returns the id of the request
 * @throws InvalidInputError, UnknownUserError, QuotaExceededError; nothing is stored then
 */
export async function createRequest(ctx: Context, input: CreateRequestInput): Promise<number> {
  const now = ctx.now();
  const { wish, label, retention, limits, user, addresses } = checkRequest(input, now);
  return await transaction(ctx.db.pool, async (tx) => {
    const quota = await findQuota(tx, user);
    await endOverdue(ctx, tx, quota);
    await lockCatalogue(tx, 'shared');
    const [row] = await tx.query<{ id: number }>(
      `INSERT INTO request (quota_id, pattern, label, request_date, retention, notify_on_first_file, notify_on_last_file,
         max_files, max_bytes)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING id`,
      [
        quota.id,
        wish.pattern,
        label,
        now,
        retention,
        addressOf(quota, addresses.first),
        addressOf(quota, addresses.last),
        limits.maxFiles,
        limits.maxBytes,
      ],
    );
    const id = (row as { id: number }).id;
    const bytes = wish.files
      ? await holdListed(tx, { id, limits }, wish.files)
      : await holdMatching(tx, { id, limits, pattern: wish.pattern, quota });
    await charge(tx, quota, bytes);
    await settleRequests(ctx, tx, [id]);
    return id;
  });
}

/** All of a new request that can be checked without looking at anything else. @throws InvalidInputError */
export function checkRequest(input: CreateRequestInput, now: string) {
  const wish = checkWish(input);
  const label = input.label ? checkText('label', input.label) : defaultLabel(wish);
  const retention = input.retention
    ? checkTime('retention', input.retention)
    : addSeconds(now, DEFAULT_RETENTION_SECONDS);
  if (!isBefore(now, retention)) {
    throw new InvalidInputError('retention', `must be in the future: ${retention} is not after ${now}`);
  }
  const limits = readLimits(input, { maxFiles: null, maxBytes: null });
  const user = checkText('quota', input.quota);
  const addresses = {
    first: checkNotification('notifyOnFirstFile', input.notifyOnFirstFile),
    last: checkNotification('notifyOnLastFile', input.notifyOnLastFile),
  };
  return { wish, label, retention, limits, user, addresses };
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

/** A limit of null is taken away. */
export interface UpdateRequestInput extends LimitsInput {
  id: number;
  /** When given, it must be the request's own. */
  quota?: string | null | undefined;
  retention?: string | null | undefined;
  label?: string | null | undefined;
  /** Null removes the address, an empty one means the quota's own. */
  notifyOnFirstFile?: string | null | undefined;
  notifyOnLastFile?: string | null | undefined;
}

/**
 * Changes what it is given and nothing else. A retention in the past ends the request; a later one revives it, charged
 * again for the files that it takes now. A greater limit lets files join at once that stayed out for it; one below what
 * a live request holds takes nothing from it.
 * @throws NotFoundError, UnknownUserError, WrongQuotaError, InvalidInputError, QuotaExceededError
 */
export async function updateRequest(ctx: Context, input: UpdateRequestInput): Promise<number> {
  const now = ctx.now();
  const retention = input.retention ? checkTime('retention', input.retention) : undefined;
  const label = input.label ? checkText('label', input.label) : undefined;
  const first = checkNotification('notifyOnFirstFile', input.notifyOnFirstFile);
  const last = checkNotification('notifyOnLastFile', input.notifyOnLastFile);
  const user = input.quota === undefined || input.quota === null ? undefined : checkText('quota', input.quota);
  const hasLimits = input.maxFiles !== undefined || input.maxBytes !== undefined;
  await transaction(ctx.db.pool, async (tx) => {
    if (hasLimits) await lockCatalogue(tx, 'shared');
    const request = await lockRequest(tx, input.id);
    const quota = await findQuota(tx, user ?? request.user);
    if (quota.id !== request.quotaId) throw new WrongQuotaError(request.id, request.user, quota.user);
    const changed = {
      label: label ?? request.label,
      retention: retention ?? request.retention,
      first: first === undefined ? request.first : addressOf(quota, first),
      last: last === undefined ? request.last : addressOf(quota, last),
      ...readLimits(input, request),
    };
    await tx.query(
      `UPDATE request SET label = $2, retention = $3, notify_on_first_file = $4, notify_on_last_file = $5,
         max_files = $6, max_bytes = $7 WHERE id = $1`,
      [request.id, changed.label, changed.retention, changed.first, changed.last, changed.maxFiles, changed.maxBytes],
    );
    await endOverdue(ctx, tx, quota);
    const isOver = !isBefore(now, changed.retention);
    const hadEnded = isEnded(request.state) || !isBefore(now, request.retention);
    if (isOver) return;
    if (hadEnded) return await reviveRequest(ctx, tx, { ...request, ...changed }, quota);
    if (hasLimits) await joinAwaitedOf(ctx, tx, request.id);
    await advanceRequests(ctx, tx, [request.id]); // a new address may be due its mail
  });
  return input.id;
}

/**
 * The request is charged again for what it held, all of it or nothing; what it waited for, and what is new, joins as far
 * as it fits. What was released stays so.
 */
async function reviveRequest(ctx: Context, tx: Transaction, request: LockedRequest, quota: QuotaRow): Promise<void> {
  // the row may still count as live when nobody has noticed that its retention had passed
  await endRequests(ctx, tx, `r.id = ${request.id}`, 'EXPIRED');
  await tx.query(
    `UPDATE hold h SET state = 'WAITING', error_class = NULL, error = NULL, size = f.size
     FROM tape_file f WHERE h.request_id = $1 AND f.id = h.file_id AND h.state <> 'RELEASED'`,
    [request.id],
  );
  const [sum] = await tx.query<{ files: number; bytes: string }>(
    `SELECT count(*)::int AS files, coalesce(sum(size), 0) AS bytes FROM hold WHERE request_id = $1 AND state <> 'RELEASED'`,
    [request.id],
  );
  const held = { files: sum?.files ?? 0, bytes: BigInt(sum?.bytes ?? 0) };
  checkWithin(request, held);
  await charge(tx, quota, held.bytes);
  await tx.query(
    `UPDATE request SET state = 'QUEUED', tapestore_request_start = NULL, tapestore_request_end = NULL,
       first_files_on_disk = NULL, last_files_on_disk = NULL, last_arrival = NULL,
       files_total = $2, files_on_disk = 0, files_failed = 0, bytes_total = $3, bytes_on_disk = 0 WHERE id = $1`,
    [request.id, held.files, held.bytes],
  );
  await lockCatalogue(tx, 'shared');
  await joinRequest(ctx, tx, request);
  await settleRequests(ctx, tx, [request.id]);
}
