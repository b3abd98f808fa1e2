/** Reads, sets and removes users' quotas. */
import { hasQuota, nameOfOwner, userOwner } from '../../core/caller.js';
import { InUseError, InvalidInputError, noQuota, quote } from '../../core/errors.js';
import { plural } from '../../core/text/plural.js';
import { lockQuotas } from '../../db/locks.js';
import { prepared } from '../../db/prepared.js';
import { raw, sql } from '../../db/sql.js';
import { type Transaction, transaction } from '../../db/transaction.js';
import { Prisma, type Quota } from '../../generated/prisma/client.js';
import { shownDirectory } from '../access/path-rules.js';
import { audited } from '../audit/audited.js';
import { isLive } from '../conditions.js';
import type { Context } from '../context.js';
import { deleteKeysOf } from '../idempotency-keys.js';
import { checkAddress, checkBytes, checkCallerName, checkText, isPlainName } from '../input.js';
import { atListServer } from '../list-server.js';
import { removeWebhooksOf } from '../notifications/webhooks/webhooks.js';
import { countRows, type KeyPage, readPage } from '../page-keys.js';
import { allow, isVisibleQuota } from '../policy.js';
import { columnsOf } from '../row-columns.js';
import { findQuota, type QuotaRow } from './charges.js';

interface SetQuotaInput {
  user: string;
  /** Size of the quota in bytes; required for a new quota. */
  size?: bigint | null | undefined;
  email?: string | null | undefined;
  notes?: string | null | undefined;
  /** The user's weight when drive time is divided among users. Default: 1. */
  weight?: number | null | undefined;
}

/**
 * Smallest and largest weight of a user. Weights close to zero are excluded, because Tapegate divides by the weight.
 */
const WEIGHTS = { min: 1e-6, max: 1e6 };

const SERVICE = 'service:';

function checkWeight(weight: number): number {
  if (weight >= WEIGHTS.min && weight <= WEIGHTS.max) return weight;
  throw new InvalidInputError('weight', `must be a number from ${WEIGHTS.min} to ${WEIGHTS.max}, not ${weight}`);
}

/**
 * Creates, restores or changes a quota. A size below the used bytes prevents new requests but does not end any request.
 */
export async function setQuota(ctx: Context, input: SetQuotaInput) {
  const { user, ...given } = input;
  await audited(ctx, { operation: 'setQuota', kind: 'QUOTA', object: user, given }, async (auditEntry) => {
    checkText('user', user);
    if (user === '') throw new InvalidInputError('user', 'must not be empty');
    const size = input.size == null ? undefined : checkBytes('size', input.size);
    const email = input.email ? checkAddress('email', input.email) : (input.email ?? null);
    const notes = input.notes == null ? null : checkText('notes', input.notes);
    const weight = input.weight == null ? null : checkWeight(input.weight);
    const changes = sql`email = coalesce(${email}::text, q.email), notes = coalesce(${notes}::text, q.notes),
    weight = coalesce(${weight}::float8, q.weight)`;
    await transaction(ctx.db.pool, 'setQuota', async (tx) => {
      await checkNewUser(tx, user);
      const changed = await tx.query(
        size === undefined
          ? sql`UPDATE quota q SET ${changes} WHERE q."user" = ${user} AND q.removed_at IS NULL RETURNING q.id`
          : sql`INSERT INTO quota AS q ("user", size, email, notes, weight)
              VALUES (${user}, ${size}, coalesce(${email}::text, ''), coalesce(${notes}::text, ''), coalesce(${weight}::float8, 1))
              ON CONFLICT ("user") DO UPDATE SET size = excluded.size, removed_at = NULL, ${changes} RETURNING q.id`,
      );
      if (changed.length === 0) {
        throw new InvalidInputError('size', `is required: user ${quote(user)} has no quota yet`);
      }
      await tx.query(auditEntry());
    });
  });
  const [quota] = await ctx.db.rows<Quota>(sql`SELECT ${quotaColumns} FROM quota q WHERE q."user" = ${user}`);
  if (!quota) throw noQuota(user);
  return quota;
}

/**
 * Checks the name of a new quota. Skips the check if the quota already exists.
 * @throws InvalidInputError
 */
