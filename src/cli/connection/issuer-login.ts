/**
 * Logs in at an identity provider as a public client, without a client secret. Implements discovery (RFC 8414,
 * OpenID Connect Discovery), device login (RFC 8628), token refresh (RFC 6749, section 6) and revocation (RFC 7009).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { AuthorizationServer, DeviceAuthorizationResponse, TokenEndpointResponse } from 'oauth4webapi';
import type { Environment } from '../../core/environment.js';
import { codeOf, messageOf } from '../../core/errors.js';
import { isLoopback } from '../../core/net/address-ranges.js';
import { fetchBounded } from '../../core/net/bounded-fetch.js';
import { isTrustworthyUrl } from '../../core/net/issuer-urls.js';
import { formatSpan } from '../../core/text/spans.js';
import { CommandError, ConnectionError, describeNetworkError, formatNetworkError } from '../terminal/failure.js';
import { printToStderr } from '../terminal/output.js';

import { changeToken, isDue, type Login, readStoredToken, type StoredToken } from './stored-tokens.js';

const ANSWER_MS = 10_000;

/**
 * OAuth scopes to request if the provider supports them. `offline_access` requests a refresh token. `wlcg.groups`
 * requests the user's groups (WLCG token profile).
 */
const SCOPES = ['openid', 'offline_access', 'wlcg.groups'];

/** An error response from the identity provider, with its OAuth error code (RFC 6749, 5.2; RFC 8628, 3.5). */
export class IssuerRefusal extends CommandError {
  readonly code: string;

  constructor(message: string, code: string) {
    super(message);
    this.code = code;
  }
}

export interface Grant {
  token: string;
  refreshToken: string | undefined;
  /** When the token expires, in milliseconds since 1970; undefined if unknown. */
  expiresAt: number | undefined;
  lifeMs: number | undefined;
}

type Oauth = typeof import('oauth4webapi');

export class IssuerClient {
  readonly issuer: string;
  private readonly oauth: Oauth;
  private readonly server: AuthorizationServer;
  private readonly clientId: string;
  private readonly audience: string;

  private constructor(oauth: Oauth, issuer: string, server: AuthorizationServer, target: Target) {
    this.oauth = oauth;
    this.issuer = issuer;
    this.server = server;
    this.clientId = target.clientId;
    this.audience = target.audience;
  }

  /** @throws CommandError; ConnectionError if the provider does not answer */
  static async open(issuer: string, target: Target): Promise<IssuerClient> {
    if (!isTrustworthyUrl(issuer)) throw new CommandError(`the identity provider ${issuer} must use https://`);
    const oauth = await import('oauth4webapi');
    const server = await guard(oauth, issuer, (signal) => describeServer(oauth, issuer, signal));
    const endpoints = [server.device_authorization_endpoint, server.token_endpoint, server.revocation_endpoint];
    const open = endpoints.find((each) => each !== undefined && !isTrustworthyUrl(each.replace(/\?.*$/s, '')));
    if (open !== undefined) throw new CommandError(`${issuer} returned an endpoint URL without https://: ${open}`);
    return new IssuerClient(oauth, issuer, server, target);
  }

  get hasDeviceLogin(): boolean {
    return this.server.device_authorization_endpoint !== undefined;
  }

  async startDeviceLogin(): Promise<DeviceAuthorizationResponse> {
    const { oauth, server } = this;
    const known = server.scopes_supported;
    const scopes = SCOPES.filter((scope) => known?.includes(scope) ?? scope !== 'wlcg.groups');
    const parameters = { ...this.target(), ...(scopes.length > 0 && { scope: scopes.join(' ') }) };
    return await this.ask(async (options, client) => {
      const response = await oauth.deviceAuthorizationRequest(server, client, oauth.None(), parameters, options);
      return await oauth.processDeviceAuthorizationResponse(server, client, response);
    });
  }

  /** @throws IssuerRefusal if the user has not logged in yet; ConnectionError */
  async askForDevice(deviceCode: string): Promise<Grant> {
    const { oauth, server } = this;
    return await this.askForGrant(async (options, client) => {
      const extended = { ...options, additionalParameters: this.target() };
      const response = await oauth.deviceCodeGrantRequest(server, client, oauth.None(), deviceCode, extended);
      return await oauth.processDeviceCodeResponse(server, client, response);
    });
  }

  /** @throws IssuerRefusal if the refresh token is no longer valid; ConnectionError */
  async renew(refreshToken: string): Promise<Grant> {
    const { oauth, server } = this;
    const grant = await this.askForGrant(async (options, client) => {
      const extended = { ...options, additionalParameters: this.target() };
      const response = await oauth.refreshTokenGrantRequest(server, client, oauth.None(), refreshToken, extended);
      return await oauth.processRefreshTokenResponse(server, client, response);
    });
    return { ...grant, refreshToken: grant.refreshToken ?? refreshToken };
  }

