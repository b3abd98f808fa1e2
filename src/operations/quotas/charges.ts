/**
 * Charges and counts of quotas. Check and charge are one statement, so concurrent requests never exceed a quota.
 * Filling it exactly is allowed.
 * The counts of requests, paths and patterns are columns of the quota, changed with the rows: `countIn` on creation and
 * revival, `refund` on ends and releases, requests/joins.ts on joins. The quota's row stays locked from the count to
 * the commit.
 */
import { hasQuota } from '../../caller.js';
import type { Context } from '../../context.js';
import { locking } from '../../database/locks.js';
import { prepared } from '../../database/prepared.js';
import { empty, join, raw, type Sql, sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { LimitReachedError, QuotaExceededError, UnknownUserError, WrongQuotaError } from '../../errors.js';
import { isLive } from '../conditions.js';

export interface QuotaRow extends Counts {
  id: number;
  user: string;
  email: string;
}

/** @param more additional boolean columns, by name @throws UnknownUserError */
export async function findQuota<Name extends string = never>(
  tx: Transaction,
  user: string,
  more: Record<Name, Sql> = {} as Record<Name, Sql>,
): Promise<QuotaRow & Record<Name, boolean>> {
  const columns = Object.entries<Sql>(more).map(([name, column]) => sql`, ${column} AS ${raw(`"${name}"`)}`);
  const [row] = await tx.query<QuotaRow & Record<Name, boolean>>(
    prepared(
      sql`SELECT q.id, q."user", q.email, ${countColumns}${columns.length > 0 ? join(columns, '') : empty}
          FROM quota q WHERE q."user" = ${user} AND q.removed_at IS NULL`,
    ),
  );
  if (!row) throw new UnknownUserError(user);
  return row;
}

/**
 * Returns the quota of a request that is changed. A quota that the caller may not see counts as missing.
 * @param given the user that the caller has named
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

/** @throws QuotaExceededError with the figures of the rejection */
export async function charge(tx: Transaction, quota: QuotaRow, bytes: bigint): Promise<void> {
  if (bytes === 0n) return;
  const charged = await tx.query(
    sql`UPDATE quota SET used = used + ${bytes}::numeric WHERE id = ${quota.id} AND used + ${bytes}::numeric <= size RETURNING id`,
  );
  if (charged.length === 0) await refuse(tx, quota, bytes);
}

/** Charges files that another system has granted, whether they fit or not. */
export async function chargeGranted(tx: Transaction, quota: QuotaRow, bytes: bigint): Promise<void> {
  await tx.query(sql`UPDATE quota SET used = used + ${bytes}::numeric WHERE id = ${quota.id}`);
}

/** Rejects early, before a long list is stored only to be rolled back. @throws QuotaExceededError */
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

export interface Charge extends Partial<Counts> {
  quotaId: number;
  bytes: bigint;
}

/** Returns charges and counts of ended requests, or of released files and paths. */
export function refund(tx: Transaction, charges: readonly Charge[]): void {
  const columns = [
    sql`${charges.map(({ quotaId }) => quotaId)}::int[]`,
    sql`${charges.map(({ bytes }) => bytes)}::bigint[]`,
    sql`${charges.map(({ openRequests = 0 }) => openRequests)}::int[]`,
    sql`${charges.map(({ awaitedPaths = 0 }) => awaitedPaths)}::int[]`,
    sql`${charges.map(({ standingPatterns = 0 }) => standingPatterns)}::int[]`,
  ];
  tx.send(
    sql`WITH back AS (
          SELECT quota_id, sum(bytes) AS bytes, sum(requests) AS requests, sum(paths) AS paths, sum(patterns) AS patterns
          FROM unnest(${join(columns)}) AS b (quota_id, bytes, requests, paths, patterns) GROUP BY quota_id
        ), locked AS (
          SELECT q.id FROM quota q WHERE q.id IN (SELECT quota_id FROM back) ORDER BY q.id ${locking.quota}
        )
        UPDATE quota q SET used = q.used - b.bytes, open_requests = q.open_requests - b.requests,
          awaited_paths = q.awaited_paths - b.paths, standing_patterns = q.standing_patterns - b.patterns
        FROM back b, locked l WHERE q.id = b.quota_id AND l.id = q.id`,
  );
}

export interface Counts {
  /** Live requests. */
  openRequests: number;
  awaitedPaths: number;
  standingPatterns: number;
}

/** The name of each count in messages, and the variable that limits it. */
const kinds = {
  openRequests: ['open requests', 'OPEN_REQUESTS'],
  standingPatterns: ['requests by a pattern', 'STANDING_PATTERNS'],
  awaitedPaths: ['paths that the catalogue does not know', 'AWAITED_PATHS'],
} as const satisfies Record<keyof Counts, readonly [words: string, variable: string]>;

/** Columns of the quota `q`. */
export const countColumns = sql`q.open_requests AS "openRequests", q.awaited_paths AS "awaitedPaths", q.standing_patterns AS "standingPatterns"`;

export const countsOfQuota = sql`
  SELECT count(*) AS requests, coalesce(sum(${unknownPathsOf('r')}), 0) AS paths, count(*) FILTER (WHERE r.pattern <> '') AS patterns
  FROM request r WHERE r.quota_id = q.id AND ${isLive}`;

export function unknownPathsOf(request: 'r' | 'request') {
  return sql`(SELECT count(*)::int FROM awaited_path a WHERE a.request_id = ${raw(request)}.id AND a.reason = 'UNKNOWN')`;
}

export async function countUnknown(tx: Transaction, requestId: number): Promise<number> {
  const [row] = await tx.query<{ paths: number }>(
    sql`SELECT ${unknownPathsOf('r')} AS paths FROM request r WHERE r.id = ${requestId}`,
  );
  return row?.paths ?? 0;
}

export function countsOf(request: { pattern: string }, awaitedPaths: number): Counts {
  return { openRequests: 1, standingPatterns: request.pattern === '' ? 0 : 1, awaitedPaths };
}

/**
 * Adds a request to the counts and locks the quota. @returns the new counts, to be checked before the commit
 * @throws UnknownUserError if the quota was removed meanwhile
 */
export async function countIn(tx: Transaction, quota: { id: number; user: string }, added: Counts): Promise<Counts> {
  const [have] = await tx.query<Counts>(
    sql`UPDATE quota q SET open_requests = q.open_requests + ${added.openRequests}::int,
          awaited_paths = q.awaited_paths + ${added.awaitedPaths}::int,
          standing_patterns = q.standing_patterns + ${added.standingPatterns}::int
        WHERE q.id = ${quota.id} AND q.removed_at IS NULL RETURNING ${countColumns}`,
  );
  if (!have) throw new UnknownUserError(quota.user);
  return have;
}

/** @param have counts including `added`; counts that did not grow are not checked @throws LimitReachedError */
export function checkCounts({ config }: Context, user: string, have: Counts, added: Counts): void {
  for (const kind of Object.keys(kinds) as (keyof Counts)[]) {
    const [words, limit] = kinds[kind];
    const allowed = config.limits[kind];
    if (added[kind] === 0 || have[kind] <= allowed) continue;
    const present = have[kind] - added[kind];
    throw new LimitReachedError(words, { user, limit, allowed, present, added: added[kind] });
  }
}

export function addCounts(one: Counts, other: Counts): Counts {
  return {
    openRequests: one.openRequests + other.openRequests,
    awaitedPaths: one.awaitedPaths + other.awaitedPaths,
    standingPatterns: one.standingPatterns + other.standingPatterns,
  };
}
