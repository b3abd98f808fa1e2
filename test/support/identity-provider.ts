/** A real OpenID provider on this host, whose keys can be exchanged, and which can be away. */
import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { type CryptoKey, exportJWK, generateKeyPair, type JWK, type JWTPayload, SignJWT } from 'jose';
import { Provider } from 'oidc-provider';

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
  /** Paths that it was asked for. */
  asked: string[];
  /** It answers nothing but 503. */
  isAway: boolean;
  /** An access token by its own token endpoint, for a client that has these claims. */
  issue(claims?: Record<string, unknown>): Promise<string>;
  /** A token of its present key that says what it never would. */
  sign(claims: JWTPayload, header?: Record<string, unknown>): Promise<string>;
  /** From now on it has this key alone. */
  rotate(kid: string): Promise<void>;
  close(): Promise<void>;
}

export const AUDIENCE = 'https://tapes.example.org';
const CLIENT = 'scripts';
const SECRET = 'a secret of tests';

export async function startIdentityProvider(): Promise<IdentityProvider> {
  const server = http.createServer((req, res) => {
    provider.asked.push(req.url ?? '');
    if (provider.isAway) res.writeHead(503).end();
    else answer(req, res);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  let claims: Record<string, unknown> = {};
  const create = (key: SigningKey) =>
    new Provider(
      url,
      configure(key, () => claims),
    ).callback();
  const key = await makeKey('first');
  let answer = create(key);
  const provider: IdentityProvider = {
    url,
    key,
    asked: [],
    isAway: false,
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
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return provider;
}

function configure(key: SigningKey, claimsOf: () => Record<string, unknown>): object {
  return {
    jwks: { keys: [key.jwk] },
    clients: [
      {
        client_id: CLIENT,
        client_secret: SECRET,
        grant_types: ['client_credentials'],
        redirect_uris: [],
        response_types: [],
      },
    ],
    extraTokenClaims: claimsOf,
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: () => ({
          scope: 'storage.read:/ storage.stage:/',
          audience: AUDIENCE,
          accessTokenTTL: 600,
          accessTokenFormat: 'jwt',
          jwt: { sign: { alg: key.jwk.alg } },
        }),
      },
    },
  };
}
