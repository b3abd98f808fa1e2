/**
 * Manages the members of quotas. Members may create requests that are charged to the quota. Managers may also change
 * other members' requests.
 */

import { hasQuota } from '../../core/caller.js';
import { InvalidInputError, NotFoundError, noQuota, quote } from '../../core/errors.js';
import { raw, sql } from '../../db/sql.js';
import { MemberKind } from '../../generated/prisma/enums.js';
import { audited } from '../audit/audited.js';
import type { Context } from '../context.js';
import { checkCallerName, checkOneOf, checkText } from '../input.js';
import { allow, allowManage, visibleQuotas } from '../policy.js';
import { disableWebhooksOf } from '../webhook-authors.js';

export interface Member {
  kind: MemberKind;
  name: string;
  isManager: boolean;
  quotaId: number;
}

interface MemberInput {
  quota: string;
  kind: MemberKind;
  name: string;
}

const MAX_MEMBERS = 1000;

const columns = raw('kind, name, is_manager AS "isManager", quota_id AS "quotaId"');
/** SQL expression that notifies gateways that they must reread the cached rights of callers. */
const notifyRights = sql`pg_notify('tapegate', 'rights')::text`;

/**
 * Checks the input, and that the caller may change the quota's members. Members may always remove themselves from a
 * quota, because managers can add users without their consent.
 * @throws InvalidInputError, NotFoundError, ForbiddenError
 */
function checkMember(ctx: Context, operation: 'setQuotaMember' | 'removeQuotaMember', input: MemberInput): MemberInput {
  const quota = checkText('quota', input.quota);
  const { acts, name: self } = ctx.caller;
  const isLeaving =
    operation === 'removeQuotaMember' && input.kind === 'USER' && input.name === self && hasQuota(acts, quota);
  if (isLeaving) allow(ctx, operation);
  else allowManage(ctx, operation, quota);
  checkOneOf('kind', input.kind, MemberKind);
  const name = checkCallerName('name', input.name);
  return { quota, kind: input.kind, name };
}

/**
 * Adds a member to a quota, or changes whether a member is a manager.
 * @throws InvalidInputError, NotFoundError, ForbiddenError
 */
export async function setQuotaMember(ctx: Context, input: MemberInput & { isManager: boolean }): Promise<Member> {
  const { quota, ...given } = input;
  return await audited(
    ctx,
    { operation: 'setQuotaMember', kind: 'QUOTA', object: quota, given },
    async (auditEntry) => {
      const { kind, name } = checkMember(ctx, 'setQuotaMember', input);
      const [made] = await ctx.db.rows<Member & { isFull: boolean }>(
        sql`WITH q AS (SELECT id FROM quota WHERE "user" = ${quota} AND removed_at IS NULL), made AS (
            INSERT INTO quota_member (quota_id, kind, name, is_manager)
            SELECT q.id, ${kind}::"MemberKind", ${name}, ${input.isManager} FROM q
            WHERE (SELECT count(*) FROM quota_member m WHERE m.quota_id = q.id) < ${MAX_MEMBERS}
              OR EXISTS (SELECT FROM quota_member m WHERE m.quota_id = q.id AND m.kind = ${kind}::"MemberKind" AND m.name = ${name})
            ON CONFLICT (quota_id, kind, name) DO UPDATE SET is_manager = excluded.is_manager RETURNING ${columns}
          ), changed AS (
            SELECT FROM q JOIN made m ON true WHERE NOT EXISTS (
              SELECT FROM quota_member b WHERE b.quota_id = q.id AND b.kind = m.kind AND b.name = m.name AND b.is_manager = m."isManager")
          ), disabled AS (${disableWebhooksOf(ctx, { quota, kind, name }, sql`EXISTS (SELECT FROM changed) AND NOT ${input.isManager}::boolean`)}
          ), entry AS (${auditEntry({ each: sql`SELECT ${quota}::text FROM changed` })}) SELECT m.*, m.kind IS NULL AS "isFull",
            CASE WHEN EXISTS (SELECT FROM changed) THEN ${notifyRights} END AS notified FROM q LEFT JOIN made m ON true`,
      );
      if (!made) throw noQuota(quota);
      if (made.isFull) {
        throw new InvalidInputError(
          'name',
          `cannot be added: quota ${quote(quota)} already has ${MAX_MEMBERS} members, the maximum`,
        );
      }
      return { kind: made.kind, name: made.name, isManager: made.isManager, quotaId: made.quotaId };
    },
  );
}

