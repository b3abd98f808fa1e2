/**
 * An identity provider, as commands ask it for tokens: what it says of itself (RFC 8414, OpenID Connect Discovery), the login of a
 * device (RFC 8628), the next token (RFC 6749, 6) and the end of one (RFC 7009). The command line is a client without a secret.
 */
import type { AuthorizationServer, DeviceAuthorizationResponse, TokenEndpointResponse } from 'oauth4webapi';
import { codeOf, messageOf } from '../errors.js';
import { isTrustworthyUrl } from '../issuer-urls.js';
import { CommandError, ConnectionError, describeNetworkError } from './failure.js';

const ANSWER_MS = 10_000;

/** What a provider may be asked for, where it knows it: that the login lasts, and the groups of the WLCG token profile. */
const SCOPES = ['openid', 'offline_access', 'wlcg.groups'];

/** A token is renewed so long before its end, or halfway where it is good for less than twice that. */
const RENEW_MS = 60_000;

/** What the provider says no to, by its own code (RFC 6749, 5.2; RFC 8628, 3.5). */
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
  /** Milliseconds since 1970; undefined where nobody says. */
  renewAt: number | undefined;
  expiresAt: number | undefined;
}

type Oauth = typeof import('oauth4webapi');

export class IssuerClient {
  /** As its tokens name it. */
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

  /** @throws CommandError; ConnectionError while it does not answer */
  static async open(issuer: string, target: Target): Promise<IssuerClient> {
    if (!isTrustworthyUrl(issuer)) throw new CommandError(`the identity provider ${issuer} is at no https:// address`);
    const oauth = await import('oauth4webapi');
    const server = await guard(oauth, issuer, (signal) => describeServer(oauth, issuer, signal));
    const places = [server.device_authorization_endpoint, server.token_endpoint, server.revocation_endpoint];
    const open = places.find((place) => place !== undefined && !isTrustworthyUrl(place.replace(/\?.*$/s, '')));
    if (open !== undefined) throw new CommandError(`${issuer} names a place that is at no https:// address: ${open}`);
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

  /** @throws IssuerRefusal as long as nobody has logged in; ConnectionError */
  async askForDevice(deviceCode: string): Promise<Grant> {
    const { oauth, server } = this;
    return await this.askForGrant(async (options, client) => {
      const asked = { ...options, additionalParameters: this.target() };
      const response = await oauth.deviceCodeGrantRequest(server, client, oauth.None(), deviceCode, asked);
      return await oauth.processDeviceCodeResponse(server, client, response);
    });
  }

  /** @throws IssuerRefusal where it is good no longer; ConnectionError */
  async renew(refreshToken: string): Promise<Grant> {
    const { oauth, server } = this;
    const grant = await this.askForGrant(async (options, client) => {
      const asked = { ...options, additionalParameters: this.target() };
      const response = await oauth.refreshTokenGrantRequest(server, client, oauth.None(), refreshToken, asked);
      return await oauth.processRefreshTokenResponse(server, client, response);
    });
    return { ...grant, refreshToken: grant.refreshToken ?? refreshToken };
  }

  /** The token, and with a refresh token all that came of the same login, as far as the provider does that. */
  async revoke(token: string): Promise<void> {
    const { oauth, server } = this;
    if (server.revocation_endpoint === undefined) throw new CommandError(`${this.issuer} revokes no tokens`);
    await this.ask(async (options, client) => {
      await oauth.processRevocationResponse(
        await oauth.revocationRequest(server, client, oauth.None(), token, options),
      );
    });
  }

  /** For whom a token is: as RFC 8707 has it, and as providers do that do not know it. */
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
      throw new CommandError(`${this.issuer} gives a token that cannot be shown as it is`);
    }
    const lifeMs = answer.expires_in === undefined ? await readLifeMs(token) : answer.expires_in * 1000;
    const expiresAt = lifeMs === undefined ? undefined : askedAt + lifeMs;
    const renewAt = lifeMs === undefined ? undefined : askedAt + lifeMs - Math.min(RENEW_MS, lifeMs / 2);
    return { token, refreshToken, renewAt, expiresAt };
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

/** Without TLS only a provider of this very host is asked at all. */
function optionsOf(oauth: Oauth, issuer: string, signal: AbortSignal) {
  return { signal, [oauth.allowInsecureRequests]: new URL(issuer).protocol === 'http:' };
}

async function describeServer(oauth: Oauth, issuer: string, signal: AbortSignal): Promise<AuthorizationServer> {
  const url = new URL(issuer);
  for (const algorithm of ['oidc', 'oauth2'] as const) {
    const response = await oauth.discoveryRequest(url, { algorithm, ...optionsOf(oauth, issuer, signal) });
    if (response.status !== 404) return await oauth.processDiscoveryResponse(url, response);
  }
  throw new CommandError(`the identity provider ${issuer} does not describe itself`);
}

/** Turns whatever goes wrong into a line that repeats nothing of a token. */
async function guard<T>(oauth: Oauth, issuer: string, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  try {
    return await work(AbortSignal.timeout(ANSWER_MS));
  } catch (error) {
    throw error instanceof CommandError ? error : explain(oauth, issuer, error);
  }
}

const isAway = (status: number) => status >= 500 || status === 429;

function explain(oauth: Oauth, issuer: string, error: unknown): CommandError {
  const { cause } = error as { cause?: unknown };
  if (error instanceof oauth.ResponseBodyError && !isAway(error.status)) {
    const why = error.error_description === undefined ? '' : ` (${error.error_description.slice(0, 200)})`;
    return new IssuerRefusal(`${issuer} answers ${error.error}${why}`, error.error);
  }
  const status = error instanceof oauth.ResponseBodyError ? error.status : (cause as Response | undefined)?.status;
  if (status !== undefined && isAway(status)) return new ConnectionError(`${issuer} answers ${status}`);
  const code = codeOf(error) ?? '';
  // an answer that breaks off is no JSON
  if (code.startsWith('OAUTH_') && code !== oauth.PARSE_ERROR) {
    return new CommandError(`${issuer} does not answer as OAuth has it: ${messageOf(error)}`);
  }
  return new ConnectionError(`${issuer} does not answer: ${describeNetworkError(error)}`);
}

/** Of a JWT that says it itself. */
async function readLifeMs(token: string): Promise<number | undefined> {
  const { decodeJwt } = await import('jose');
  try {
    const { exp } = decodeJwt(token);
    return exp === undefined ? undefined : exp * 1000 - Date.now();
  } catch {
    return undefined;
  }
}
