/** Path rules determine which callers may list, request and fetch the files below a directory. */

import { InvalidInputError, NotFoundError, quote } from '../../core/errors.js';
import { raw, sql } from '../../db/sql.js';
import type { PathRule } from '../../generated/prisma/client.js';
import { PathAction, RuleKind } from '../../generated/prisma/enums.js';
import { audited } from '../audit/audited.js';
import type { Context } from '../context.js';
import { checkCallerName, checkOneOf, checkPath } from '../input.js';
import { allow } from '../policy.js';

interface PathRuleInput {
  /** An absolute directory; `/` covers all files. */
  prefix: string;
  action: PathAction;
  kind: RuleKind;
  /** Name of the user or group that the rule allows; empty or absent if the rule allows all users. */
  name?: string | null | undefined;
}

const columns = raw('id, prefix, action, kind, name');

const notifyRights = sql`pg_notify('tapegate', 'rights')::text AS notified`;

/**
 * Converts a directory to the form that the table `path_rule` contains: without a trailing slash. The root directory
 * becomes the empty string.
 */
const storedPrefix = (directory: string): string => directory.replace(/\/$/, '');

/** Converts a directory to the form that lists and the audit show: without a trailing slash, except for `/`. */
export const shownDirectory = (directory: string): string => storedPrefix(directory) || '/';

/** @throws InvalidInputError */
function checkRule(input: PathRuleInput): Omit<PathRule, 'id'> {
  const { action, kind } = input;
  checkOneOf('action', action, PathAction);
  checkOneOf('kind', kind, RuleKind);
  const name = input.name ? checkCallerName('name', input.name) : '';
  if ((name === '') !== (kind === 'EVERYBODY')) {
    throw new InvalidInputError(
      'name',
      kind === 'EVERYBODY' ? 'must be absent if kind is EVERYBODY' : 'must not be empty',
    );
  }
  if (input.prefix === '') throw new InvalidInputError('prefix', 'must not be empty: use / for all paths');
  const prefix = storedPrefix(input.prefix);
  if (prefix !== '') checkPath('prefix', prefix);
  return { prefix, action, kind, name };
}

/**
 * Adds a path rule, which allows a user or group to perform an action below a directory. Users that no rule allows can
 * no longer perform the action there. A new rule does not remove files from existing requests.
 * @throws InvalidInputError
 */
export async function addPathRule(ctx: Context, input: PathRuleInput): Promise<PathRule> {
  return await audited(ctx, actionOf('addPathRule', input), async (auditEntry) => {
    const { prefix, action, kind, name } = checkRule(input);
    const rows = await ctx.db.rows<PathRule>(
      sql`WITH made AS (
            INSERT INTO path_rule (prefix, action, kind, name)
            VALUES (${prefix}, ${action}::"PathAction", ${kind}::"RuleKind", ${name})
            ON CONFLICT (prefix, action, kind, name) DO UPDATE SET name = excluded.name RETURNING ${columns}
          ), entry AS (${auditEntry()}) SELECT m.*, ${notifyRights} FROM made m`,
    );
    return rows[0] as PathRule;
  });
}

const actionOf = (operation: 'addPathRule' | 'removePathRule', { prefix, ...given }: PathRuleInput) =>
  ({ operation, kind: 'RULE', object: shownDirectory(prefix), given }) as const;

/** @throws NotFoundError, InvalidInputError */
export async function removePathRule(ctx: Context, input: PathRuleInput): Promise<PathRule> {
  return await audited(ctx, actionOf('removePathRule', input), async (auditEntry) => {
    const { prefix, action, kind, name } = checkRule(input);
    const [removed] = await ctx.db.rows<PathRule>(
      sql`WITH removed AS (
            DELETE FROM path_rule WHERE prefix = ${prefix} AND action = ${action}::"PathAction" AND kind = ${kind}::"RuleKind"
              AND name = ${name} RETURNING ${columns}
          ), entry AS (${auditEntry({ each: sql`SELECT ${shownDirectory(prefix)}::text FROM removed` })}) SELECT m.*, ${notifyRights} FROM removed m`,
    );
    if (!removed)
      throw new NotFoundError(`there is no rule with this action, kind and name for ${quote(shownDirectory(prefix))}`);
    return removed;
  });
}

export async function listPathRules(ctx: Context): Promise<PathRule[]> {
  allow(ctx, 'listPathRules');
  return await ctx.db.prisma.pathRule.findMany();
}

/** Returns a path rule, or null if no rule has the id. */
export async function readPathRule(ctx: Context, id: number): Promise<PathRule | null> {
  allow(ctx, 'listPathRules');
  return await ctx.db.prisma.pathRule.findUnique({ where: { id } });
}

const MOST_COUNTED = 10_000;

/**
 * Returns the number of files below each prefix, up to `MOST_COUNTED`. Also counts a file whose path is the prefix
 * itself.
 */
export async function readFilesBelow(ctx: Context, prefixes: readonly string[]): Promise<Map<string, number>> {
  const rows = await ctx.db.rows<{ prefix: string; files: number }>(
    sql`SELECT p.prefix, (SELECT count(*)::int FROM (
          SELECT FROM tape_file f WHERE f.path = p.prefix
          UNION ALL
          SELECT FROM tape_file f WHERE f.path ~>=~ (p.prefix || '/') AND f.path ~<~ (p.prefix || '0')
          LIMIT ${MOST_COUNTED}) met) AS files
        FROM unnest(${prefixes}::text[]) p (prefix)`,
  );
  return new Map(rows.map(({ prefix, files }) => [prefix, files]));
}