async function checkNewUser(tx: Transaction, user: string): Promise<void> {
  if (isPlainName(user) && !user.startsWith(SERVICE)) return;
  const known = await tx.query(sql`SELECT q.id FROM quota q WHERE q."user" = ${user} AND q.removed_at IS NULL`);
  if (known.length > 0) return;
  checkCallerName('user', user);
  throw new InvalidInputError('user', `must not begin with ${SERVICE}, which is reserved for services: ${quote(user)}`);
}

export function listQuotasByPage(ctx: Context) {
  allow(ctx, 'listQuotasByPage');
  const rows = sql`quota q WHERE q.removed_at IS NULL AND ${isVisibleQuota(ctx)}`;
  return {
    count: () => atListServer(ctx, (at) => countRows(at, { rows })),
    page: (page: KeyPage<string>) =>
      atListServer(ctx, (at) => readPage<Quota>(at, { rows, columns: quotaColumns, key: sql`q."user"` }, page)),
  };
}

const quotaColumns = columnsOf(Prisma.QuotaScalarFieldEnum, 'q');

/** @throws NotFoundError */
export async function getQuota(ctx: Context, user: string): Promise<Quota> {
  allow(ctx, 'getQuota');
  const isStorable = !user.includes('\0') && user.isWellFormed() && hasQuota(ctx.caller.reads, user);
  const [quota] = await ctx.db.rows<Quota>(
    prepared(
      sql`SELECT ${quotaColumns} FROM quota q WHERE q."user" = ${isStorable ? user : null}::text AND q.removed_at IS NULL`,
    ),
  );
  if (!quota) throw noQuota(user);
  return quota;
}

/**
 * Returns used bytes by quota id. Does not count requests after their retention date, even if they have not ended yet.
 */
export async function readUsedOf(ctx: Context, quotaIds: readonly number[]): Promise<Map<number, bigint>> {
  const rows = await ctx.db.rows<{ id: number; used: bigint }>(
    sql`SELECT q.id, (q.used - (SELECT coalesce(sum(r.bytes_total), 0) FROM request r
          WHERE r.quota_id = q.id AND ${isLive} AND r.retention <= ${ctx.now()}))::bigint AS used
        FROM quota q WHERE q.id = ANY(${quotaIds}::int[])`,
  );
  return new Map(rows.map((row) => [row.id, row.used]));
}

export async function readUsed(ctx: Context, quota: { id: number }): Promise<bigint> {
  return (await readUsedOf(ctx, [quota.id])).get(quota.id) ?? 0n;
}

/** A caller whose live requests use a quota. */
export interface QuotaUser {
  /** The caller's name; null if unknown, for example because the site does not require authentication. */
  name: string | null;
  requests: number;
  files: number;
  bytes: bigint;
}

export const MAX_QUOTA_USERS = 10;
const MAX_INT = raw('2147483647');

/** Returns the callers whose live requests use the most bytes of each quota, largest first, by quota id. */
export async function readQuotaUsers(ctx: Context, quotaIds: readonly number[]): Promise<Map<number, QuotaUser[]>> {
  const rows = await ctx.db.rows<QuotaUser & { id: number }>(
    sql`SELECT q.id, u.* FROM unnest(${quotaIds}::int[]) AS q (id) CROSS JOIN LATERAL (
          SELECT r.made_by AS name, count(*)::int AS requests, least(sum(r.files_total), ${MAX_INT})::int AS files,
            sum(r.bytes_total) AS bytes
          FROM request r WHERE r.quota_id = q.id AND ${isLive} AND r.retention > ${ctx.now()}
          GROUP BY r.made_by ORDER BY bytes DESC, r.made_by LIMIT ${MAX_QUOTA_USERS}
        ) u ORDER BY u.bytes DESC, u.name`,
  );
  const users = new Map<number, QuotaUser[]>();
  for (const { id, name, ...user } of rows)
    users.set(id, [...(users.get(id) ?? []), { ...user, name: nameOfOwner(name) }]);
  return users;
}

export interface RemovedQuota {
  user: string;
  tokens: number;
  memberOf: string[];
  /**
   * Directories with path rules for the user. The rules remain after the user is removed, and apply to the next user
   * with the same name.
   */
  ruledDirectories: string[];
}

/**
 * Removes a quota, its members, and the user's memberships, webhooks and tokens. Until `setQuota` restores a removed
 * quota, lists omit the quota, and new requests cannot be charged to it.
 * @throws InvalidInputError, UnknownUserError, InUseError
 */
