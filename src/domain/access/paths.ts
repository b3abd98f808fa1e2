/** Applies path rules to callers and files. Without path rules, all callers may list, request and fetch all files. */
import { type Caller, hasRole, ownerOf } from '../../core/caller.js';
import { type Sql, sql } from '../../db/sql.js';
import type { PathAction } from '../../generated/prisma/enums.js';
import { isOffered } from '../conditions.js';
import type { Context } from '../context.js';

/** Returns whether path rules apply to the caller. Operators, viewers and the system are exempt. */
export function isRuled(caller: Caller): boolean {
  return !hasRole(caller, 'operator', 'viewer');
}

/**
 * Returns the user and groups to store in the caller's request. Their path rules decide which files can join the
 * request later. `ruledGroups` is null if no path rules apply to the caller.
 */
export function rulesFor({ caller }: Context): { ruledBy: string; ruledGroups: readonly string[] | null } {
  return { ruledBy: ownerOf(caller), ruledGroups: isRuled(caller) ? caller.groups : null };
}

/**
 * Returns whether path rules might hide files from the caller. Such a caller must not get estimated counts, because the
 * estimates would include hidden files.
 */
export async function mayMissFiles({ caller, db }: Context): Promise<boolean> {
  if (!isRuled(caller)) return false;
  return (await db.pool.query(sql`SELECT FROM path_rule WHERE action = 'LIST' LIMIT 1`)).rowCount !== 0;
}

/**
 * SQL condition that is true if there are no path rules. A query that checks this condition first does not spend time
 * on the SQL function `path_allowed` if there are no path rules.
 */
export const isUnruled = sql`NOT EXISTS (SELECT FROM path_rule)`;

/**
 * SQL expression for the path of the file `f` that path rules are compared with. For a purged file, this is the path
 * before the purge.
 */
const ruledPath = sql`CASE WHEN starts_with(f.path, '/.tapegate-purged/')
  THEN regexp_replace(f.path, '^/\\.tapegate-purged/[0-9]+', '') ELSE f.path END`;

/** Returns the SQL condition that is true if path rules allow the caller to perform the action on the file `f`. */
export function mayPath({ caller }: Context, action: PathAction): Sql {
  if (!isRuled(caller)) return sql`true`;
  return sql`(${isUnruled} OR path_allowed(${ruledPath}, ${action}, ${ownerOf(caller)}, ${caller.groups}::text[]))`;
}

/** Returns SQL that selects the first path in byte order, within a range, that the caller may list. */
export function firstListed({ caller }: Context, { from, before }: { from: Sql; before: Sql }): Sql {
  const first = sql`(SELECT f.path FROM tape_file f WHERE f.path ~>=~ (${from}) AND f.path ~<~ (${before}) AND ${isOffered} ORDER BY f.path USING ~<~ LIMIT 1)`;
  if (!isRuled(caller)) return first;
  return sql`CASE WHEN ${isUnruled} THEN ${first} ELSE first_listed(${from}, ${before}, ${ownerOf(caller)}, ${caller.groups}::text[]) END`;
}

/**
 * Returns the SQL condition that is true if the path rules for the request `r` allow the action on the file `f`. The
 * condition is used for files that join the request after its creation, and for files named in the request's emails.
 */
export function isAllowedIn(action: PathAction): Sql {
  return sql`(r.ruled_groups IS NULL OR ${isUnruled}
    OR path_allowed(${ruledPath}, ${action}, r.ruled_by, r.ruled_groups))`;
}

/**
 * Returns the SQL condition that is true if the caller may see the file `f` in a visible request. Owners see all files
 * of their requests. Callers that may see all requests still see only the files that they may list.
 */
export function mayPathOfRequest(ctx: Context): Sql {
  return ctx.caller.reads === 'all' ? mayPath(ctx, 'LIST') : sql`true`;
}

export async function readAllowed(
  ctx: Context,
  action: PathAction,
  ids: readonly bigint[],
): Promise<Map<bigint, boolean>> {
  if (!isRuled(ctx.caller)) return new Map(ids.map((id) => [id, true]));
  const rows = await ctx.db.rows<{ id: bigint }>(
    sql`SELECT f.id FROM tape_file f WHERE f.id = ANY(${ids}::bigint[]) AND ${mayPath(ctx, action)}`,
  );
  return new Map(rows.map(({ id }) => [id, true]));
}

/**
 * Returns a function that filters paths by the current path rules; undefined if no path rule applies to the caller. A
 * long-running reader can keep using the function, because Tapegate restarts the reader when the path rules change.
 */
export async function readPathFilter(
  { caller, db }: Context,
  action: PathAction,
): Promise<((path: string) => boolean) | undefined> {
  if (!isRuled(caller)) return undefined;
  const { rows } = await db.pool.query<{ prefix: string; isAllowed: boolean }>(
    sql`SELECT r.prefix, path_allowed(r.prefix, ${action}, ${ownerOf(caller)}, ${caller.groups}::text[]) AS "isAllowed"
        FROM path_rule r WHERE r.action = ${action} GROUP BY r.prefix ORDER BY length(r.prefix) DESC`,
  );
  if (rows.length === 0) return undefined;
  return (candidate) => {
    const path = candidate.replace(/^\/\.tapegate-purged\/\d+/, '');
    const rule = rows.find(({ prefix }) => path === prefix || path.startsWith(`${prefix}/`));
    return rule?.isAllowed ?? true;
  };
}
