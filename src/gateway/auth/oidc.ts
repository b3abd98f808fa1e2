/**
 * Identifies callers by a bearer token from an identity provider. The token is a signed JWT of OpenID Connect or OAuth
 * 2 (RFC 9068), and can contain the claims of the WLCG token profile.
 */
import { createHash } from 'node:crypto';
import {
  createRemoteJWKSet,
  customFetch,
  decodeJwt,
  decodeProtectedHeader,
  errors,
  type JWTPayload,
  type JWTVerifyGetKey,
  jwtVerify,
} from 'jose';
import type { Logger } from 'pino';
import { codeOf, messageOf } from '../../core/errors.js';
import { fetchBounded } from '../../core/net/bounded-fetch.js';
import { isTrustworthyUrl } from '../../core/net/issuer-urls.js';
import { isBefore, timeOf } from '../../core/time.js';
import type { Context } from '../../domain/context.js';
import { HttpError } from '../http/http-body.js';
import { checkName, checkNoIssuers, type Identity, nameOfIssuer, Recent } from './callers.js';
import { invalidToken } from './credentials.js';
import { rolesOf } from './proxy.js';

/**
 * Accepted signature algorithms. All accepted algorithms are asymmetric, because Tapegate does not accept shared
 * secrets.
 */
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

/** Matches the types of accepted tokens: access tokens and plain JWTs. */
const TYPES = /^((application\/)?at\+)?jwt$/i;

const CLOCK_SKEW_SECONDS = 60;

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
   * @returns the identity that the token names; undefined if the token is not a JWT
   * @throws HttpError 401 if the token is invalid; 403 if the token lacks a required scope; 503 if the issuer is
   * unavailable
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
      throw error instanceof HttpError ? error : invalidToken(describeProblem(error));
    }
  }

  private findIssuer(token: string): Issuer {
    let issuer: Issuer | undefined;
    try {
      const { kid, typ = 'JWT' } = decodeProtectedHeader(token);
      if (typeof kid !== 'string') throw invalidToken('the token has no key id (kid)');
      if (!TYPES.test(typ)) throw invalidToken('the token is not an access token (typ)');
      issuer = this.issuers.get(decodeJwt(token).iss ?? '');
    } catch (error) {
      throw error instanceof HttpError ? error : invalidToken('the token is not a JWT');
    }
    if (!issuer) throw invalidToken("the token's issuer is not trusted (iss)");
    return issuer;
  }

  private identify(payload: JWTPayload, issuer: Issuer): Identity {
    const { access } = this.ctx.config;
    const { oidcUserClaim, oidcGroupsClaims, oidcRoles } = access;
    const user = readClaim(payload, oidcUserClaim);
    const userName = checkName(typeof user === 'string' ? user : '', `the claim ${oidcUserClaim}`);
    const named = readWords(
      oidcGroupsClaims.map((claim) => readClaim(payload, claim)).find((found) => found !== undefined),
    );
    const [name = '', ...groups] = [userName, ...named].map((given) => nameOfIssuer(access, issuer.url, given));
    if (issuer.url === access.oidcIssuers[0]) checkNoIssuers(access, [name, ...groups], 'the token');
    const limited = limitRoles(rolesOf(oidcRoles, name, groups), readWords(payload.scope));
    return { name, way: 'oidc', ...limited, groups, expiresAt: timeOf((payload.exp ?? 0) + CLOCK_SKEW_SECONDS) };
  }
}

/** Reads a token's claim by its name, which can contain dots, or by a dot-separated path of names. */
function readClaim(payload: JWTPayload, claim: string): unknown {
  if (Object.hasOwn(payload, claim)) return payload[claim];
  let value: unknown = payload;
  for (const name of claim.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
    value = (value as Record<string, unknown>)[name];
  }
  return value;
}

/** Returns the words in a claim. A claim is a list of words, or one string of words separated by spaces or commas. */
function readWords(value: unknown): string[] {
  if (typeof value === 'string') return value.split(/[\s,]+/).filter((word) => word !== '');
  return Array.isArray(value) ? value.filter((word) => typeof word === 'string') : [];
}

/**
 * Matches scopes that the WLCG token profile defines. A token with a WLCG scope permits only the operations that its
 * scopes name.
 */
const CAPABILITY = /^(storage|compute)\./;

/**
 * Limits the roles of a token with WLCG scopes. The scope `storage.stage` permits requests, and the scope
 * `storage.read` permits reading. WLCG scopes give neither operator rights nor rights to other users' quotas. Rejects
 * scopes that are limited to a path.
 * @throws HttpError 403
 */
function limitRoles(
  roles: Identity['roles'],
  scopes: readonly string[],
): Pick<Identity, 'roles' | 'isReadOnly' | 'isScoped'> {
  if (!scopes.some((scope) => CAPABILITY.test(scope))) return { roles };
  const has = (scope: string) => scopes.includes(scope) || scopes.includes(`${scope}:/`);
  if (!has('storage.stage') && !has('storage.read')) {
    throw new HttpError(403, 'the token lacks a scope: storage.read or storage.stage for / is required', {
      'WWW-Authenticate': 'Bearer error="insufficient_scope", scope="storage.read:/ storage.stage:/"',
    });
  }
  const own = [...roles].filter((role) => role !== 'operator');
  return { roles: new Set(own), isReadOnly: !has('storage.stage'), isScoped: true };
}

const TOKEN_PROBLEMS: Record<string, string> = {
  [errors.JWTExpired.code]: 'the token has expired',
  [errors.JOSEAlgNotAllowed.code]: "the token's signature algorithm is not accepted (alg)",
  [errors.JWKSNoMatchingKey.code]: 'the token is not signed by a key of its issuer',
  [errors.JWSSignatureVerificationFailed.code]: 'the token is not signed by a key of its issuer',
};