/** @throws InvalidInputError, NotFoundError, ForbiddenError */
export async function removeQuotaMember(ctx: Context, input: MemberInput): Promise<Member> {
  const { quota: object, ...given } = input;
  return await audited(ctx, { operation: 'removeQuotaMember', kind: 'QUOTA', object, given }, async (auditEntry) => {
    const { quota, kind, name } = checkMember(ctx, 'removeQuotaMember', input);
    const [removed] = await ctx.db.rows<Member>(
      sql`WITH removed AS (
            DELETE FROM quota_member WHERE kind = ${kind}::"MemberKind" AND name = ${name}
              AND quota_id = (SELECT q.id FROM quota q WHERE q."user" = ${quota} AND q.removed_at IS NULL) RETURNING ${columns}
          ), disabled AS (${disableWebhooksOf(ctx, { quota, kind, name }, sql`EXISTS (SELECT FROM removed m WHERE m."isManager")`)}
          ), entry AS (${auditEntry({ each: sql`SELECT ${quota}::text FROM removed` })}) SELECT m.*, ${notifyRights} AS notified FROM removed m`,
    );
    if (!removed)
      throw new NotFoundError(`${kind.toLowerCase()} ${quote(name)} is not a member of quota ${quote(quota)}`);
    return { kind: removed.kind, name: removed.name, isManager: removed.isManager, quotaId: removed.quotaId };
  });
}

/**
 * Returns each quota's members, by quota id. The members of a quota are ordered: users first, then groups, each by
 * name.
 */
export async function readMembers(ctx: Context, quotaIds: readonly number[]): Promise<Map<number, Member[]>> {
  const rows = await ctx.db.rows<Member & { id: number }>(
    sql`SELECT quota_id AS id, ${columns} FROM quota_member WHERE quota_id = ANY(${quotaIds}::int[]) ORDER BY quota_id, kind, name`,
  );
  const members = new Map<number, Member[]>();
  for (const { id, ...member } of rows) members.set(id, [...(members.get(id) ?? []), member]);
  return members;
}

/** Returns a member of a quota, or null if the caller may not see the quota, or if there is no such member. */
export async function readMember(
  ctx: Context,
  { quotaId, kind, name }: Omit<Member, 'isManager'>,
): Promise<Member | null> {
  allow(ctx, 'getQuota');
  return await ctx.db.prisma.quotaMember.findFirst({ where: { quotaId, kind, name, quota: visibleQuotas(ctx) } });
}

export interface Rights {
  /** Users whose quotas the caller may use. */
  uses: string[];
  manages: string[];
  /** A string that changes when the caller's rights or the path rules change. */
  version: string;
}

export async function readRights(ctx: Context, user: string, groups: readonly string[]): Promise<Rights> {
  const rows = await ctx.db.rows<{ user: string | null; isManager: boolean | null; rules: string | null }>(
    sql`SELECT m."user", m.is_manager AS "isManager", r.rules
        FROM (SELECT md5(string_agg(concat_ws('|', r.prefix, r.action, r.kind, r.name), chr(10) ORDER BY r.id)) AS rules FROM path_rule r) r
          LEFT JOIN (
            SELECT q."user", bool_or(m.is_manager) AS is_manager
            FROM quota_member m JOIN quota q ON q.id = m.quota_id AND q.removed_at IS NULL
            WHERE (m.kind = 'USER' AND m.name = ${user}) OR (m.kind = 'GROUP' AND m.name = ANY(${groups}::text[]))
            GROUP BY q."user"
          ) m ON true ORDER BY m."user"`,
  );
  const uses = rows.flatMap((row) => row.user ?? []);
  const manages = rows.flatMap((row) => (row.isManager && row.user !== null ? [row.user] : []));
  return { uses, manages, version: JSON.stringify([uses, manages, rows[0]?.rules]) };
}
