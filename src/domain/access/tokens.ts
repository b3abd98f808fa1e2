/**
 * Creates, lists, revokes and finds API tokens. Tapegate shows a token only when it is created, and stores only the
 * token's hash.
 */
import { createHash, randomBytes } from 'node:crypto';
import { InvalidInputError, NotFoundError, quote } from '../../core/errors.js';
import { isBefore } from '../../core/time.js';
import { locking } from '../../db/locks.js';
import { type Sql, sql } from '../../db/sql.js';
import { transaction } from '../../db/transaction.js';
import { type ApiToken, TokenRole } from '../../generated/prisma/client.js';
import { audited } from '../audit/audited.js';
import type { Context } from '../context.js';
import { checkCallerName, checkOneOf, checkText, checkTime, isReserved } from '../input.js';
import type { KeyPage } from '../page-keys.js';
import { allow } from '../policy.js';
import { disableWebhooksOfToken } from '../webhook-authors.js';

/** Prefix of every token, so that secret scanners can recognise leaked tokens in logs and repositories. */
const PREFIX = 'tapegate_';
const SECRET_BYTES = 32;
const TOKEN = /^tapegate_[\w-]{43}$/;

interface CreateTokenInput {
  name: string;
  role: TokenRole;
  /**
   * Users for whom a service token acts. The list of users is required for a service token, and not allowed for other
   * tokens.
   */
  quotas?: readonly string[] | null | undefined;
  isReadOnly?: boolean | null | undefined;
  note?: string | null | undefined;
  /** Expiry time; absent if the token is valid until revoked. */
  expiresAt?: string | null | undefined;
}

export type Token = Omit<ApiToken, 'hash'>;

const shown = { hash: true } as const;

/** @returns the token and its secret, which cannot be read later @throws InvalidInputError */
export async function createToken(ctx: Context, input: CreateTokenInput): Promise<{ token: Token; secret: string }> {
  const secret = PREFIX + randomBytes(SECRET_BYTES).toString('base64url');
  const action = { operation: 'createToken', kind: 'TOKEN', object: '', given: input } as const;
  const id = await audited(ctx, action, async (record) => {
    const { name, quotas, expiresAt, note } = checkToken(input, ctx.now());
    return await transaction(ctx.db.pool, 'createToken', async (tx) => {
      const [row] = await tx.query<{ id: number }>(
        sql`INSERT INTO api_token (hash, name, role, quotas, is_read_only, note, made_at, made_by, expires_at)
          VALUES (${hashOf(secret)}, ${name}, ${input.role}, ${quotas}::text[], ${input.isReadOnly ?? false}, ${note}, ${ctx.now()},
            ${ctx.caller.name}, ${expiresAt}) RETURNING id`,
      );
      const { id } = row as { id: number };
      await tx.query(record({ object: id }));
      return id;
    });
  });
  const token = await ctx.db.prisma.apiToken.findUniqueOrThrow({ where: { id }, omit: shown });
  return { token, secret };
}

/**
 * Maximum number of quotas that a token gives access to. Tapegate reads all of a token's quotas at each HTTP request
 * with the token.
 */
const MAX_QUOTAS = 1000;

/** @throws InvalidInputError */
function checkToken(input: CreateTokenInput, now: string) {
  const name = checkCallerName('name', input.name);
  checkOneOf('role', input.role, TokenRole);
  // the reserved name `operator` is allowed for an operator's token
  if (isReserved(name) && !(name === 'operator' && input.role === 'OPERATOR'))
    throw new InvalidInputError('name', `must not be a reserved name: ${quote(name)}`);
  if (name.includes(':')) throw new InvalidInputError('name', `must not contain a colon: ${quote(name)}`);
  const quotas = [...new Set(input.quotas ?? [])].map((user) => checkText('quotas', user));
  if ((input.role === 'SERVICE') !== quotas.length > 0) {
    const problem =
      input.role === 'SERVICE'
        ? 'must list the users for whom the service acts'
        : 'must be absent unless role is SERVICE';
    throw new InvalidInputError('quotas', problem);
  }
  if (quotas.length > MAX_QUOTAS) {
    throw new InvalidInputError('quotas', `must list at most ${MAX_QUOTAS} users, not ${quotas.length}`);
  }
  const expiresAt = input.expiresAt ? checkTime('expiresAt', input.expiresAt) : null;
  if (expiresAt !== null && !isBefore(now, expiresAt)) {
    throw new InvalidInputError('expiresAt', `must be in the future: ${expiresAt} is not after ${now}`);
  }
  return { name, quotas, expiresAt, note: checkText('note', input.note ?? '') };
}

