/** A real OpenID provider on this host. Tests can rotate the signing key and make the provider unavailable. */
import http, { type ServerResponse } from 'node:http';
import { type CryptoKey, exportJWK, generateKeyPair, type JWK, type JWTPayload, SignJWT } from 'jose';
import { Provider } from 'oidc-provider';
import { closeServer, listen } from './ports.js';

export interface SigningKey {
  jwk: JWK & { kid: string };
  privateKey: CryptoKey;
  publicKey: CryptoKey;
}

export async function makeKey(kid: string, alg = 'RS256'): Promise<SigningKey> {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
  return { jwk: { ...(await exportJWK(privateKey)), kid, alg, use: 'sig' }, privateKey, publicKey };
}

export interface IdentityProvider {
  url: string;
  key: SigningKey;
  /** Paths of all received requests. */
  asked: string[];
  /** Whether every request is answered with 503. */
  isAway: boolean;
  /** Requests an access token with these claims from the token endpoint. */
  issue(claims?: Record<string, unknown>): Promise<string>;
  /** Signs a token with any claims and the current key. */
  sign(claims: JWTPayload, header?: Record<string, unknown>): Promise<string>;
  /** Lifetime of access tokens. */
  lifeSeconds: number;
  /** Poll interval of a device login. */
  intervalSeconds: number;
  /** Returns an answer to send instead of the provider's answer, or undefined. */
  instead: ((path: string) => Promise<{ status: number; body?: object } | undefined>) | undefined;
  /** Replaces the signing key. */
  rotate(kid: string): Promise<void>;
  close(): Promise<void>;
}

export const AUDIENCE = 'https://tapes.example.org';
const CLIENT = 'scripts';
const SECRET = 'a secret of tests';
/** Client id of the command line. */
export const DEVICE_CLIENT = 'tapegate-cli';

/** @param pages redirect URIs of the dashboard */
export async function startIdentityProvider(pages: string[] = []): Promise<IdentityProvider> {
  const server = http.createServer(async (req, res) => {
    provider.asked.push(req.url ?? '');
    const replaced = provider.isAway ? { status: 503 } : await provider.instead?.(req.url ?? '');
    if (replaced) return void answerInstead(res, replaced);
    if (req.url === '/device/auth') replaceInterval(res, provider.intervalSeconds);
    answer(req, res);
  });
  const url = `http://127.0.0.1:${await listen(server)}`;
  let claims: Record<string, unknown> = {};
  const create = (key: SigningKey) =>
    new Provider(url, configure(key, { claimsOf: () => claims, lifeOf: () => provider.lifeSeconds, pages })).callback();
  const key = await makeKey('first');
  let answer = create(key);
  const provider: IdentityProvider = {
    url,
    key,
    asked: [],
    isAway: false,
    lifeSeconds: 600,
    intervalSeconds: 1,
    instead: undefined,
    issue: async (wanted = {}) => {
      claims = wanted;
      const body = new URLSearchParams({ grant_type: 'client_credentials', resource: AUDIENCE });
      const authorization = `Basic ${Buffer.from(`${CLIENT}:${encodeURIComponent(SECRET)}`).toString('base64')}`;
      const response = await fetch(`${url}/token`, { method: 'POST', body, headers: { authorization } });
      const { access_token: token } = (await response.json()) as { access_token?: string };
      if (token === undefined) throw new Error(`the provider answers ${response.status}`);
      return token;
    },
    sign: async (payload, header) =>
      await new SignJWT({ iss: url, aud: AUDIENCE, sub: 'alice', ...payload })
        .setProtectedHeader({ alg: 'RS256', kid: provider.key.jwk.kid, ...header })
        .sign(provider.key.privateKey),
    rotate: async (kid) => {
      provider.key = await makeKey(kid);
      answer = create(provider.key);
    },
    close: () => closeServer(server),
  };
  return provider;
}

export type Realms = Awaited<ReturnType<typeof startRealms>>;

