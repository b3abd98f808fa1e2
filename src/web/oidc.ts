/** Sign-in at an identity provider of the gateway (OpenID Connect, code flow with PKCE). */
import type { AuthorizationServer, TokenEndpointResponse } from 'oauth4webapi';

/** A token for the gateway. */
export interface StoredToken {
  token: string;
  /** Only of a provider's token. */
  issuer?: string | undefined;
  /** Requests the next token from the provider. */
  refreshToken?: string | undefined;
  /** Milliseconds since 1970. */
  expiresAt?: number | undefined;
}

/** The gateway's metadata (RFC 9728). */
export interface Providers {
  issuers: string[];
  clientId: string;
  audience: string;
}

/** Kept while the user is at the provider. */
interface Started {
  issuer: string;
  verifier: string;
  state: string;
  nonce: string;
  /** The page's location to return to. */
  hash: string;
  isForLong: boolean;
}

const KEY = 'tapegate.sign-in';
const SCOPES = ['openid', 'offline_access', 'wlcg.groups'];

/**
 * The redirect URI: the page itself, wherever it is served. Each of several providers has its own, so that one cannot
 * have the code of another sent to it (RFC 9700, 4.4).
 */
function redirectUri({ issuers }: Providers, issuer: string): string {
  const url = new URL('.', document.baseURI);
  if (issuers.length > 1) url.searchParams.set(ISSUER, issuer);
  return url.href;
}

const ISSUER = 'issuer';

/** @returns undefined if no provider is configured for this */
export async function findProviders(): Promise<Providers | undefined> {
  const response = await fetch(new URL('.well-known/oauth-protected-resource', document.baseURI));
  if (!response.ok) return undefined;
  const told = await response.json();
  const { authorization_servers: issuers, tapegate_client_id: clientId, tapegate_audience: audience } = told;
  return Array.isArray(issuers) && clientId && audience ? { issuers, clientId, audience } : undefined;
}

/** Redirects to the provider. @throws Error with a message for people */
export async function startSignIn(providers: Providers, issuer: string, isForLong: boolean): Promise<void> {
  const oauth = await import('oauth4webapi');
  const server = await describe(issuer);
  const [verifier, state, nonce] = [
    oauth.generateRandomCodeVerifier(),
    oauth.generateRandomState(),
    oauth.generateRandomNonce(),
  ];
  if (server.authorization_endpoint === undefined) throw new Error(`${issuer} has no page to sign in at.`);
  const url = new URL(server.authorization_endpoint);
  const known = server.scopes_supported;
  const asked = {
    client_id: providers.clientId,
    response_type: 'code',
    redirect_uri: redirectUri(providers, issuer),
    scope: SCOPES.filter((scope) => known?.includes(scope) ?? scope !== 'wlcg.groups').join(' '),
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
    state,
    nonce,
    prompt: 'consent', // without it, many give no token that lasts
    ...targetOf(providers),
  };
  for (const [name, value] of Object.entries(asked)) url.searchParams.set(name, value);
  const started: Started = { issuer, verifier, state, nonce, hash: location.hash, isForLong };
  sessionStorage.setItem(KEY, JSON.stringify(started));
  location.assign(url);
}

/**
 * Completes a sign-in after the provider's redirect.
 * @param keep stores the token, for this tab or for long
 * @returns the error for people; undefined after success, or without a redirect
 */
export async function finishSignIn(
  keep: (token: StoredToken, isForLong: boolean) => void,
): Promise<string | undefined> {
  const kept = sessionStorage.getItem(KEY);
  const here = new URL(location.href);
  const isBack = here.searchParams.has('state') && (here.searchParams.has('code') || here.searchParams.has('error'));
  if (kept === null || !isBack) return undefined;
  sessionStorage.removeItem(KEY);
  const started = JSON.parse(kept) as Started;
  // a code is valid once, and must not be in a copied URL
  history.replaceState(null, '', `${here.pathname}${started.hash}`);
  try {
    const providers = await findProviders();
    if (!providers) return 'The gateway takes nobody who signs in that way any more.';
    const answering = here.searchParams.get(ISSUER);
    if (providers.issuers.length > 1 && answering !== started.issuer)
      throw new Error(`the answer is from ${answering ?? 'an unknown provider'}`);
    keep(await exchange(providers, started, here), started.isForLong);
    return undefined;
  } catch (error) {
    return `Signing in at ${started.issuer} did not work: ${error instanceof Error ? error.message : error}`;
  }
}

async function exchange(providers: Providers, started: Started, here: URL): Promise<StoredToken> {
  const { issuer, verifier, state, nonce } = started;
  const { oauth, server, client, options } = await prepare(providers, issuer);
  const parameters = oauth.validateAuthResponse(server, client, here, state);
  const response = await oauth.authorizationCodeGrantRequest(
    server,
    client,
    oauth.None(),
    parameters,
    redirectUri(providers, issuer),
    verifier,
    options,
  );
  const answer = await oauth.processAuthorizationCodeResponse(server, client, response, { expectedNonce: nonce });
  return toKept(answer, issuer);
}

/** Exchanges a refresh token. @throws Error if the provider rejects it */
export async function renew({ issuer, refreshToken }: StoredToken): Promise<StoredToken> {
  const providers = await findProviders();
  if (!providers || issuer === undefined || refreshToken === undefined) throw new Error('there is no next token');
  const { oauth, server, client, options } = await prepare(providers, issuer);
  const response = await oauth.refreshTokenGrantRequest(server, client, oauth.None(), refreshToken, options);
  const next = toKept(await oauth.processRefreshTokenResponse(server, client, response), issuer);
  return { ...next, refreshToken: next.refreshToken ?? refreshToken };
}

/** Returns what a request for a token of an issuer needs. */
async function prepare(providers: Providers, issuer: string) {
  const oauth = await import('oauth4webapi');
  const options = { ...(await optionsFor(issuer)), additionalParameters: targetOf(providers) };
  return { oauth, server: await describe(issuer), client: { client_id: providers.clientId }, options };
}

function toKept(answer: TokenEndpointResponse, issuer: string): StoredToken {
  const { access_token: token, refresh_token: refreshToken, expires_in: seconds } = answer;
  const expiresAt = seconds === undefined ? undefined : Date.now() + seconds * 1000;
  return { token, issuer, refreshToken, expiresAt };
}

/** The audience as RFC 8707 names it, and as other providers do. */
function targetOf({ audience }: Providers): Record<string, string> {
  return { audience, ...(URL.canParse(audience) && { resource: audience }) };
}

/** HTTP without TLS is allowed only for a provider on this host, for tests. */
async function optionsFor(issuer: string) {
  const { allowInsecureRequests } = await import('oauth4webapi');
  const { protocol, hostname } = new URL(issuer);
  return { [allowInsecureRequests]: protocol === 'http:' && /^(localhost|127\.[\d.]+|\[::1\])$/.test(hostname) };
}

async function describe(issuer: string): Promise<AuthorizationServer> {
  const oauth = await import('oauth4webapi');
  const url = new URL(issuer);
  const response = await oauth.discoveryRequest(url, { algorithm: 'oidc', ...(await optionsFor(issuer)) });
  return await oauth.processDiscoveryResponse(url, response);
}