/** Returns a page of all tokens ever created, ordered by id. */
export async function listTokens(ctx: Context, page: KeyPage<number>): Promise<Token[]> {
  allow(ctx, 'listTokens');
  const { after = 0, before = MAX_ID, limit, inverted } = page;
  return await ctx.db.prisma.apiToken.findMany({
    where: { id: { gt: after, lt: before } },
    orderBy: { id: inverted ? 'desc' : 'asc' },
    take: limit,
    omit: shown,
  });
}

/** Returns a token, or null if no token has the id. */
export async function readToken(ctx: Context, id: number): Promise<Token | null> {
  allow(ctx, 'listTokens');
  return await ctx.db.prisma.apiToken.findUnique({ where: { id }, omit: shown });
}

export async function countTokens(ctx: Context): Promise<number> {
  allow(ctx, 'listTokens');
  return await ctx.db.prisma.apiToken.count();
}

const MAX_ID = 2 ** 31 - 1;

/**
 * Revokes a token, and ends streams that were opened with the token. A second revocation does not change the revocation
 * time.
 * @throws NotFoundError
 */
export async function revokeToken(ctx: Context, id: number): Promise<Token> {
  await audited(ctx, { operation: 'revokeToken', kind: 'TOKEN', object: id }, async (auditEntry) => {
    await transaction(ctx.db.pool, 'revokeToken', async (tx) => {
      const known = await tx.query(
        sql`UPDATE api_token SET revoked_at = coalesce(revoked_at, ${ctx.now()}) WHERE id = ${id} RETURNING id`,
      );
      if (known.length === 0) throw new NotFoundError(`there is no token with id ${id}`);
      await tx.query(disableWebhooksOfToken(ctx, id));
      await tx.query(sql`SELECT pg_notify('tapegate', 'access')`);
      await tx.query(auditEntry());
    });
  });
  return await ctx.db.prisma.apiToken.findUniqueOrThrow({ where: { id }, omit: shown });
}

/** Returns whether the text begins with the token prefix, even if it is not a valid token. */
export function isMeantAsToken(text: string): boolean {
  return text.startsWith(PREFIX);
}

/**
 * Returns whether the text has a token's format. The caller does not look up a text without this format in the
 * database.
 */
export function isToken(text: string): boolean {
  return TOKEN.test(text);
}

function hashOf(secret: string): Buffer<ArrayBuffer> {
  return Buffer.from(createHash('sha256').update(secret).digest());
}

export const findToken = (ctx: Context, secret: string): Promise<Token | undefined> =>
  findValid(ctx, sql`t.hash = ${hashOf(secret)}`);

/** Returns a token that is still valid. */
export const findTokenById = (ctx: Context, id: number): Promise<Token | undefined> =>
  findValid(ctx, sql`t.id = ${id}::int`);

async function findValid(ctx: Context, which: Sql): Promise<Token | undefined> {
  const [token] = await ctx.db.rows<Token>(
    sql`SELECT t.id, t.name, t.role, t.quotas, t.is_read_only AS "isReadOnly", t.note, t.made_at AS "madeAt", t.made_by AS "madeBy",
          t.expires_at AS "expiresAt", t.revoked_at AS "revokedAt", t.used_at AS "usedAt"
        FROM api_token t WHERE ${which} AND t.revoked_at IS NULL
          AND (t.expires_at IS NULL OR t.expires_at > ${ctx.now()})`,
  );
  if (token) await recordUse(ctx, token);
  return token;
}

/**
 * Records when a token was used, at most once an hour, to limit database writes. Records nothing if the token's row is
 * locked.
 */
async function recordUse(ctx: Context, { id }: Token): Promise<void> {
  await ctx.db.pool.query(
    sql`UPDATE api_token SET used_at = ${ctx.now()}
        WHERE id IN (SELECT t.id FROM api_token t WHERE t.id = ${id}
          AND (t.used_at IS NULL OR t.used_at < ${ctx.now()}::timestamp - interval '1 hour') ${locking.freeToken})`,
  );
}

/** Returns the ids in `ids` whose tokens are no longer valid. */
export async function findEnded(ctx: Context, ids: readonly number[]): Promise<Set<number>> {
  const rows = await ctx.db.rows<{ id: number }>(
    sql`SELECT i.id FROM unnest(${ids}::int[]) AS i (id) WHERE NOT EXISTS (
          SELECT FROM api_token t WHERE t.id = i.id AND t.revoked_at IS NULL
            AND (t.expires_at IS NULL OR t.expires_at > ${ctx.now()}))`,
  );
  return new Set(rows.map(({ id }) => id));
}
