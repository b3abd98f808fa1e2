/** Signs users in through one of the gateway's identity providers (OpenID Connect, code flow with PKCE). */
import type { AuthorizationServer, TokenEndpointResponse } from 'oauth4webapi';

/** A token that the page sends to the gateway. */
export interface StoredToken {
  token: string;
  /** The issuer of the token; absent if no identity provider issued the token. */
  issuer?: string | undefined;
  refreshToken?: string | undefined;
  /** Expiry time of the token, in milliseconds since 1970. */
  expiresAt?: number | undefined;
}

/** The gateway's metadata (RFC 9728). */
export interface Providers {
  issuers: string[];
  clientId: string;
  audience: string;
}

/** Data that the page stores while the user is at the identity provider. */
interface PendingSignIn {
  issuer: string;
  verifier: string;
  state: string;
  nonce: string;
  /** Fragment of the page's URL at the start of the sign-in; the user returns to this view afterwards. */
  hash: string;
  isPersistent: boolean;
}

const KEY = 'tapegate.sign-in';
const SCOPES = ['openid', 'offline_access', 'wlcg.groups'];

/**
 * Returns the redirect URI: the page's own URL. If there are several providers, each has a separate URI, so that no
 * provider can receive another provider's code (RFC 9700, 4.4).
 */
function redirectUri({ issuers }: Providers, issuer: string): string {
  const url = new URL('.', document.baseURI);
  if (issuers.length > 1) url.searchParams.set(ISSUER, issuer);
  return url.href;
}

const ISSUER = 'issuer';

/** @returns undefined if the gateway does not have an identity provider with which users can sign in on a page */
export async function findProviders(): Promise<Providers | undefined> {
  const response = await fetch(new URL('.well-known/oauth-protected-resource', document.baseURI));
  if (!response.ok) return undefined;
  const metadata = await response.json();
  const { authorization_servers: issuers, tapegate_client_id: clientId, tapegate_audience: audience } = metadata;
  return Array.isArray(issuers) && clientId && audience ? { issuers, clientId, audience } : undefined;
}

/**
 * Redirects the user to the identity provider.
 * @throws Error with a message for users
 */
export async function startSignIn(providers: Providers, issuer: string, isPersistent: boolean): Promise<void> {
  const oauth = await import('oauth4webapi');
  const server = await describe(issuer);
  const [verifier, state, nonce] = [
    oauth.generateRandomCodeVerifier(),
    oauth.generateRandomState(),
    oauth.generateRandomNonce(),
  ];
  if (server.authorization_endpoint === undefined) throw new Error(`${issuer} has no sign-in page.`);
  const url = new URL(server.authorization_endpoint);
  const known = server.scopes_supported;
  const parameters = {
    client_id: providers.clientId,
    response_type: 'code',
    redirect_uri: redirectUri(providers, issuer),
    scope: SCOPES.filter((scope) => known?.includes(scope) ?? scope !== 'wlcg.groups').join(' '),
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
    state,
    nonce,
    prompt: 'consent', // many providers return a refresh token only if the user consents
    ...targetOf(providers),
  };
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  const pending: PendingSignIn = { issuer, verifier, state, nonce, hash: location.hash, isPersistent };
  sessionStorage.setItem(KEY, JSON.stringify(pending));
  location.assign(url);
}

/**
 * Completes a sign-in after the identity provider has redirected to the page.
 * @param store function that stores the token, for this tab or permanently
 * @returns an error message for users; undefined after a success, or if the page was not opened by a redirect
 */
export async function finishSignIn(
  store: (token: StoredToken, isPersistent: boolean) => void,
): Promise<string | undefined> {
  const stored = sessionStorage.getItem(KEY);
  const here = new URL(location.href);
  const isBack = here.searchParams.has('state') && (here.searchParams.has('code') || here.searchParams.has('error'));
  if (stored === null || !isBack) return undefined;
  sessionStorage.removeItem(KEY);
  const pending = JSON.parse(stored) as PendingSignIn;
  // remove the code from the address: a code is valid only once, and must not be in a URL that the user copies
  history.replaceState(null, '', `${here.pathname}${pending.hash}`);
  try {
    const providers = await findProviders();
    if (!providers) return 'The gateway no longer accepts this sign-in method.';
    const answering = here.searchParams.get(ISSUER);
    if (providers.issuers.length > 1 && answering !== pending.issuer)
      throw new Error(`the response came from another identity provider: ${answering ?? 'an unknown provider'}`);
    store(await exchange(providers, pending, here), pending.isPersistent);
    return undefined;
  } catch (error) {
    return `Signing in at ${pending.issuer} failed: ${error instanceof Error ? error.message : error}`;
  }
}

async function exchange(providers: Providers, pending: PendingSignIn, here: URL): Promise<StoredToken> {
  const { issuer, verifier, state, nonce } = pending;
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
  return toStored(answer, issuer);
}

/**
 * Requests a new token with the refresh token.
 * @throws Error if the provider rejects the refresh token
 */
export async function renew({ issuer, refreshToken }: StoredToken): Promise<StoredToken> {
  const providers = await findProviders();
  if (!providers || issuer === undefined || refreshToken === undefined)
    throw new Error('the token cannot be renewed: sign in again');
  const { oauth, server, client, options } = await prepare(providers, issuer);
  const response = await oauth.refreshTokenGrantRequest(server, client, oauth.None(), refreshToken, options);
  const next = toStored(await oauth.processRefreshTokenResponse(server, client, response), issuer);
  return { ...next, refreshToken: next.refreshToken ?? refreshToken };
}

async function prepare(providers: Providers, issuer: string) {
  const oauth = await import('oauth4webapi');
  const options = { ...(await optionsFor(issuer)), additionalParameters: targetOf(providers) };
  return { oauth, server: await describe(issuer), client: { client_id: providers.clientId }, options };
}

/** Maximum token lifetime that the page stores, in milliseconds: 100 years. */
const MAX_LIFE_MS = 100 * 366 * 86_400_000;

function toStored(answer: TokenEndpointResponse, issuer: string): StoredToken {
  const { access_token: token, refresh_token: refreshToken, expires_in: seconds } = answer;
  const expiresAt = seconds === undefined ? undefined : Date.now() + Math.min(seconds * 1000, MAX_LIFE_MS);
  return { token, issuer, refreshToken, expiresAt };
}

/** Returns the audience under two parameter names: the name from RFC 8707, and the name that other providers use. */
function targetOf({ audience }: Providers): Record<string, string> {
  return { audience, ...(URL.canParse(audience) && { resource: audience }) };
}

/**
 * Returns options for HTTP requests to an issuer. Allows HTTP without TLS only for an issuer on this host, because
 * tests run such an issuer.
 */
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
