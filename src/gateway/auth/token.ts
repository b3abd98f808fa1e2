/**
 * Identifies callers by an API token. A client sends the token as a bearer token, or as a password with the token's
 * name as the user name.
 */
import type { IncomingMessage } from 'node:http';
import type { Caller, Role } from '../../core/caller.js';
import { Limiter } from '../../core/limiter.js';
import { findToken, isMeantAsToken, isToken, type Token } from '../../domain/access/tokens.js';
import type { Context } from '../../domain/context.js';
import type { TokenRole } from '../../generated/prisma/enums.js';
import { addressKey, isConfidential } from '../http/address.js';
import { Recent, toCaller } from './callers.js';
import { type Credentials, unauthenticated } from './credentials.js';

const roleOf: Record<TokenRole, Role> = { USER: 'user', VIEWER: 'viewer', OPERATOR: 'operator', SERVICE: 'service' };

const UNKNOWN = 'the token is unknown, has expired or was revoked';

/** Milliseconds for which a valid token is cached. Revoking a token clears the cache immediately. */
const KNOWN_MS = 2000;

/**
 * Maximum number of concurrent token lookups. Without this limit, lookups of invalid tokens could occupy all database
 * connections.
 */
const LOOKUPS = 8;

export class TokenCallers {
  private readonly ctx: Context;
  private readonly lookups = new Limiter(LOOKUPS);
  private readonly recent = new Recent<{ token: Token; caller: Caller }>(KNOWN_MS);

  constructor(ctx: Context) {
    this.ctx = ctx;
    for (const signal of ['access', 'rights']) ctx.events.onNotify(signal, () => this.recent.clear());
  }

  /** @returns the token's caller; undefined if the credentials are not an API token @throws HttpError 401 */
  async find(req: IncomingMessage, shown: Credentials, address: string | undefined): Promise<Caller | undefined> {
    if (!isMeantAsToken(shown.secret)) return undefined;
    if (!isToken(shown.secret)) throw unauthenticated(UNKNOWN);
    const found = await this.recent.get(shown.secret, () => this.loadLimited(shown.secret, addressKey(address)));
    if (shown.scheme === 'basic') {
      if (!isConfidential(req)) throw unauthenticated('a password is accepted only over TLS or from the same host');
      if (shown.name !== found.token.name) throw unauthenticated('the token does not belong to the given user name');
    }
    return { ...found.caller, address };
  }

  private async loadLimited(secret: string, key: string): Promise<{ token: Token; caller: Caller }> {
    const release = await this.lookups.take({ key });
    return await this.load(secret).finally(release);
  }

  /**
   * Loads a token and its caller. For an invalid token, throws an error instead of returning undefined, because the
   * cache does not store errors.
   */
  private async load(secret: string): Promise<{ token: Token; caller: Caller }> {
    const token = await findToken(this.ctx, secret);
    if (!token) throw unauthenticated(UNKNOWN);
    return { token, caller: await toTokenCaller(this.ctx, token) };
  }
}

/** Returns the caller that a valid token identifies. */
export async function toTokenCaller(ctx: Context, token: Token): Promise<Caller> {
  const { id, name, role, quotas, isReadOnly, expiresAt } = token;
  const identity = { name, way: 'token', roles: new Set([roleOf[role]]), quotas, isReadOnly, tokenId: id } as const;
  return await toCaller(ctx, { ...identity, expiresAt: expiresAt?.toString() });
}
