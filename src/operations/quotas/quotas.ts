/** Users and their quotas. */

import { hasQuota } from '../../caller.js';
import type { Context } from '../../context.js';
import { prepared } from '../../database/prepared.js';
import { sql } from '../../database/sql.js';
import { type Transaction, transaction } from '../../database/transaction.js';
import { InvalidInputError, NotFoundError, quote } from '../../errors.js';
import { Prisma, type Quota } from '../../generated/prisma/client.js';
import { audited, type Note } from '../audit/audited.js';
import { checkAddress, checkBytes, checkCallerName, checkText, isPlainName } from '../input.js';
import { atListServer } from '../list-server.js';
import { countRows, type KeyPage, readPage } from '../page-keys.js';
import { allow, isVisibleQuota } from '../policy.js';
import { columnsOf } from '../row-columns.js';

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
  await audited(ctx, { operation: 'setQuota', kind: 'QUOTA', object: user, given }, (note) =>
    changeQuota(ctx, input, note),
  );
  return await ctx.db.prisma.quota.findUniqueOrThrow({ where: { user } });
}

async function changeQuota(ctx: Context, input: SetQuotaInput, note: Note): Promise<void> {
  allow(ctx, 'setQuota');
  const user = checkText('user', input.user);
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

/** Reads quotas by their ids, of requests that the caller sees. */
export async function readQuotas(ctx: Context, ids: readonly number[]): Promise<Map<number, Quota>> {
  const { rows } = await ctx.db.pool.query<Quota>(
    prepared(sql`SELECT ${quotaColumns} FROM quota q WHERE q.id = ANY(${ids}::int[])`),
  );
  return new Map(rows.map((quota) => [quota.id, quota]));
}

export async function listQuotas(ctx: Context) {
  return await ctx.db.prisma.quota.findMany({ where: { removedAt: null }, orderBy: { user: 'asc' } });
}
