/** Users and their quotas. */
import { hasQuota } from '../../caller.js';
import type { Context } from '../../context.js';
import { lockQuotas } from '../../database/locks.js';
import { prepared } from '../../database/prepared.js';
import { sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { InUseError, InvalidInputError, NotFoundError, quote } from '../../errors.js';
import { Prisma, type Quota } from '../../generated/prisma/client.js';
import { plural } from '../../plural.js';
import { shownFolder } from '../access/path-rules.js';
import { audited } from '../audit/audited.js';
import { isLive } from '../conditions.js';
import { checkAddress, checkBytes, checkCallerName, checkText, isPlainName } from '../input.js';
import { atListServer } from '../list-server.js';
import { countRows, type KeyPage, readPage } from '../page-keys.js';
import { allow, isVisibleQuota } from '../policy.js';
import { columnsOf } from '../row-columns.js';
import { removeWebhooksOf } from '../webhooks/webhooks.js';
import { findQuota, type QuotaRow } from './charges.js';

export interface SetQuotaInput {
  user: string;
  /** Bytes; a new quota needs it. */
  size?: bigint | null | undefined;
  email?: string | null | undefined;
  notes?: string | null | undefined;
  /** Part of the drives, beside the other users' weights; 1 unless given. */
  weight?: number | null | undefined;
}

/** Far beyond what a site needs; what is divided by a weight stays a number. */
const WEIGHTS = { min: 1e-6, max: 1e6 };

/** As services are called beside users: in rules, for one. */
const SERVICE = 'service:';

/** @throws InvalidInputError */
export function checkWeight(weight: number): number {
  if (weight >= WEIGHTS.min && weight <= WEIGHTS.max) return weight;
  throw new InvalidInputError('weight', `must be a number from ${WEIGHTS.min} to ${WEIGHTS.max}, not ${weight}`);
}

/** Makes a quota, or changes what is given of a known one; one that was removed is there again. A size below what is used stops new requests only. */
export async function setQuota(ctx: Context, input: SetQuotaInput) {
  const { user, ...given } = input;
  await audited(ctx, { operation: 'setQuota', kind: 'QUOTA', object: user, given }, async (note) => {
    allow(ctx, 'setQuota');
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
        throw new InvalidInputError('size', `must be given for a new quota, and user ${quote(user)} has none yet`);
      }
      await tx.query(note());
    });
  });
  return await ctx.db.prisma.quota.findUniqueOrThrow({ where: { user } });
}

/**
 * A new quota is somebody's who can be called so. One that is there may have any name, since it was made before this was asked, or adopted.
 * @throws InvalidInputError
 */
async function checkNewUser(tx: Transaction, user: string): Promise<void> {
  if (isPlainName(user) && !user.startsWith(SERVICE)) return;
  const known = await tx.query(sql`SELECT q.id FROM quota q WHERE q."user" = ${user} AND q.removed_at IS NULL`);
  if (known.length > 0) return;
  checkCallerName('user', user);
  throw new InvalidInputError('user', `must not begin with ${SERVICE}, as the names of services do: ${quote(user)}`);
}

/** Quotas in order of their users: counted, or by the page. */
export function listQuotasByPage(ctx: Context) {
  allow(ctx, 'listQuotasByPage');
  const rows = sql`quota q WHERE q.removed_at IS NULL AND ${isVisibleQuota(ctx)}`;
  return {
    count: () => atListServer(ctx, 'listQuotasByPage', (at) => countRows(at, { rows })),
    page: (page: KeyPage<string>) =>
      atListServer(ctx, 'listQuotasByPage', (at) =>
        readPage<Quota>(at, { rows, columns: quotaColumns, key: sql`q."user"` }, page),
      ),
  };
}

const quotaColumns = columnsOf(Prisma.QuotaScalarFieldEnum, 'q');

/** @throws NotFoundError */
export async function getQuota(ctx: Context, user: string): Promise<Quota> {
  allow(ctx, 'getQuota');
  const isStorable = !user.includes('\0') && user.isWellFormed() && hasQuota(ctx.caller.reads, user);
  const { rows } = await ctx.db.pool.query<Quota>(
    prepared(
      sql`SELECT ${quotaColumns} FROM quota q WHERE q."user" = ${isStorable ? user : null}::text AND q.removed_at IS NULL`,
    ),
  );
  const [quota] = rows;
  if (!quota) throw new NotFoundError(`there is no user ${quote(user)}`);
  return quota;
}

export async function listQuotas(ctx: Context) {
  return await ctx.db.prisma.quota.findMany({ where: { removedAt: null }, orderBy: { user: 'asc' } });
}

/**
 * Bytes of quotas in use now, by the ids of the quotas: requests past their retention no longer count, even where
 * nobody has ended them yet.
 */
export async function readUsedOf(ctx: Context, quotaIds: readonly number[]): Promise<Map<number, bigint>> {
  const { rows } = await ctx.db.pool.query<{ id: number; used: bigint }>(
    sql`SELECT q.id, (q.used - (SELECT coalesce(sum(r.bytes_total), 0) FROM request r
          WHERE r.quota_id = q.id AND ${isLive} AND r.retention <= ${ctx.now()}))::bigint AS used
        FROM quota q WHERE q.id = ANY(${quotaIds}::int[])`,
  );
  return new Map(rows.map((row) => [row.id, row.used]));
}