  /**
   * Revokes a token. If the token is a refresh token, some providers also revoke all other tokens from the same login.
   */
  async revoke(token: string): Promise<void> {
    const { oauth, server } = this;
    if (server.revocation_endpoint === undefined) throw new CommandError(`${this.issuer} cannot revoke tokens`);
    await this.ask(async (options, client) => {
      await oauth.processRevocationResponse(
        await oauth.revocationRequest(server, client, oauth.None(), token, options),
      );
    });
  }

  /**
   * Returns the request parameters that select the token's audience: `audience`, and also `resource` (RFC 8707) if the
   * audience is a URL.
   */
  private target(): Record<string, string> {
    const { audience } = this;
    return { audience, ...(URL.canParse(audience) && { resource: audience }) };
  }

  private async askForGrant(
    work: (options: Options, client: { client_id: string }) => Promise<TokenEndpointResponse>,
  ): Promise<Grant> {
    const askedAt = Date.now();
    const answer = await this.ask(work);
    const { access_token: token, refresh_token: refreshToken, token_type: type } = answer;
    if (type !== 'bearer' || !/^[\x21-\x7e]{1,16000}$/.test(token)) {
      throw new CommandError(`${this.issuer} returned a token that is not a valid bearer token`);
    }
    const lifeMs = answer.expires_in === undefined ? await readLifeMs(token) : toLifeMs(answer.expires_in);
    return { token, refreshToken, expiresAt: lifeMs === undefined ? undefined : askedAt + lifeMs, lifeMs };
  }

  private async ask<T>(work: (options: Options, client: { client_id: string }) => Promise<T>): Promise<T> {
    return await guard(this.oauth, this.issuer, (signal) =>
      work(optionsOf(this.oauth, this.issuer, signal), { client_id: this.clientId }),
    );
  }
}

export interface Target {
  clientId: string;
  audience: string;
}

type Options = ReturnType<typeof optionsOf>;

/**
 * Returns the options for a call to the OAuth library. Allows plain HTTP if the issuer's URL begins with `http:`.
 * `isTrustworthyUrl` has already checked that such a URL refers to this host.
 */
function optionsOf(oauth: Oauth, issuer: string, signal: AbortSignal) {
  return {
    signal,
    [oauth.allowInsecureRequests]: new URL(issuer).protocol === 'http:',
    [oauth.customFetch]: (url: string, options: object) => fetchBounded(url, options, ANSWER_MS),
  };
}

async function describeServer(oauth: Oauth, issuer: string, signal: AbortSignal): Promise<AuthorizationServer> {
  const url = new URL(issuer);
  for (const algorithm of ['oidc', 'oauth2'] as const) {
    const response = await oauth.discoveryRequest(url, { algorithm, ...optionsOf(oauth, issuer, signal) });
    if (response.status !== 404) return await oauth.processDiscoveryResponse(url, response);
  }
  throw new CommandError(`the identity provider ${issuer} has no discovery document`);
}

/** Converts errors from `work` to errors with one-line messages. The messages never contain any part of a token. */
async function guard<T>(oauth: Oauth, issuer: string, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  try {
    return await work(AbortSignal.timeout(ANSWER_MS));
  } catch (error) {
    throw error instanceof CommandError ? error : explain(oauth, issuer, error);
  }
}

const isUnavailable = (status: number) => status >= 500 || status === 429;

function explain(oauth: Oauth, issuer: string, error: unknown): CommandError {
  const { cause } = error as { cause?: unknown };
  if (error instanceof oauth.ResponseBodyError && !isUnavailable(error.status)) {
    const why = error.error_description === undefined ? '' : ` (${error.error_description.slice(0, 200)})`;
    return new IssuerRefusal(`${issuer} responds with ${error.error}${why}`, error.error);
  }
  const status = error instanceof oauth.ResponseBodyError ? error.status : (cause as Response | undefined)?.status;
  if (status !== undefined && isUnavailable(status))
    return new ConnectionError(`${issuer} responds with status ${status}`);
  const code = codeOf(error) ?? '';
  // treat a parse error like a connection failure, because the response might have been truncated
  if (code.startsWith('OAUTH_') && code !== oauth.PARSE_ERROR) {
    return new CommandError(`${issuer} returned an invalid OAuth response: ${messageOf(error)}`);
  }
  return new ConnectionError(`${issuer} does not respond: ${describeNetworkError(error)}`);
}

/**
 * Longest token lifetime in milliseconds, 100 years. Longer lifetimes are shortened, because a huge number of seconds
 * would overflow to infinity, which JSON cannot represent.
 */
const MAX_LIFE_MS = 100 * 366 * 86_400_000;

