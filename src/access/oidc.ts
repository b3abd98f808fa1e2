/**
 * Callers that show a bearer token of an identity provider: a signed JWT of OpenID Connect or OAuth 2 (RFC 9068), with the
 * claims of the WLCG token profile where it has them.
 */
import { createHash } from 'node:crypto';
import { decodeJwt, decodeProtectedHeader, errors, type JWTPayload, jwtVerify } from 'jose';
import type { Context } from '../context.js';
import { HttpError } from '../http-body.js';
import { isBefore, timeOf } from '../time.js';
import type { Identity } from './callers.js';
import { invalidToken } from './credentials.js';
import { Issuer } from './issuer.js';
import { checkName, checkNoIssuers, nameOfIssuer } from './names.js';
import { rolesOf } from './proxy.js';
import { Recent } from './recent.js';

/** Signed by a key that its issuer alone has: never `none`, and no secret that we would have to share. */
const ALGORITHMS = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
];

/** An access token, and what does not say what it is; not what an issuer signs for other ends. */
const TYPES = /^((application\/)?at\+)?jwt$/i;

/** Seconds by which the clock of an issuer may differ. */
const CLOCK_SKEW_SECONDS = 60;

/** For so long a token is not verified again. */
const KNOWN_MS = 2000;

export class OidcCallers {
  private readonly ctx: Context;
  private readonly issuers: ReadonlyMap<string, Issuer>;
  private readonly recent = new Recent<Identity>(KNOWN_MS);

  constructor(ctx: Context) {
    this.ctx = ctx;
    this.issuers = new Map(ctx.config.access.oidcIssuers.map((url) => [url, new Issuer(url, ctx.log)]));
  }

  /**
   * @returns undefined where it is no JWT at all
   * @throws HttpError 401; 403 for one that is not for what is done here; 503 while nobody can tell
   */
  async find(token: string): Promise<Identity | undefined> {
    if (!/^[\w-]+\.[\w-]+\.[\w-]*$/.test(token)) return undefined;
    const key = createHash('sha256').update(token).digest('base64');
    const identity = await this.recent.get(key, () => this.verify(token));
    const isOver = identity.expiresAt !== undefined && !isBefore(this.ctx.now(), identity.expiresAt);
    if (isOver) throw invalidToken('the token has expired');
    return identity;
  }

  private async verify(token: string): Promise<Identity> {
    const { oidcAudiences } = this.ctx.config.access;
    const issuer = this.findIssuer(token);
    try {
      const { payload } = await jwtVerify(token, issuer.getKey, {
        issuer: issuer.url,
        audience: [...oidcAudiences],
        algorithms: ALGORITHMS,
        clockTolerance: CLOCK_SKEW_SECONDS,
        currentDate: new Date(`${this.ctx.now()}Z`),
        requiredClaims: ['exp'],
      });
      return this.identify(payload, issuer);
    } catch (error) {
      throw error instanceof HttpError ? error : invalidToken(describeFault(error));
    }
  }

  /** Who is said to have signed it, and by which key, which is what is verified then. */
  private findIssuer(token: string): Issuer {
    let issuer: Issuer | undefined;
    try {
      const { kid, typ = 'JWT' } = decodeProtectedHeader(token);
      if (typeof kid !== 'string') throw invalidToken('the token does not say by which key it is signed (kid)');
      if (!TYPES.test(typ)) throw invalidToken('the token is no access token (typ)');
      issuer = this.issuers.get(decodeJwt(token).iss ?? '');
    } catch (error) {
      throw error instanceof HttpError ? error : invalidToken('the token is no JWT');
    }
    if (!issuer) throw invalidToken('the token is of an issuer that is not known here');
    return issuer;
  }

  private identify(payload: JWTPayload, issuer: Issuer): Identity {
    const { access } = this.ctx.config;
    const { oidcUserClaim, oidcGroupsClaims, oidcRoles } = access;
    const user = readClaim(payload, oidcUserClaim);
    const told = checkName(typeof user === 'string' ? user : '', `the claim ${oidcUserClaim}`);
    const named = readWords(
      oidcGroupsClaims.map((claim) => readClaim(payload, claim)).find((found) => found !== undefined),
    );
    const [name = '', ...groups] = [told, ...named].map((given) => nameOfIssuer(access, issuer.url, given));
    if (issuer.url === access.oidcIssuers[0]) checkNoIssuers(access, [name, ...groups], 'the token');
    const { roles, isReadOnly } = limitRoles(rolesOf(oidcRoles, name, groups), readWords(payload.scope));
    return { name, way: 'oidc', roles, groups, isReadOnly, expiresAt: timeOf((payload.exp ?? 0) + CLOCK_SKEW_SECONDS) };
  }
}

/** By its name, which may have dots in it, or by a path of names. */
function readClaim(payload: JWTPayload, claim: string): unknown {
  if (Object.hasOwn(payload, claim)) return payload[claim];
  let value: unknown = payload;
  for (const name of claim.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
    value = (value as Record<string, unknown>)[name];
  }
  return value;
}

/** A list of texts, or one text with words. */
function readWords(value: unknown): string[] {
  if (typeof value === 'string') return value.split(/[\s,]+/).filter((word) => word !== '');
  return Array.isArray(value) ? value.filter((word) => typeof word === 'string') : [];
}

/**
 * A token with scopes of the WLCG profile for storage is good for these alone, whoever shows it: `storage.stage` asks for
 * files, `storage.read` reads, and neither operates. One that is limited to a path is not good for all that is here.
 * @throws HttpError 403
 */
function limitRoles(
  roles: Identity['roles'],
  scopes: readonly string[],
): { roles: Identity['roles']; isReadOnly: boolean } {
  if (!scopes.some((scope) => scope.startsWith('storage.'))) return { roles, isReadOnly: false };
  const has = (scope: string) => scopes.includes(scope) || scopes.includes(`${scope}:/`);
  if (!has('storage.stage') && !has('storage.read')) {
    throw new HttpError(403, 'the token is for other things: it takes the scope storage.read or storage.stage, of /', {
      'WWW-Authenticate': 'Bearer error="insufficient_scope", scope="storage.read:/ storage.stage:/"',
    });
  }
  const own = [...roles].filter((role) => role !== 'operator');
  return { roles: new Set(own), isReadOnly: !has('storage.stage') };
}

const FAULTS: Record<string, string> = {
  [errors.JWTExpired.code]: 'the token has expired',
  [errors.JOSEAlgNotAllowed.code]: 'the token is not signed as is asked for here (alg)',
  [errors.JWKSNoMatchingKey.code]: 'the token is not signed by a key of its issuer',
  [errors.JWSSignatureVerificationFailed.code]: 'the token is not signed by a key of its issuer',
};

const CLAIM_FAULTS: Record<string, string> = {
  aud: 'the token is for somebody else (aud)',
  exp: 'the token does not say when it expires (exp)',
  nbf: 'the token is not good yet (nbf)',
};

/** For people; it repeats nothing of the token. */
function describeFault(error: unknown): string {
  const fallback = 'the token is not valid';
  if (error instanceof errors.JWTClaimValidationFailed) return CLAIM_FAULTS[error.claim] ?? fallback;
  return error instanceof errors.JOSEError ? (FAULTS[error.code] ?? fallback) : fallback;
}