/** Starts issuers that differ only in their path, each with its own signing key. */
export async function startRealms(...names: string[]) {
  const keys = new Map(await Promise.all(names.map(async (name) => [name, await makeKey('first')] as const)));
  const keyOf = (name: string) => keys.get(name) as SigningKey;
  const server = http.createServer((req, res) => {
    const [, name = '', asked] = /^\/realms\/([^/]+)\/(.*)$/.exec(req.url ?? '') ?? [];
    const { d: _d, p: _p, q: _q, dp: _dp, dq: _dq, qi: _qi, ...jwk } = keyOf(name).jwk;
    const issuer = urlOf(name);
    res.setHeader('Content-Type', 'application/json');
    res.end(JSON.stringify(asked === 'keys' ? { keys: [jwk] } : { issuer, jwks_uri: `${issuer}/keys` }));
  });
  const port = await listen(server);
  const urlOf = (name: string) => `http://127.0.0.1:${port}/realms/${name}`;
  return {
    /** Returns the issuer URL of a realm. */
    urlOf,
    sign: async (name: string, claims: JWTPayload): Promise<string> =>
      await new SignJWT({ iss: urlOf(name), aud: AUDIENCE, sub: 'alice', ...claims })
        .setProtectedHeader({ alg: 'RS256', kid: 'first' })
        .sign(keyOf(name).privateKey),
    close: (): Promise<void> => closeServer(server),
  };
}

function answerInstead(res: ServerResponse, { status, body }: { status: number; body?: object }): void {
  res.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
}

/** Replaces the interval in the answer of a device login, because the provider has no option for the interval. */
function replaceInterval(res: ServerResponse, interval: number): void {
  const end = res.end.bind(res);
  res.end = ((text: string) => {
    const changed = JSON.stringify({ ...JSON.parse(text), interval });
    res.setHeader('Content-Length', changed.length);
    return end(changed);
  }) as typeof res.end;
}

interface Answers {
  claimsOf(): Record<string, unknown>;
  lifeOf(): number;
  pages: string[];
}

function configure(key: SigningKey, { claimsOf, lifeOf, pages }: Answers): object {
  const none = { redirect_uris: [], response_types: [] };
  const deviceGrants = ['urn:ietf:params:oauth:grant-type:device_code', 'refresh_token'];
  const forPages = {
    grant_types: [...deviceGrants, 'authorization_code'],
    redirect_uris: pages,
    response_types: ['code'],
  };
  return {
    jwks: { keys: [key.jwk] },
    clients: [
      { ...none, client_id: CLIENT, client_secret: SECRET, grant_types: ['client_credentials'] },
      {
        ...(pages.length > 0 ? forPages : { ...none, grant_types: deviceGrants }),
        client_id: DEVICE_CLIENT,
        token_endpoint_auth_method: 'none',
      },
    ],
    clientBasedCORS: (_ctx: unknown, origin: string) => pages.some((page) => new URL(page).origin === origin),
    cookies: { keys: [SECRET] },
    findAccount: (_ctx: unknown, sub: string) => ({ accountId: sub, claims: () => ({ sub }) }),
    issueRefreshToken: (_ctx: unknown, client: { grantTypeAllowed(type: string): boolean }) =>
      client.grantTypeAllowed('refresh_token'),
    rotateRefreshToken: true,
    extraTokenClaims: claimsOf,
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: true },
      deviceFlow: { enabled: true },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: () => ({
          scope: 'storage.read:/ storage.stage:/',
          audience: AUDIENCE,
          accessTokenTTL: lifeOf(),
          accessTokenFormat: 'jwt',
          jwt: { sign: { alg: key.jwk.alg } },
        }),
      },
    },
  };
}

/** Logs in like a browser: follows redirects, stores cookies, and fills in each form. */
export async function logInAt(
  place: string,
  { user, aborts = false }: { user: string; aborts?: boolean },
): Promise<void> {
  const cookies = new Map<string, string>();
  let [url, body]: [string, URLSearchParams | undefined] = [place, undefined];
  for (let step = 0; step < 20; step++) {
    const headers = { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') };
    const response: Response = await fetch(url, { redirect: 'manual', headers, ...(body && { method: 'POST', body }) });
    for (const cookie of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]*)=([^;]*)/.exec(cookie) ?? [];
      cookies.set(name, value);
    }
    const page = await response.text();
    if (body?.has('abort')) return;
    const [, target] = /<form[^>]* action="([^"]*)"/.exec(page) ?? [];
    const next = response.headers.get('location') ?? target;
    if (next === undefined) {
      if (response.ok) return;
      throw new Error(`the provider answers ${response.status}: ${page}`);
    }
    url = new URL(next, url).href;
    body = response.headers.has('location') ? undefined : fillIn(page, user, aborts);
  }
  throw new Error('the login does not end');
}

function fillIn(page: string, user: string, aborts: boolean): URLSearchParams {
  const inputs = [...page.matchAll(/<input[^>]*>/g)].map(([input]) => [
    /name="([^"]*)"/.exec(input)?.[1] ?? '',
    /value="([^"]*)"/.exec(input)?.[1] ?? user,
  ]);
  return new URLSearchParams([...inputs, ...(aborts && page.includes('name="abort"') ? [['abort', 'yes']] : [])]);
}
