/** An issuer of bearer tokens: what it says of itself, and the keys that it signs with. */
import { createRemoteJWKSet, customFetch, errors, type JWTVerifyGetKey } from 'jose';
import type { Logger } from 'pino';
import { codeOf, messageOf } from '../errors.js';
import { HttpError } from '../http-body.js';
import { isTrustworthyUrl } from '../issuer-urls.js';

const ANSWER_MS = 5000;

/** Keys are asked for again after so long, so that one that the issuer has withdrawn is good no longer. */
const KEYS_MS = 600_000;

/** After keys could not be asked for again, and for a key that is not among those that were just read. */
const PAUSE_MS = 30_000;

/** After it has failed: whoever shows a token of its name, signed or not, could else have it asked as often. */
const FAILED_MS = 5000;

type Keys = ReturnType<typeof createRemoteJWKSet>;

/** What it means that a key is not had: the token's fault. Anything else is the issuer's. */
const FAULTS_OF_TOKEN = new Set<string>([
  errors.JWKSNoMatchingKey.code,
  errors.JWKSMultipleMatchingKeys.code,
  errors.JOSENotSupported.code,
]);

export class Issuer {
  readonly url: string;
  private readonly log: Logger;
  private keys: Promise<Keys> | undefined;
  /** By the process's own clock, as all that is reckoned here. */
  private askedAt = 0;
  private isAway = false;
  private failure: { error: unknown; until: number } | undefined;

  /** @param url as its tokens and its own description have it, to the letter */
  constructor(url: string, log: Logger) {
    this.url = url;
    this.log = log;
  }

  /**
   * The key of a token. Known keys go on while the issuer is away.
   * @throws HttpError 503 where it cannot be asked for one that is not known
   */
  readonly getKey: JWTVerifyGetKey = async (header, token) => {
    try {
      const keys = await this.open();
      this.refresh(keys);
      return await keys(header, token);
    } catch (error) {
      if (FAULTS_OF_TOKEN.has(codeOf(error) ?? '')) throw error;
      this.tellAway(error);
      if (!this.isFailing()) this.failure = { error, until: performance.now() + FAILED_MS };
      throw new HttpError(503, `the issuer ${this.url} does not say by which keys it signs: try again later`, {
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

  /** It is not asked while it has just failed: what was wrong then is said again. */
  private readonly ask = async (url: string, options: RequestInit): Promise<Response> => {
    if (this.isFailing()) throw this.failure?.error;
    return await fetch(url, options);
  };

  /** Of OpenID Connect Discovery 1.0; else of RFC 8414. */
  private async discover(): Promise<Keys> {
    const { origin, pathname } = new URL(this.url);
    const path = pathname.replace(/\/$/, '');
    const places = [`${path}/.well-known/openid-configuration`, `/.well-known/oauth-authorization-server${path}`];
    for (const place of places) {
      const answer = await this.ask(origin + place, { redirect: 'error', signal: AbortSignal.timeout(ANSWER_MS) });
      if (answer.status === 404) continue;
      if (!answer.ok) throw new Error(`${origin}${place} answers ${answer.status}`);
      const { issuer, jwks_uri: uri } = (await answer.json()) as { issuer?: unknown; jwks_uri?: unknown };
      if (issuer !== this.url) throw new Error(`it calls itself ${JSON.stringify(issuer)}`);
      if (typeof uri !== 'string' || !isTrustworthyUrl(uri)) throw new Error('its keys are at no https:// address');
      this.askedAt = performance.now();
      return createRemoteJWKSet(new URL(uri), {
        timeoutDuration: ANSWER_MS,
        cooldownDuration: PAUSE_MS,
        [customFetch]: this.ask,
        cacheMaxAge: Number.POSITIVE_INFINITY, // else known keys would be good no longer while it is away
      });
    }
    throw new Error('it does not describe itself');
  }

  /** Nobody waits for it. */
  private refresh(keys: Keys): void {
    if (performance.now() < this.askedAt + KEYS_MS) return;
    this.askedAt = performance.now();
    keys.reload().then(
      () => {
        this.isAway = false;
      },
      (error) => {
        this.askedAt = performance.now() - KEYS_MS + PAUSE_MS;
        this.tellAway(error);
      },
    );
  }

  /** Once, until it answers again. */
  private tellAway(error: unknown): void {
    if (!this.isAway) this.log.warn(`the issuer ${this.url} is not to be had: ${messageOf(error)}`);
    this.isAway = true;
  }
}
