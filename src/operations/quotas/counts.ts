/**
 * What a user has at once, and may have at most: counted on the quota, so that a million of them cost as little as one. Whoever
 * changes what is counted changes the count in the same transaction: whoever makes or revives a request here, whoever ends or releases
 * by `refund`, and what joins in requests/joins.ts. The quota's row is locked from the count to the commit, so that of many at once
 * exactly as many get through as there is room for.
 */
import type { Context } from '../../context.js';
import { raw, sql } from '../../database/sql.js';
import type { Transaction } from '../../database/transaction.js';
import { LimitReachedError, UnknownUserError } from '../../errors.js';
import { isLive } from '../conditions.js';

export interface Counts {
  /** Requests that live. */
  openRequests: number;
  /** Paths that they wait for and that the catalogue does not know. */
  awaitedPaths: number;
  /** Those of the requests that have a pattern. */
  standingPatterns: number;
}

/** What each is called in messages, and the variable that bounds it. */
const kinds = {
  openRequests: ['open requests', 'OPEN_REQUESTS'],
  standingPatterns: ['requests by a pattern', 'STANDING_PATTERNS'],
  awaitedPaths: ['paths that the catalogue does not know', 'AWAITED_PATHS'],
} as const satisfies Record<keyof Counts, readonly [words: string, variable: string]>;

/** Of the quota `q`. */
export const countColumns = sql`q.open_requests AS "openRequests", q.awaited_paths AS "awaitedPaths", q.standing_patterns AS "standingPatterns"`;

/** What is to be counted of the quota `q`. */
export const countsOfQuota = sql`
  SELECT count(*) AS requests, coalesce(sum(${unknownPathsOf('r')}), 0) AS paths, count(*) FILTER (WHERE r.pattern <> '') AS patterns
  FROM request r WHERE r.quota_id = q.id AND ${isLive}`;

/** How many paths a request waits for that the catalogue does not know. @param request the name of its row */
export function unknownPathsOf(request: 'r' | 'request') {
  return sql`(SELECT count(*)::int FROM awaited_path a WHERE a.request_id = ${raw(request)}.id AND a.reason = 'UNKNOWN')`;
}

/** The same of one that is locked. */
export async function countUnknown(tx: Transaction, requestId: number): Promise<number> {
  const [row] = await tx.query<{ paths: number }>(
    sql`SELECT ${unknownPathsOf('r')} AS paths FROM request r WHERE r.id = ${requestId}`,
  );
  return row?.paths ?? 0;
}

/** What a request that is made or revived counts for. */
export function countsOf(request: { pattern: string }, awaitedPaths: number): Counts {
  return { openRequests: 1, standingPatterns: request.pattern === '' ? 0 : 1, awaitedPaths };
}

/**
 * Counts what a request brings. The quota is locked by it.
 * @returns what the user has then, which is to be checked before the commit
 * @throws UnknownUserError where the quota was removed meanwhile
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

/**
 * @param have what the user has, `added` included; what was not added to is not looked at
 * @throws LimitReachedError
 */
export function checkCounts({ config }: Context, user: string, have: Counts, added: Counts): void {
  for (const kind of Object.keys(kinds) as (keyof Counts)[]) {
    const [words, limit] = kinds[kind];
    const allowed = config.limits[kind];
    if (added[kind] === 0 || have[kind] <= allowed) continue;
    const present = have[kind] - added[kind];
    throw new LimitReachedError(words, { user, limit, allowed, present, added: added[kind] });
  }
}

/** Two counts together. */
export function addCounts(one: Counts, other: Counts): Counts {
  return {
    openRequests: one.openRequests + other.openRequests,
    awaitedPaths: one.awaitedPaths + other.awaitedPaths,
    standingPatterns: one.standingPatterns + other.standingPatterns,
  };
}
