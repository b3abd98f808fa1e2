/**
 * Charges quotas, and counts unknown paths, which are paths that requests list but the catalogue does not contain. A
 * single statement checks and charges a quota, so concurrent requests never exceed the quota. The row of a quota stores
 * its number of unknown paths, so a transaction that updates this number locks the quota until the commit.
 */
import { hasQuota } from '../../core/caller.js';
import { LimitReachedError, QuotaExceededError, UnknownUserError, WrongQuotaError } from '../../core/errors.js';
import { locking } from '../../db/locks.js';
import { prepared } from '../../db/prepared.js';
import { empty, join, raw, type Sql, sql } from '../../db/sql.js';
import type { Transaction } from '../../db/transaction.js';
import { isLive } from '../conditions.js';
import type { Context } from '../context.js';

export interface QuotaRow {
  id: number;
  user: string;
  email: string;
}

/**
 * Returns a user's quota. The parameter `more` contains SQL expressions for further boolean columns, by column name.
 * @throws UnknownUserError
 */
export async function findQuota<Name extends string = never>(
  tx: Transaction,
  user: string,
  more: Record<Name, Sql> = {} as Record<Name, Sql>,
): Promise<QuotaRow & Record<Name, boolean>> {
  const columns = Object.entries<Sql>(more).map(([name, column]) => sql`, ${column} AS ${raw(`"${name}"`)}`);
  const [row] = await tx.query<QuotaRow & Record<Name, boolean>>(
    prepared(
      sql`SELECT q.id, q."user", q.email${columns.length > 0 ? join(columns, '') : empty}
          FROM quota q WHERE q."user" = ${user} AND q.removed_at IS NULL`,
    ),
  );
  if (!row) throw new UnknownUserError(user);
  return row;
}

/**
 * Returns the quota of a request that is about to change. If the caller may not see the quota, reports the user as
 * unknown.
 * @throws UnknownUserError, WrongQuotaError
 */
export async function findQuotaOf(
  ctx: Context,
  tx: Transaction,
  request: { id: number; user: string; quotaId: number },
  given: string | undefined,
): Promise<QuotaRow> {
  const user = given ?? request.user;
  if (!hasQuota(ctx.caller.reads, user)) throw new UnknownUserError(user);
  const quota = await findQuota(tx, user);
  if (quota.id !== request.quotaId) throw new WrongQuotaError(request.id, request.user, quota.user);
  return quota;
}

/** @throws QuotaExceededError with the quota's size and usage */
export async function charge(tx: Transaction, quota: QuotaRow, bytes: bigint): Promise<void> {
  if (bytes === 0n) return;
  const charged = await tx.query(
    sql`UPDATE quota SET used = used + ${bytes}::numeric WHERE id = ${quota.id} AND used + ${bytes}::numeric <= size RETURNING id`,
  );
  if (charged.length === 0) await refuse(tx, quota, bytes);
}

/** Charges a quota for a request that another system has granted, even if the quota has no room for the request. */
export async function chargeGranted(tx: Transaction, quota: QuotaRow, bytes: bigint): Promise<void> {
  await tx.query(sql`UPDATE quota SET used = used + ${bytes}::numeric WHERE id = ${quota.id}`);
}

/**
 * Checks that a quota has room for a number of bytes. Callers check the room before they store a long list of files,
 * because rolling back the stored list would be slow.
 * @throws QuotaExceededError
 */
export async function checkRoom(tx: Transaction, quota: QuotaRow, bytes: bigint): Promise<void> {
  const room = await tx.query(sql`SELECT FROM quota WHERE id = ${quota.id} AND used + ${bytes}::numeric <= size`);
  if (room.length === 0 && bytes > 0n) await refuse(tx, quota, bytes);
}

async function refuse(tx: Transaction, quota: QuotaRow, requested: bigint): Promise<never> {
  const [figures] = await tx.query<{ size: bigint; used: bigint }>(
    sql`SELECT size, used FROM quota WHERE id = ${quota.id}`,
  );
  throw new QuotaExceededError({ user: quota.user, size: figures?.size ?? 0n, used: figures?.used ?? 0n, requested });
}

export interface Charge {
  quotaId: number;
  bytes: bigint;
  unresolvedPaths?: number;
}