const CLAIM_PROBLEMS: Record<string, string> = {
  aud: 'the token is for another audience (aud)',
  exp: 'the token has no expiration time (exp)',
  nbf: 'the token is not yet valid (nbf)',
};

/** Returns an error message that does not contain any part of the token. */
function describeProblem(error: unknown): string {
  const fallback = 'the token is not valid';
  if (error instanceof errors.JWTClaimValidationFailed) return CLAIM_PROBLEMS[error.claim] ?? fallback;
  return error instanceof errors.JOSEError ? (TOKEN_PROBLEMS[error.code] ?? fallback) : fallback;
}

const ANSWER_MS = 5000;

/** Milliseconds after which an issuer's keys are reloaded. The reload drops any keys that the issuer has withdrawn. */
const KEYS_MS = 600_000;

/**
 * Milliseconds before an issuer's keys are reloaded again after a failed reload. The same minimum interval applies to
 * reloads because of tokens with unknown signing keys.
 */
const PAUSE_MS = 30_000;

/**
 * Milliseconds to pause after a failed request to an issuer. Without this pause, a client with invalid tokens could
 * flood the issuer with requests.
 */
const FAILED_MS = 5000;

type Keys = ReturnType<typeof createRemoteJWKSet>;

/** Error codes for an invalid token. All other error codes mean that the issuer has failed. */
const TOKEN_ERRORS = new Set<string>([
  errors.JWKSNoMatchingKey.code,
  errors.JWKSMultipleMatchingKeys.code,
  errors.JOSENotSupported.code,
]);

class Issuer {
  readonly url: string;
  private readonly log: Logger;
  private keys: Promise<Keys> | undefined;
  private askedAt = 0;
  private isUnavailable = false;
  private failure: { error: unknown; until: number } | undefined;

  /** @param url the issuer's URL, exactly as in tokens and metadata */
  constructor(url: string, log: Logger) {
    this.url = url;
    this.log = log;
  }

  /**
   * Returns the issuer's key for a token's signature. Loaded keys stay valid while the issuer does not answer.
   * @throws HttpError 503 if a required key cannot be loaded
   */
  readonly getKey: JWTVerifyGetKey = async (header, token) => {
    try {
      const keys = await this.open();
      this.refresh(keys);
      return await keys(header, token);
    } catch (error) {
      if (TOKEN_ERRORS.has(codeOf(error) ?? '')) throw error;
      this.logUnavailable(error);
      if (!this.isFailing()) this.failure = { error, until: performance.now() + FAILED_MS };
      throw new HttpError(503, `cannot read the keys of the issuer ${this.url}: try again later`, {
        'Retry-After': String(FAILED_MS / 1000),
      });
    }
  };

  private async open(): Promise<Keys> {
    this.keys ??= this.discover();
    try {
      return await this.keys;
    } catch (error) {
      this.keys = undefined;
      throw error;
    }
  }

  private isFailing(): boolean {
    return this.failure !== undefined && performance.now() < this.failure.until;
  }

  /**
   * During the pause after a failed request, throws the error of the failed request instead of sending another request.
   */
  private readonly ask = async (url: string, options: RequestInit): Promise<Response> => {
    if (this.isFailing()) throw this.failure?.error;
    return await fetchBounded(url, options, ANSWER_MS);
  };

  /**
   * Finds the issuer's keys through OpenID Connect Discovery 1.0. If the issuer does not support this protocol, uses
   * RFC 8414.
   */
  private async discover(): Promise<Keys> {
    const { origin, pathname } = new URL(this.url);
    const path = pathname.replace(/\/$/, '');
    const paths = [`${path}/.well-known/openid-configuration`, `/.well-known/oauth-authorization-server${path}`];
    for (const path of paths) {
      const answer = await this.ask(origin + path, { redirect: 'error' });
      if (answer.status === 404) continue;
      if (!answer.ok) throw new Error(`${origin}${path} answers ${answer.status}`);
      const { issuer, jwks_uri: uri } = (await answer.json()) as { issuer?: unknown; jwks_uri?: unknown };
      if (issuer !== this.url)
        throw new Error(`its metadata document contains a different issuer: ${JSON.stringify(issuer)}`);
      if (typeof uri !== 'string' || !isTrustworthyUrl(uri))
        throw new Error(`jwks_uri in its metadata document must begin with https://, not ${JSON.stringify(uri)}`);
      this.askedAt = performance.now();
      return createRemoteJWKSet(new URL(uri), {
        timeoutDuration: ANSWER_MS,
        cooldownDuration: PAUSE_MS,
        [customFetch]: this.ask,
        // never let cached keys expire, because the keys must stay valid while the issuer does not answer
        cacheMaxAge: Number.POSITIVE_INFINITY,
      });
    }
    throw new Error('the issuer has no metadata document');
  }

  private refresh(keys: Keys): void {
    if (performance.now() < this.askedAt + KEYS_MS) return;
    this.askedAt = performance.now();
    keys.reload().then(
      () => {
        this.isUnavailable = false;
      },
      (error) => {
        this.askedAt = performance.now() - KEYS_MS + PAUSE_MS;
        this.logUnavailable(error);
      },
    );
  }

  private logUnavailable(error: unknown): void {
    if (!this.isUnavailable) this.log.warn(`the issuer ${this.url} is unavailable: ${messageOf(error)}`);
    this.isUnavailable = true;
  }
}