const toLifeMs = (seconds: number): number => Math.min(seconds * 1000, MAX_LIFE_MS);

/** Returns the remaining lifetime of a JWT in milliseconds; undefined if unknown. */
async function readLifeMs(token: string): Promise<number | undefined> {
  const { decodeJwt } = await import('jose');
  try {
    const { exp } = decodeJwt<{ exp?: unknown }>(token);
    return Number.isFinite(exp) ? toLifeMs(Number(exp) - Date.now() / 1000) : undefined;
  } catch {
    return undefined;
  }
}

export interface DeviceLogin {
  client: IssuerClient;
  clientId: string;
  audience: string;
}

/**
 * Returns the identity provider for a device login: the provider `issuer`, or else the gateway's first provider that
 * supports device login.
 * @param options.audience a token audience that the user allows in addition to the gateway's host
 * @returns the provider and the login settings; undefined if the gateway offers no device login
 * @throws CommandError; ConnectionError if no provider can be reached
 */
export async function findDeviceLogin(
  url: string,
  { audience, issuer: chosen }: { audience?: string | undefined; issuer?: string | undefined } = {},
): Promise<DeviceLogin | undefined> {
  if (!isTrustworthyUrl(url)) return undefined;
  const metadata = await readMetadata(url);
  if (!metadata) return undefined;
  const { authorization_servers: issuers, tapegate_client_id: clientId, tapegate_audience: required } = metadata;
  if (typeof clientId !== 'string' || typeof required !== 'string' || !Array.isArray(issuers)) return undefined;
  checkAudience(url, required, audience);
  const named = issuers.map(String);
  if (chosen !== undefined && !named.includes(chosen)) {
    throw new CommandError(`${url} does not accept tokens from ${chosen}; it accepts tokens from ${named.join(', ')}`);
  }
  let failure: unknown;
  for (const issuer of chosen === undefined ? named : [chosen]) {
    try {
      const client = await IssuerClient.open(issuer, { clientId, audience: required });
      if (client.hasDeviceLogin) return { client, clientId, audience: required };
    } catch (error) {
      failure ??= error; // try the gateway's next identity provider, because the user might have an account there
    }
  }
  if (failure !== undefined) throw failure;
  return undefined;
}

/** Reads the gateway's metadata (RFC 9728) without following redirects. */
async function readMetadata(url: string): Promise<Record<string, unknown> | undefined> {
  const { METADATA_PATH } = await import('../../gateway/auth/credentials.js');
  const response = await fetchBounded(url + METADATA_PATH, { redirect: 'error' }, ANSWER_MS).catch((error) => {
    throw new ConnectionError(formatNetworkError(url, error));
  });
  const metadata = response.ok ? await response.json().catch(() => undefined) : undefined;
  return typeof metadata === 'object' && metadata !== null ? metadata : undefined;
}

/**
 * Rejects a token audience other than this gateway, because a malicious gateway could use the token at another gateway.
 */
function checkAudience(url: string, required: string, audience: string | undefined): void {
  const { hostname } = new URL(url);
  const isOwn = URL.canParse(required) && new URL(required).hostname === hostname;
  if (isOwn || required === audience || isLoopback(hostname.replace(/^\[|\]$/g, ''))) return;
  throw new CommandError(
    `${url} requires a token with audience ${JSON.stringify(required)}: if this audience is correct, repeat the command with --audience ${JSON.stringify(required)}`,
  );
}

/**
 * Prints the URL and the code for the login, and waits until the user has logged in.
 * @throws CommandError
 */
export async function logInByDevice(
  { client, clientId, audience }: DeviceLogin,
  signal: AbortSignal,
): Promise<StoredToken> {
  const device = await client.startDeviceLogin();
  for (const line of describeLogin(client.issuer, device)) printToStderr(line);
  const { token, ...times } = await pollForGrant(device, {
    ask: () => client.askForDevice(device.device_code),
    pause: async (ms) => void (await sleep(ms, undefined, { signal })),
    now: () => performance.now(),
  });
  return { token, login: { issuer: client.issuer, clientId, audience, ...times } };
}

/**
 * Returns the lines that tell the user where to log in. If the URL that contains the code is not trustworthy, omits
 * this URL, because the user can type the code at the other URL.
 * @throws CommandError if the login page does not use https, or a time is not valid
 */
