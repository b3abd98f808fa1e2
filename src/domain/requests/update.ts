/** Changes and revives requests, retries failed files, and sets priorities. */

import { InvalidInputError, noRequest } from '../../core/errors.js';
import { isBefore } from '../../core/time.js';
import { lockCatalogue, lockFiles, lockQuotas } from '../../db/locks.js';
import { empty, type Sql, sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import { rulesFor } from '../access/paths.js';
import { type AuditEntry, audited } from '../audit/audited.js';
import { isLive } from '../conditions.js';
import type { Context } from '../context.js';
import { checkPath, checkText, checkTime, withoutEmpty } from '../input.js';
import {
  addUnknownPaths,
  charge,
  chargeGranted,
  checkLimit,
  checkPatterns,
  countUnknownPaths,
  findQuotaOf,
  type QuotaRow,
  refund,
} from '../quotas/charges.js';
import { withSlot } from '../turn.js';
import { addressOf, checkNotification } from './create.js';
import { endOverdue, endRequests } from './ends.js';
import { joinRequest, joinUnresolvedOf, resetMissingPaths } from './joins.js';
import { checkWithin, type LimitsInput, readLimits } from './limits.js';
import { advanceRequests } from './progress.js';
import { settleRequests } from './request-files.js';
import { checkVisible, describeForeign, isEnded, type LockedRequest, lockOwnRequest } from './rows.js';

/** New values for a request. A null limit removes the current limit. */
interface UpdateRequestInput extends LimitsInput {
  id: number;
  /** Expected owner of the request's quota. If the quota belongs to another user, the update fails. */
  quota?: string | null | undefined;
  retention?: string | null | undefined;
  label?: string | null | undefined;
  /** Address for the first-file email. Null removes the address, and an empty string means the quota's address. */
  notifyOnFirstFile?: string | null | undefined;
  notifyOnLastFile?: string | null | undefined;
}

/**
 * Changes the request fields that the input contains. A retention date in the past ends the request. A retention date
 * in the future revives an ended request, and the files of the request are charged to the quota again. If a limit is
 * raised, excluded files that now fit join the request immediately. A lower limit never removes files from a live
 * request.
 * @param how.isGranted whether another system granted the request. A granted request is revived even if its quota is
 * full
 * @throws NotFoundError, UnknownUserError, WrongQuotaError, InvalidInputError, QuotaExceededError, LimitReachedError
 */
export async function updateRequest(
  ctx: Context,
  input: UpdateRequestInput,
  { isGranted = false }: { isGranted?: boolean } = {},
): Promise<number> {
  const { id, ...rest } = input;
  await audited(ctx, { operation: 'updateRequest', kind: 'REQUEST', object: id, given: rest }, async (auditEntry) => {
    const given = checkUpdate(input);
    await checkVisible(ctx, id);
    await endOverdue(ctx, sql`r.quota_id = (SELECT o.quota_id FROM request o WHERE o.id = ${id}) AND r.id <> ${id}`);
    // lock the catalogue, and thus wait for a running import, only if the update might add files to the request
    const joins = given.hasLimits || (given.retention !== undefined && (await isEndedOrOverdue(ctx, id)));
    // `tryUpdate` checks again whether the request has ended, because it might have ended in the meantime
    if (!joins && (await withSlot(ctx, 'rows', () => tryUpdate(ctx, input, { given, joins, auditEntry, isGranted }))))
      return;
    await withSlot(ctx, 'catalogue', () => tryUpdate(ctx, input, { given, joins: true, auditEntry, isGranted }));
  });
  return id;
}

async function isEndedOrOverdue(ctx: Context, id: number): Promise<boolean> {
  const { rowCount } = await ctx.db.pool.query(
    sql`SELECT FROM request r WHERE r.id = ${id} AND (NOT (${isLive}) OR r.retention <= ${ctx.now()})`,
  );
  return rowCount !== 0;
}

/**
 * Updates a request in one transaction.
 * @param how.joins whether files might be added to the request. If true, the transaction first locks the catalogue
 * @returns false, without any change, if the update needs the catalogue lock and `joins` is false
 */
async function tryUpdate(
  ctx: Context,
  input: UpdateRequestInput,
  how: { given: ReturnType<typeof checkUpdate>; joins: boolean; auditEntry: AuditEntry; isGranted: boolean },
): Promise<boolean> {
  const { given, joins, auditEntry, isGranted } = how;
  const now = ctx.now();
  return await transaction(ctx.db.pool, 'updateRequest', async (tx) => {
    if (joins) await lockCatalogue(tx, 'shared');
    const request = await lockOwnRequest(ctx, tx, 'updateRequest', input.id);
    // lock the quota, so that no other transaction removes the quota while this transaction changes the request
    if (given.retention !== undefined) await lockQuotas(tx, sql`q.id = ${request.quotaId}`, 'quotaKept');
    const quota = await findQuotaOf(ctx, tx, request, given.user);
    const changed = changesOf(ctx, { request, quota }, input, given);
    const isEnding = !isBefore(now, changed.retention);
    const wasEndedOrOverdue = isEnded(request.state) || !isBefore(now, request.retention);
    const isRevived = wasEndedOrOverdue && !isEnding && given.retention !== undefined;
    if (isRevived && !joins) return false;
    await tx.query(
      sql`UPDATE request SET label = ${changed.label}, retention = ${changed.retention},
            notify_on_first_file = ${changed.notifyOnFirstFile}, notify_on_last_file = ${changed.notifyOnLastFile},
            max_files = ${changed.maxFiles}, max_bytes = ${changed.maxBytes}${followRules(ctx, given, isRevived)} WHERE id = ${request.id}`,
    );
    if (isEnding) await endRequests(ctx, tx, sql`r.id = ${request.id}`, 'EXPIRED');
    else if (isRevived) await reviveRequest(ctx, tx, { ...request, ...changed }, { quota, isGranted });
    else if (!isEnded(request.state)) await followLimits(ctx, tx, request.id, given.hasLimits);
    const fields = Object.keys(changed) as (keyof typeof changed)[];
    if (isRevived || fields.some((field) => changed[field] !== request[field])) await tx.query(auditEntry());
    return true;
  });
}

/**
 * Returns the SQL assignments that set a request's path rules. If the caller revives the request or changes its limits,
 * the caller's path rules replace the request's rules. If the caller only changes the retention, the path rules of the
 * request's creator still apply. If the caller has no path rules, the request keeps its rules.
 */
function followRules(ctx: Context, given: ReturnType<typeof checkUpdate>, isRevived: boolean): Sql {
  const { ruledBy, ruledGroups } = rulesFor(ctx);
  if (ruledGroups === null || (given.retention === undefined && !given.hasLimits)) return empty;
  const reportsGroups = ctx.caller.way !== 'token' && ctx.caller.way !== 'legacy' && ctx.caller.way !== 'open';
  const follows = sql`(${isRevived || given.hasLimits} OR ruled_groups IS NULL OR (ruled_by = ${ruledBy} AND ${reportsGroups}))`;
  return sql`, ruled_by = CASE WHEN ${follows} THEN ${ruledBy} ELSE ruled_by END,
    ruled_groups = CASE WHEN ${follows} THEN ${ruledGroups}::text[] ELSE ruled_groups END`;
}

function changesOf(
  ctx: Context,
  { request, quota }: { request: LockedRequest; quota: QuotaRow },
  input: UpdateRequestInput,
  given: ReturnType<typeof checkUpdate>,
) {
  const addressFor = (field: 'notifyOnFirstFile' | 'notifyOnLastFile', address: typeof given.first) =>
    address === undefined ? request[field] : addressOf(ctx, quota, { field, address });
  return {
    label: given.label ?? request.label,
    retention: given.retention ?? request.retention,
    notifyOnFirstFile: addressFor('notifyOnFirstFile', given.first),
    notifyOnLastFile: addressFor('notifyOnLastFile', given.last),
    ...readLimits(input, request),
  };
}

async function followLimits(ctx: Context, tx: Transaction, id: number, hasLimits: boolean): Promise<void> {
  const hasGrown = hasLimits && (await joinUnresolvedOf(ctx, tx, id));
  if (!hasGrown) await advanceRequests(ctx, tx, [id]); // if the update has added an email address, emails might be due, so queue these emails
}

function checkUpdate(input: UpdateRequestInput) {
  return {
    retention: input.retention ? checkTime('retention', input.retention) : undefined,
    label: input.label ? checkText('label', input.label) : undefined,
    first: checkNotification('notifyOnFirstFile', input.notifyOnFirstFile),
    last: checkNotification('notifyOnLastFile', input.notifyOnLastFile),
    user: input.quota == null ? undefined : checkText('quota', input.quota),
    hasLimits: input.maxFiles !== undefined || input.maxBytes !== undefined,
  };
}

/**
 * Revives an ended request. Fails if the quota has no room for the files that the request contained when it ended.
 * Further matching files are added to the request if they fit. Released files are never added to the request again.
 */
async function reviveRequest(
  ctx: Context,
  tx: Transaction,
  request: LockedRequest,
  { quota, isGranted }: { quota: QuotaRow; isGranted: boolean },
): Promise<void> {
  // if no job has ended the overdue request yet, the quota is still charged for its files
  const isCounted = !isEnded(request.state);
  if (isCounted) refund(tx, [{ quotaId: quota.id, bytes: request.bytesTotal }]);
  await resetMissingPaths(tx, request.id);
  await tx.query(
    sql`UPDATE request_file h SET state = 'WAITING', error_class = NULL, error = NULL, size = f.size, is_ended = false
        FROM tape_file f WHERE h.request_id = ${request.id} AND f.id = h.file_id AND h.state <> 'RELEASED'`,
  );
  const [sum] = await tx.query<{ files: number; bytes: string }>(
    sql`SELECT count(*)::int AS files, coalesce(sum(size), 0) AS bytes FROM request_file
        WHERE request_id = ${request.id} AND state <> 'RELEASED'`,
  );
  const charged = { files: sum?.files ?? 0, bytes: BigInt(sum?.bytes ?? 0) };
  checkWithin(ctx, request, charged);
  await (isGranted ? chargeGranted : charge)(tx, quota, charged.bytes);
  await tx.query(
    sql`UPDATE request SET state = 'QUEUED', tapestore_request_start = NULL, tapestore_request_end = NULL,
          first_files_on_disk = NULL, last_files_on_disk = NULL, last_arrival = NULL, excluded_size = NULL,
          files_total = ${charged.files}, files_on_disk = 0, files_failed = 0,
          bytes_total = ${charged.bytes}, bytes_on_disk = 0 WHERE id = ${request.id}`,
  );
  if (isCounted) await joinRequest(ctx, tx, request);
  else await joinCounted(ctx, tx, request, quota);
  await settleRequests(ctx, tx, [request.id]);
}

async function joinCounted(ctx: Context, tx: Transaction, request: LockedRequest, quota: QuotaRow): Promise<void> {
  const before = await countUnknownPaths(tx, request.id);
  const total = await addUnknownPaths(tx, quota, before);
  if (request.pattern !== '') await checkPatterns(ctx, tx, quota);
  await joinRequest(ctx, tx, request);
  const left = await countUnknownPaths(tx, request.id);
  checkLimit(ctx, quota.user, 'unresolvedPaths', { total: total - before + left, added: left });
}

interface RetryRequestInput {
  id: number;
  /** Logical paths of the files to retry. Default: all failed files. */
  paths?: readonly string[] | null | undefined;
  quota?: string | null | undefined;
}

/**
 * Retries failed files of a live request immediately. Resets the files' number of tries to zero, and does not charge
 * the quota again.
 * @throws NotFoundError, UnknownUserError, WrongQuotaError; InvalidInputError if the request has ended, or does not
 *   contain one of the paths
 */
export async function retryRequest(ctx: Context, input: RetryRequestInput): Promise<number> {
  const { id, ...given } = input;
  const action = { operation: 'retryRequest', kind: 'REQUEST', object: id, given } as const;
  await audited(ctx, action, (auditEntry) =>
    transaction(ctx.db.pool, 'retryRequest', async (tx) => {
      const user = input.quota == null ? undefined : checkText('quota', input.quota);
      const request = await lockOwnRequest(ctx, tx, 'retryRequest', input.id);
      await findQuotaOf(ctx, tx, request, user);
      if (isEnded(request.state) || !isBefore(ctx.now(), request.retention)) {
        throw new InvalidInputError(
          'requestId',
          `must identify a live request: request ${request.id} has ended; set a later retention to make it active again`,
        );
      }
      const isChosen = await chooseForRetry(tx, request.id, input.paths);
      const failed = await tx.query<{ fileId: bigint }>(
        sql`UPDATE request_file h SET state = 'WAITING', error_class = NULL, error = NULL
          WHERE h.request_id = ${request.id} AND h.state = 'FAILED' AND ${isChosen} RETURNING h.file_id AS "fileId"`,
      );
      const pausedCopies = await tx.query<{ fileId: bigint }>(
        sql`SELECT h.file_id AS "fileId" FROM request_file h JOIN tape_file f ON f.id = h.file_id
          WHERE h.request_id = ${request.id} AND ${isChosen} AND h.state = 'WAITING' AND f.copy_error IS NOT NULL AND f.stage = 'ONTAPE'`,
      );
      if (failed.length === 0 && pausedCopies.length === 0) return;
      await tx.query(auditEntry());
      await resetCopyErrors(
        tx,
        [...failed, ...pausedCopies].map(({ fileId }) => fileId),
      );
      await settleRequests(ctx, tx, [request.id]);
      const fileIds = failed.map(({ fileId }) => fileId);
      await tx.query(
        sql`UPDATE recall c SET not_before = NULL, attempts = 0, earlier_tries = earlier_tries + attempts
          WHERE c.file_id = ANY(${fileIds}::bigint[]) AND c.state = 'WAITING'`,
      );
    }),
  );
  return id;
}

/**
 * Returns the SQL condition that selects the request files (`h`) to retry.
 * @throws InvalidInputError if a path is not in the request
 */
async function chooseForRetry(tx: Transaction, requestId: number, given: RetryRequestInput['paths']): Promise<Sql> {
  if (given == null) return sql`true`;
  const paths = withoutEmpty(given);
  for (const path of paths) checkPath('paths', path);
  const rows = await tx.query<{ path: string; fileId: bigint | null }>(
    sql`SELECT c.path, h.file_id AS "fileId" FROM unnest(${paths}::text[]) AS c (path)
          LEFT JOIN LATERAL (SELECT f.id FROM tape_file f WHERE f.path = c.path OFFSET 0) f ON true
          LEFT JOIN LATERAL (
            SELECT h.file_id FROM request_file h WHERE h.request_id = ${requestId} AND h.file_id = f.id OFFSET 0
          ) h ON true`,
  );
  const missing = rows.filter(({ fileId }) => fileId === null);
  if (missing[0]) throw new InvalidInputError('paths', describeForeign(requestId, missing[0].path, missing.length));
  return sql`h.file_id = ANY(${rows.map(({ fileId }) => fileId)}::bigint[])`;
}

async function resetCopyErrors(tx: Transaction, fileIds: readonly bigint[]): Promise<void> {
  const which = sql`f.id = ANY(${fileIds}::bigint[]) AND f.copy_error IS NOT NULL`;
  await lockFiles(tx, which);
  await tx.query(sql`UPDATE tape_file f SET copy_error = NULL, copy_failed_at = NULL WHERE ${which}`);
}

const MAX_PRIORITY = 1000;

/**
 * Sets a request's priority. The default priority is 0. Drives recall files with a higher priority first, whichever
 * user requested them.
 * @throws InvalidInputError, NotFoundError
 */
export async function setRequestPriority(ctx: Context, input: { id: number; priority: number }): Promise<number> {
  const { id, priority } = input;
  return await audited(
    ctx,
    { operation: 'setRequestPriority', kind: 'REQUEST', object: id, given: { priority } },
    async (auditEntry) => {
      if (!Number.isInteger(priority) || Math.abs(priority) > MAX_PRIORITY) {
        const problem = `must be a whole number from -${MAX_PRIORITY} to ${MAX_PRIORITY}, not ${priority}`;
        throw new InvalidInputError('priority', problem);
      }
      await transaction(ctx.db.pool, 'setRequestPriority', async (tx) => {
        const found = await tx.query(sql`UPDATE request SET priority = ${priority} WHERE id = ${id} RETURNING id`);
        if (found.length === 0) throw noRequest(id);
        await tx.query(auditEntry());
      });
      return id;
    },
  );
}
