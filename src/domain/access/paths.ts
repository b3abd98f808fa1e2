/** Applies path rules to callers and files. Without rules for a directory, all callers may do everything there. */
import { type Caller, hasRole, ownerOf } from '../../core/caller.js';
import { type Sql, sql } from '../../db/sql.js';
import type { PathAction } from '../../generated/prisma/enums.js';
import { isOffered } from '../conditions.js';
import type { Context } from '../context.js';

/** Operators, viewers and the system are exempt from path rules. */
export function isRuled(caller: Caller): boolean {
  return !hasRole(caller, 'operator', 'viewer');
}

/** Returns the identity whose rules apply to later files of the caller's requests; null groups: no rules apply. */
export function rulesFor({ caller }: Context): { ruledBy: string; ruledGroups: readonly string[] | null } {
  return { ruledBy: ownerOf(caller), ruledGroups: isRuled(caller) ? caller.groups : null };
}

/** Whether files may be hidden from the caller. Then an estimated count would reveal them. */
export async function mayMissFiles({ caller, db }: Context): Promise<boolean> {
  if (!isRuled(caller)) return false;
  return (await db.pool.query(sql`SELECT FROM path_rule WHERE action = 'LIST' LIMIT 1`)).rowCount !== 0;
}

/** No path rules exist. Checked first, since `path_allowed` takes as long to plan as a lookup. */
export const isUnruled = sql`NOT EXISTS (SELECT FROM path_rule)`;

/** Purged files stay hidden by the rules of their former path. */
const ruledPath = sql`CASE WHEN starts_with(f.path, '/.tapegate-purged/')
  THEN regexp_replace(f.path, '^/\\.tapegate-purged/[0-9]+', '') ELSE f.path END`;

/** A condition on the file `f`. */
export function mayPath({ caller }: Context, action: PathAction): Sql {
  if (!isRuled(caller)) return sql`true`;
  return sql`(${isUnruled} OR path_allowed(${ruledPath}, ${action}, ${ownerOf(caller)}, ${caller.groups}::text[]))`;
}

/** Selects the first path in a range, in byte order, that the caller may list. Hidden files cost nothing. */
export function firstListed({ caller }: Context, { from, before }: { from: Sql; before: Sql }): Sql {
  const first = sql`(SELECT f.path FROM tape_file f WHERE f.path ~>=~ (${from}) AND f.path ~<~ (${before}) AND ${isOffered} ORDER BY f.path USING ~<~ LIMIT 1)`;
  if (!isRuled(caller)) return first;
  return sql`CASE WHEN ${isUnruled} THEN ${first} ELSE first_listed(${from}, ${before}, ${ownerOf(caller)}, ${caller.groups}::text[]) END`;
}

/** The same for a request `r` by its own rules, for files that join later and for its mail. */
export function isAllowedIn(action: PathAction): Sql {
  return sql`(r.ruled_groups IS NULL OR ${isUnruled}
    OR path_allowed(${ruledPath}, ${action}, r.ruled_by, r.ruled_groups))`;
}

/**
 * A condition on the file `f` of a visible request. Owners see all files of their requests, regardless of the present rules.
 * Callers that see all requests see only the files that they may list.
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

/** Returns a filter of paths by the present rules; undefined if none applies. Changed rules restart long readers. */
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