export async function readUsed(ctx: Context, quota: { id: number }): Promise<bigint> {
  return (await readUsedOf(ctx, [quota.id])).get(quota.id) ?? 0n;
}

export interface RemovedQuota {
  user: string;
  /** How many are good for less. */
  tokens: number;
  /** The users of the quotas that it was a member or a manager of, and is no longer. */
  memberOf: string[];
  /** Those with rules that name the user, for whoever has the name next: they stay. */
  ruledFolders: string[];
}

/**
 * Takes a user's allowance away: it is in no list any more, and no request is charged to it, until `setQuota` makes it
 * anew; nobody is a member of it any more, no webhook is told of it, its user is a member of no other, and no token stands for it. Requests that have ended are
 * still told by their ids.
 * @throws InvalidInputError; UnknownUserError; InUseError with the figures, while requests of the user live
 */
export async function removeQuota(ctx: Context, given: string): Promise<RemovedQuota> {
  return await audited(ctx, { operation: 'removeQuota', kind: 'QUOTA', object: given }, async (note) => {
    allow(ctx, 'removeQuota');
    const user = checkText('user', given);
    return await transaction(ctx.db.pool, 'removeQuota', async (tx) => {
      await lockQuotas(tx, sql`q."user" = ${user}`, 'quotaAlone');
      const quota = await findQuota(tx, user);
      // a size of nothing keeps programs out that do not know of quotas that were removed
      await tx.query(sql`UPDATE quota SET removed_at = ${ctx.now()}, size = 0 WHERE id = ${quota.id}`);
      const [live] = await tx.query<{ count: number; files: number; bytes: bigint }>(
        sql`SELECT count(*)::int AS count, coalesce(sum(r.files_total), 0)::int AS files,
            coalesce(sum(r.bytes_total), 0) AS bytes
          FROM request r WHERE r.quota_id = ${quota.id} AND ${isLive} AND r.retention > ${ctx.now()}`,
      );
      if (live && live.count > 0) {
        throw new InUseError(
          `the quota of user ${quote(user)} has ${plural(live.count, 'live request')} with ${plural(live.files, 'file')} of ${plural(live.bytes, 'byte')}: cancel ${live.count === 1 ? 'it' : 'them'} first`,
        );
      }
      const [tokens, memberOf] = [await withdrawTokens(ctx, tx, user), await withdrawMembers(tx, quota)];
      await removeWebhooksOf(tx, user);
      const withdrawn = { ...(tokens > 0 ? { tokens } : {}), ...(memberOf.length > 0 ? { memberOf } : {}) };
      await tx.query(note({ given: withdrawn }));
      return { user, tokens, memberOf, ruledFolders: await findRuled(tx, user) };
    });
  });
}

/**
 * Whoever has the quota anew says anew who else uses it; and it may be another person of that name, who is no member of what the
 * first one was.
 * @returns the users of the quotas that the user was a member or a manager of
 */
async function withdrawMembers(tx: Transaction, { id, user }: QuotaRow): Promise<string[]> {
  const gone = await tx.query<{ id: number; user: string }>(
    sql`DELETE FROM quota_member m USING quota q
        WHERE q.id = m.quota_id AND (m.quota_id = ${id} OR (m.kind = 'USER' AND m.name = ${user})) RETURNING q.id, q."user"`,
  );
  if (gone.length > 0) await tx.query(sql`SELECT pg_notify('tapegate', 'rights')`);
  return gone.flatMap((quota) => (quota.id === id ? [] : quota.user)).sort();
}

/** Rules stay: where the only one of a folder went, everybody could see it. @returns the folders of those that name the user */
async function findRuled(tx: Transaction, user: string): Promise<string[]> {
  const names = [user, `user:${user}`];
  const rows = await tx.query<{ prefix: string }>(
    sql`SELECT DISTINCT p.prefix FROM path_rule p WHERE p.kind = 'USER' AND p.name = ANY(${names}::text[]) ORDER BY p.prefix`,
  );
  return rows.map(({ prefix }) => shownFolder(prefix));
}

/**
 * Whoever has the quota anew may be another person of that name: the user's tokens are revoked, and services act for the user no longer;
 * one that acted for nobody else is revoked, too.
 * @returns how many tokens are good for less
 */
async function withdrawTokens(ctx: Context, tx: Transaction, user: string): Promise<number> {
  const left = sql`array_remove(t.quotas, ${user})`;
  const rows = await tx.query(
    sql`UPDATE api_token t SET revoked_at = CASE WHEN ${left} = '{}' THEN ${ctx.now()}::timestamp END,
          quotas = CASE WHEN ${left} = '{}' THEN t.quotas ELSE ${left} END
        WHERE t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > ${ctx.now()})
          AND ((t.role = 'USER' AND t.name = ${user}) OR (t.role = 'SERVICE' AND ${user} = ANY(t.quotas))) RETURNING t.id`,
  );
  if (rows.length > 0) await tx.query(sql`SELECT pg_notify('tapegate', 'access')`);
  return rows.length;
}