export async function removeQuota(ctx: Context, given: string): Promise<RemovedQuota> {
  return await audited(ctx, { operation: 'removeQuota', kind: 'QUOTA', object: given }, async (auditEntry) => {
    const user = checkText('user', given);
    return await transaction(ctx.db.pool, 'removeQuota', async (tx) => {
      // delete the user's idempotency keys, because the next user of that name might be another person
      const isOfQuota = sql`r.quota_id = (SELECT q.id FROM quota q WHERE q."user" = ${user})`;
      await deleteKeysOf(tx, sql`(${isOfQuota} OR r.made_by = ${userOwner(user)})`);
      await lockQuotas(tx, sql`q."user" = ${user}`, 'quotaAlone');
      const quota = await findQuota(tx, user);
      // set the size to 0, so that older versions of Tapegate, which ignore `removed_at`, reject new requests for the
      // quota
      await tx.query(sql`UPDATE quota SET removed_at = ${ctx.now()}, size = 0 WHERE id = ${quota.id}`);
      const [live] = await tx.query<{ count: number; files: number; bytes: bigint }>(
        sql`SELECT count(*)::int AS count, coalesce(sum(r.files_total), 0)::int AS files,
            coalesce(sum(r.bytes_total), 0) AS bytes
          FROM request r WHERE r.quota_id = ${quota.id} AND ${isLive} AND r.retention > ${ctx.now()}`,
      );
      if (live && live.count > 0) {
        throw new InUseError(
          `quota ${quote(user)} has ${plural(live.count, 'live request')} with ${plural(live.files, 'file')} (${plural(live.bytes, 'byte')} in total): cancel ${live.count === 1 ? 'it' : 'them'} first`,
        );
      }
      const [tokens, memberOf] = [await revokeTokens(ctx, tx, user), await removeMembers(tx, quota)];
      await removeWebhooksOf(tx, user);
      const withdrawn = { ...(tokens > 0 ? { tokens } : {}), ...(memberOf.length > 0 ? { memberOf } : {}) };
      await tx.query(auditEntry({ given: withdrawn }));
      return { user, tokens, memberOf, ruledDirectories: await findRulesOf(tx, user) };
    });
  });
}

/**
 * Removes the quota's members and the user's memberships, because the next user of that name might be another person.
 */
async function removeMembers(tx: Transaction, { id, user }: QuotaRow): Promise<string[]> {
  const removed = await tx.query<{ id: number; user: string }>(
    sql`DELETE FROM quota_member m USING quota q
        WHERE q.id = m.quota_id AND (m.quota_id = ${id} OR (m.kind = 'USER' AND m.name = ${user})) RETURNING q.id, q."user"`,
  );
  if (removed.length > 0) await tx.query(sql`SELECT pg_notify('tapegate', 'rights')`);
  return removed.flatMap((quota) => (quota.id === id ? [] : quota.user)).sort();
}

/**
 * Returns the directories with path rules for the user. `removeQuota` keeps the rules of a removed user, because a
 * directory without rules is visible to all users.
 */
async function findRulesOf(tx: Transaction, user: string): Promise<string[]> {
  const names = [user, `user:${user}`];
  const rows = await tx.query<{ prefix: string }>(
    sql`SELECT DISTINCT p.prefix FROM path_rule p WHERE p.kind = 'USER' AND p.name = ANY(${names}::text[]) ORDER BY p.prefix`,
  );
  return rows.map(({ prefix }) => shownDirectory(prefix));
}

/**
 * Revokes the user's tokens, because the next user of that name might be another person. Also revokes service tokens
 * that act only for the user.
 */
async function revokeTokens(ctx: Context, tx: Transaction, user: string): Promise<number> {
  const remaining = sql`array_remove(t.quotas, ${user})`;
  const rows = await tx.query(
    sql`UPDATE api_token t SET revoked_at = CASE WHEN ${remaining} = '{}' THEN ${ctx.now()}::timestamp END,
          quotas = CASE WHEN ${remaining} = '{}' THEN t.quotas ELSE ${remaining} END
        WHERE t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > ${ctx.now()})
          AND ((t.role = 'USER' AND t.name = ${user}) OR (t.role = 'SERVICE' AND ${user} = ANY(t.quotas))) RETURNING t.id`,
  );
  if (rows.length > 0) await tx.query(sql`SELECT pg_notify('tapegate', 'access')`);
  return rows.length;
}