/**
 * Reduces the used bytes and the numbers of unknown paths of quotas, after requests have ended or files were released.
 */
export function refund(tx: Transaction, charges: readonly Charge[]): void {
  const columns = [
    sql`${charges.map(({ quotaId }) => quotaId)}::int[]`,
    sql`${charges.map(({ bytes }) => bytes)}::bigint[]`,
    sql`${charges.map(({ unresolvedPaths = 0 }) => unresolvedPaths)}::int[]`,
  ];
  tx.send(
    sql`WITH back AS (
          SELECT quota_id, sum(bytes) AS bytes, sum(paths) AS paths
          FROM unnest(${join(columns)}) AS b (quota_id, bytes, paths) GROUP BY quota_id
        ), locked AS (
          SELECT q.id FROM quota q WHERE q.id IN (SELECT quota_id FROM back) ORDER BY q.id ${locking.quota}
        )
        UPDATE quota q SET used = q.used - b.bytes, unresolved_paths = q.unresolved_paths - b.paths
        FROM back b, locked l WHERE q.id = b.quota_id AND l.id = q.id`,
  );
}

/**
 * Kinds of objects whose number is limited for each user. Each kind has a name for error messages, and the setting that
 * contains the limit.
 */
const limitKinds = {
  openPatterns: ['requests with a pattern', 'OPEN_PATTERNS'],
  unresolvedPaths: ['unresolved paths', 'UNRESOLVED_PATHS'],
  unstagedPaths: ['paths that stage requests could not stage', 'UNSTAGED_PATHS'],
} as const;

export const unknownPathsOfQuota = sql`(
  SELECT coalesce(sum(${unknownPathsOf('r')}), 0) FROM request r WHERE r.quota_id = q.id AND ${isLive})`;

export function unknownPathsOf(request: 'r' | 'request') {
  return sql`(SELECT count(*)::int FROM unresolved_path a WHERE a.request_id = ${raw(request)}.id AND a.reason = 'UNKNOWN')`;
}

export async function countUnknownPaths(tx: Transaction, requestId: number): Promise<number> {
  const [row] = await tx.query<{ paths: number }>(
    sql`SELECT ${unknownPathsOf('r')} AS paths FROM request r WHERE r.id = ${requestId}`,
  );
  return row?.paths ?? 0;
}

/**
 * Adds unknown paths to the quota's count, and locks the quota. The caller must check the returned new count before the
 * commit.
 * @throws UnknownUserError if another transaction has removed the quota
 */
export async function addUnknownPaths(
  tx: Transaction,
  quota: { id: number; user: string },
  paths: number,
): Promise<number> {
  const [row] = await tx.query<{ unresolvedPaths: number }>(
    sql`UPDATE quota q SET unresolved_paths = q.unresolved_paths + ${paths}::int
        WHERE q.id = ${quota.id} AND q.removed_at IS NULL RETURNING q.unresolved_paths AS "unresolvedPaths"`,
  );
  if (!row) throw new UnknownUserError(quota.user);
  return row.unresolvedPaths;
}

/** @throws LimitReachedError if `total`, the number of the user's objects after the addition, exceeds the limit */
export function checkLimit(
  { config }: Context,
  user: string,
  kind: keyof typeof limitKinds,
  { total, added }: { total: number; added: number },
): void {
  const allowed = config.limits[kind];
  if (added === 0 || total <= allowed) return;
  const [words, limit] = limitKinds[kind];
  throw new LimitReachedError(words, { user, limit, allowed, present: total - added, added });
}

/**
 * Checks that the user does not have too many live requests with a pattern. The count includes the new or revived
 * request, and is exact only if the caller has locked the quota by calling `addUnknownPaths`.
 * @throws LimitReachedError
 */
export async function checkPatterns(ctx: Context, tx: Transaction, quota: QuotaRow): Promise<void> {
  const [row] = await tx.query<{ patterns: number }>(
    sql`SELECT count(*)::int AS patterns FROM request r WHERE r.quota_id = ${quota.id} AND ${isLive} AND r.pattern <> ''`,
  );
  checkLimit(ctx, quota.user, 'openPatterns', { total: row?.patterns ?? 0, added: 1 });
}