export function describeLogin(issuer: string, device: DeviceAuthorizationResponse): string[] {
  const { verification_uri: page, verification_uri_complete: whole, user_code: code } = device;
  const isSafe = (url: string) => isTrustworthyUrl(url.replace(/[?#].*$/s, ''));
  if (!isSafe(page)) throw new CommandError(`${issuer} returned a login page URL without https://: ${page}`);
  const span = formatSpan(Math.round(readTimes(device).lifeMs / 1000));
  const line = `log in at ${page} with the code ${code}, within ${span}`;
  return whole !== undefined && isSafe(whole) ? [line, `or at ${whole}, which contains the code`] : [line];
}

/**
 * Limits for the times in a device login, in seconds. The limits are necessary because Node.js timers with a delay of
 * 2^31 ms (24.8 days) or more fire immediately.
 */
const MIN_INTERVAL_SECONDS = 1;
const MAX_DEVICE_SECONDS = 86_400;

interface DeviceTimes {
  expires_in: number;
  interval?: number;
}

/** @throws CommandError if a time is not a positive number */
function readTimes({ expires_in, interval = INTERVAL_SECONDS }: DeviceTimes): { lifeMs: number; intervalMs: number } {
  for (const [name, seconds] of Object.entries({ expires_in, interval })) {
    if (Number.isFinite(seconds) && seconds > 0) continue;
    throw new CommandError(`the identity provider returned ${name} ${seconds}, expected a positive number of seconds`);
  }
  const lifeMs = Math.min(expires_in, MAX_DEVICE_SECONDS) * 1000;
  return { lifeMs, intervalMs: Math.max(interval, MIN_INTERVAL_SECONDS) * 1000 };
}

/** Time in milliseconds that each `slow_down` response adds to the polling interval (RFC 8628, 3.5). */
const SLOWER_MS = 5000;

const INTERVAL_SECONDS = 5;

/**
 * Maximum pause between attempts to reach the identity provider. The pause doubles after each failed attempt, up to
 * this maximum.
 */
const MAX_PAUSE_MS = 60_000;

/**
 * Polls for the token until the user has logged in or refused, or the code has expired.
 * @param device the provider's response, with times in seconds
 * @param now returns the time of a monotonic clock in milliseconds
 * @throws CommandError if the user has refused, the code has expired, or a time is not valid; errors from `pause`
 */
export async function pollForGrant(
  device: DeviceTimes,
  { ask, pause, now }: { ask(): Promise<Grant>; pause(ms: number): Promise<void>; now(): number },
): Promise<Grant> {
  const times = readTimes(device);
  const end = now() + times.lifeMs;
  let { intervalMs } = times;
  let pauseMs = intervalMs;
  for (;;) {
    await pause(Math.max(0, Math.min(pauseMs, end - now())));
    try {
      return await ask();
    } catch (error) {
      if (!isRetryable(error)) throw toOutcome(error);
      if (now() >= end) throw error instanceof ConnectionError ? error : new CommandError(EXPIRED);
      if (error instanceof IssuerRefusal && error.code === 'slow_down') intervalMs += SLOWER_MS;
      const isAway = error instanceof ConnectionError;
      pauseMs = isAway ? Math.max(intervalMs, Math.min(pauseMs * 2, MAX_PAUSE_MS)) : intervalMs;
    }
  }
}

const EXPIRED = 'the code has expired: run "tapegate login" again';

function isRetryable(error: unknown): boolean {
  if (error instanceof ConnectionError) return true;
  return error instanceof IssuerRefusal && ['authorization_pending', 'slow_down'].includes(error.code);
}

function toOutcome(error: unknown): unknown {
  if (!(error instanceof IssuerRefusal)) return error;
  if (error.code === 'expired_token') return new CommandError(EXPIRED);
  return error.code === 'access_denied' ? new CommandError('the identity provider refused the login') : error;
}

/**
 * Renews the server's stored token if necessary, and returns the token. If several processes need a new token, only one
 * process renews the stored token.
 * @throws CommandError if the user must log in again; ConnectionError
 */
export async function renewToken(url: string, env: Environment): Promise<string | undefined> {
  try {
    return (await changeToken(url, env, (known) => renew(url, known)))?.token;
  } catch (error) {
    const stored = readStoredToken(url, env);
    if (stored?.login?.expiresAt !== undefined && Date.now() < stored.login.expiresAt) return stored.token;
    throw error;
  }
}

async function renew(url: string, known: StoredToken | undefined): Promise<StoredToken | undefined> {
  if (!known?.login || !isDue(known)) return known;
  const { issuer, clientId, audience, refreshToken } = known.login;
  if (refreshToken === undefined) throw expired(url, known.login);
  try {
    const client = await IssuerClient.open(issuer, { clientId, audience });
    const { token, ...times } = await client.renew(refreshToken);
    return { token, login: { ...known.login, ...times } };
  } catch (error) {
    if (error instanceof IssuerRefusal && error.code === 'invalid_grant') throw expired(url, known.login);
    if (!(error instanceof ConnectionError)) throw error;
    throw new ConnectionError(`the token for ${url} cannot be renewed: ${error.message}`);
  }
}

function expired(url: string, { issuer }: Login): CommandError {
  return new CommandError(`the login for ${url} at ${issuer} has expired: run "tapegate login"`);
}
