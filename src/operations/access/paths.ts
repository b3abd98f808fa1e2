/** What rules by folders let a caller do with files; where a folder has none, everybody may everything. */
import { type Caller, hasRole, ownerOf } from '../../caller.js';
import type { Context } from '../../context.js';
import { type Sql, sql } from '../../database/sql.js';
import type { PathAction } from '../../generated/prisma/enums.js';
import { isOffered } from '../conditions.js';

/** Operators, viewers and the system see and do everything. */
export function isRuled(caller: Caller): boolean {
  return !hasRole(caller, 'operator', 'viewer');
}

/** By which rules hold for what joins a request of this caller later; null: none do. */
export function rulesFor({ caller }: Context): { ruledBy: string; ruledGroups: readonly string[] | null } {
  return { ruledBy: ownerOf(caller), ruledGroups: isRuled(caller) ? caller.groups : null };
}

/** May files be kept from the caller? What was not looked at one by one, as an estimate is, would tell of them. */
export async function mayMissFiles({ caller, db }: Context): Promise<boolean> {
  if (!isRuled(caller)) return false;
  return (await db.pool.query(sql`SELECT FROM path_rule WHERE action = 'LIST' LIMIT 1`)).rowCount !== 0;
}

/**
 * No folder has a rule. What looks at no file costs a look-up nothing, while a condition on each takes as long to be planned as the look-up to be
 * done: where most sites have no rules, who is in a hurry asks by this first, in the statement that reads the files.
 */
export const isUnruled = sql`NOT EXISTS (SELECT FROM path_rule)`;

/** What is forgotten is kept from those from whom it was kept under the path that it had. */
const ruledPath = sql`CASE WHEN starts_with(f.path, '/.tapegate-forgotten/')
  THEN regexp_replace(f.path, '^/\\.tapegate-forgotten/[0-9]+', '') ELSE f.path END`;

/** A condition on the file `f`. */
export function mayPath({ caller }: Context, action: PathAction): Sql {
  if (!isRuled(caller)) return sql`true`;
  return sql`(${isUnruled} OR path_allowed(${ruledPath}, ${action}, ${ownerOf(caller)}, ${caller.groups}::text[]))`;
}

/**
 * The first path from one on and before another one, in order of bytes, that the caller may list; null where there is none. However many are
 * kept from the caller, it is found as soon.
 */
export function firstListed({ caller }: Context, { from, before }: { from: Sql; before: Sql }): Sql {
  const first = sql`(SELECT f.path FROM tape_file f WHERE f.path ~>=~ (${from}) AND f.path ~<~ (${before}) AND ${isOffered} ORDER BY f.path USING ~<~ LIMIT 1)`;
  if (!isRuled(caller)) return first;
  return sql`CASE WHEN ${isUnruled} THEN ${first} ELSE first_listed(${from}, ${before}, ${ownerOf(caller)}, ${caller.groups}::text[]) END`;
}

/** The same for a request `r`, whoever asks: what joins it later, and what its mail tells. */
export function isAllowedIn(action: PathAction): Sql {
  return sql`(r.ruled_groups IS NULL OR ${isUnruled}
    OR path_allowed(${ruledPath}, ${action}, r.ruled_by, r.ruled_groups))`;
}

/**
 * A condition on the file `f` of a request that the caller sees. What is in a request is to be seen by those whose it is, whatever
 * the rules are by now; who sees all requests, being nobody in particular, sees of them what it may list.
 */
export function mayPathOfRequest(ctx: Context): Sql {
  return ctx.caller.reads === 'all' ? mayPath(ctx, 'LIST') : sql`true`;
}

/** Of some files, those with which the caller may do that. */
export async function readAllowed(
  ctx: Context,
  action: PathAction,
  ids: readonly bigint[],
): Promise<Map<bigint, boolean>> {
  if (!isRuled(ctx.caller)) return new Map(ids.map((id) => [id, true]));
  const { rows } = await ctx.db.pool.query<{ id: bigint }>(
    sql`SELECT f.id FROM tape_file f WHERE f.id = ANY(${ids}::bigint[]) AND ${mayPath(ctx, action)}`,
  );
  return new Map(rows.map(({ id }) => [id, true]));
}

/**
 * The same for paths that come one by one, as the rules are now: whoever goes on for long is begun anew when they change.
 * @returns undefined where no rule holds
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
  return (told) => {
    const path = told.replace(/^\/\.tapegate-forgotten\/\d+/, '');
    if (path === '') return false; // nobody knows any more where it was
    const rule = rows.find(({ prefix }) => path === prefix || path.startsWith(`${prefix}/`));
    return rule?.isAllowed ?? true;
  };
}
