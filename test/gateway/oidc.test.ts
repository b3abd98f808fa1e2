/** Callers with a token of an OpenID Connect provider: their names and rights, and the tokens that are refused. */
import { exportSPKI, type JWTPayload, SignJWT } from 'jose';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { secondsOf } from '../../src/core/time.js';
import { setQuota } from '../../src/domain/quotas/quotas.js';
import { startApp, startBeside, type TestApp } from '../support/app.js';
import { ask } from '../support/graphql.js';
import { request, send } from '../support/http.js';
import { AUDIENCE, type IdentityProvider, makeKey, startIdentityProvider } from '../support/identity-provider.js';
import { call, errorBody } from '../support/rest.js';

let provider: IdentityProvider;
let other: IdentityProvider;
let app: TestApp;
/** Seconds by which the app's clock is ahead. */
let offset = 0;

const env = () => ({
  TAPEGATE_AUTH: 'token,oidc',
  TAPEGATE_OIDC_ISSUER: `${provider.url},${other.url}`,
  TAPEGATE_OIDC_AUDIENCE: AUDIENCE,
  TAPEGATE_OIDC_CLIENT_ID: 'tapegate-cli',
  TAPEGATE_OIDC_ROLES: 'operator=/tapes/ops,viewer=user:eve',
});

const accessOf = (settings: Record<string, string>) => ({ access: readConfig(settings).access });

/**
 * Advances all clocks of the process: the host's clock, which decides when keys are fetched again, and the clock that
 * measures pauses.
 */
function later(ms: number): void {
  aheadMs += ms;
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + ms });
  vi.spyOn(performance, 'now').mockImplementation(() => elapsed() + aheadMs);
}

const elapsed = performance.now.bind(performance);
let aheadMs = 0;

const at = (seconds: number) => new Date(Date.now() + seconds * 1000).toISOString().slice(0, 19);
const epoch = (seconds: number) => secondsOf(at(seconds));

beforeAll(async () => {
  provider = await startIdentityProvider();
  other = await startIdentityProvider();
  app = await startApp({ config: accessOf(env()), now: () => at(offset) });
  for (const user of ['alice', 'bob', 'scripts', `alice@${new URL(other.url).host}`])
    await setQuota(app.ctx, { user, size: 1000n });
});
afterAll(async () => {
  await app.close();
  await provider.close();
  await other.close();
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  aheadMs = 0;
  offset = 0;
  provider.isAway = false;
});

const show = (token: string) => ({ Authorization: `Bearer ${token}` });
const get = (path: string, token: string) => call(app, 'GET', path, { headers: show(token) });

/** Returns the statuses of the quotas of some users. */
const sees = async (token: string, ...users: string[]) =>
  await Promise.all(users.map(async (user) => (await get(`/quota/${user}`, token)).status));

const hour = { exp: epoch(3600) };

async function expectRefused(token: string, message: string): Promise<void> {
  const { status, headers, body } = await get('/quota/alice', token);
  expect([status, body]).toEqual([401, errorBody(message)]);
  expect(headers.get('www-authenticate')).toMatch(/^Bearer error="invalid_token"/);
  expect(message).not.toContain(token.slice(-20));
}

test('a caller with a token of the provider is its subject, by REST and by GraphQL', async () => {
  const token = await provider.issue();
  expect(await sees(token, 'scripts', 'alice')).toEqual([200, 404]);
  const { data } = await ask({ ...app, token }, '{ quotas { edges { node { user } } } }');
  expect(data).toEqual({ quotas: { edges: [{ node: { user: 'scripts' } }] } });
});

test('groups of the WLCG profile and names give roles', async () => {
  const ops = await provider.issue({ 'wlcg.ver': '1.0', 'wlcg.groups': ['/tapes', '/tapes/ops'] });
  expect(await sees(ops, 'alice', 'bob')).toEqual([200, 200]);
  const suspend =
    'mutation { suspend(input: { kind: LIBRARY, name: "none", mode: IMMEDIATE }) { suspension { name } errors { code } } }';
  const failed = (code: string) => ({ data: { suspend: { suspension: null, errors: [{ code }] } } });
  expect(await ask({ ...app, token: ops }, suspend)).toEqual(failed('NOT_FOUND'));
  const eve = await provider.sign({ ...hour, sub: 'eve' });
  expect(await sees(eve, 'alice', 'bob')).toEqual([200, 200]);
  expect(await ask({ ...app, token: eve }, suspend)).toEqual(failed('FORBIDDEN'));
  const tapes = await provider.sign({ ...hour, 'wlcg.groups': ['/tapes'], groups: ['/tapes/ops'] });
  expect(await sees(tapes, 'alice', 'bob')).toEqual([200, 404]);
});

test.each(['wlcg.groups', 'groups'])('%s that the database cannot store are ignored', async (claim) => {
  const strange = ['a\0', '\0', '\ud800'];
  const ops = await provider.sign({ ...hour, [claim]: [...strange, '/tapes/ops'] });
  expect(await sees(ops, 'alice', 'bob')).toEqual([200, 200]);
  const alice = await provider.sign({ ...hour, [claim]: strange.join(',') });
  expect(await sees(alice, 'alice', 'bob')).toEqual([200, 404]);
  expect(await ask({ ...app, token: alice }, '{ caller { name } }')).toEqual({ data: { caller: { name: 'alice' } } });
});

test('storage scopes limit what a token allows', async () => {
  const asks = (token: string) =>
    call(app, 'POST', '/requests', { body: { quota: 'alice', files: '/none' }, headers: show(token) });
  const scoped = (scope: string, claims: JWTPayload = {}) => provider.sign({ ...hour, ...claims, scope });
  for (const [scope, reading, asking] of [
    ['openid profile', 200, 200],
    ['storage.read:/ storage.stage:/', 200, 200],
    ['storage.stage', 200, 200],
    ['storage.read:/', 200, 403],
    ['storage.modify:/', 403, 403],
    ['compute.read compute.create compute.cancel', 403, 403],
    ['compute.read storage.read:/', 200, 403],
    ['storage.read:/atlas storage.stage:/atlas', 403, 403],
  ] as const) {
    const token = await scoped(scope);
    expect([scope, await sees(token, 'alice'), (await asks(token)).status]).toEqual([scope, [reading], asking]);
  }
  const computing = await scoped('compute.create', { groups: ['/tapes/ops'] });
  expect((await get('/quota/bob', computing)).status).toBe(403);
  const insufficient = await get('/quota/alice', await scoped('storage.create:/'));
  expect(insufficient.headers.get('www-authenticate')).toContain('error="insufficient_scope"');
  const staging = await scoped('storage.stage:/', { groups: ['/tapes/ops'] });
  expect(await sees(staging, 'alice', 'bob')).toEqual([200, 404]);
  const share =
    'mutation { setQuotaMember(input: { quota: "alice", kind: USER, name: "bob", isManager: true }) { member { name } errors { code } } }';
  const refused = { member: null, errors: [{ code: 'FORBIDDEN' }] };
  for (const [token, result] of [
    [staging, refused],
    [await scoped('openid'), { member: { name: 'bob' }, errors: [] }],
    [staging, refused],
  ] as const)
    expect(await ask({ ...app, token }, share)).toEqual({ data: { setQuotaMember: result } });
  const unshare =
    'mutation { removeQuotaMember(input: { quota: "alice", kind: USER, name: "bob" }) { errors { message } } }';
  await ask({ ...app, token: await scoped('openid') }, unshare);
});

test('each issuer has its own users and its own keys', async () => {
  expect(await sees(await other.sign(hour), 'alice', `alice@${new URL(other.url).host}`)).toEqual([404, 200]);
  const foreign = await other.sign({ ...hour, iss: provider.url }, { kid: provider.key.jwk.kid });
  await expectRefused(foreign, 'the token is not signed by a key of its issuer');
});

test('the clock of an issuer may differ by a minute', async () => {
  expect(await sees(await provider.sign({ exp: epoch(-45) }), 'alice')).toEqual([200]);
  expect(await sees(await provider.sign({ ...hour, nbf: epoch(45) }), 'alice')).toEqual([200]);
  await expectRefused(await provider.sign({ exp: epoch(-75) }), 'the token has expired');
  await expectRefused(await provider.sign({ ...hour, nbf: epoch(75) }), 'the token is not yet valid (nbf)');
  const token = await provider.sign(hour);
  expect(await sees(token, 'alice')).toEqual([200]);
  offset = 3670;
  await expectRefused(token, 'the token has expired');
});

test('a token with a missing, wrong or foreign signature is refused', async () => {
  const [header, payload] = (await provider.sign(hour)).split('.');
  const none = Buffer.from(JSON.stringify({ alg: 'none', kid: 'first' })).toString('base64url');
  const algorithm = "the token's signature algorithm is not accepted (alg)";
  await expectRefused(`${none}.${payload}.`, algorithm);
  const secret = Buffer.from(await exportSPKI(provider.key.publicKey));
  const claims = { iss: provider.url, aud: AUDIENCE, sub: 'alice', ...hour };
  for (const alg of ['HS256', 'HS512']) {
    const signed = await new SignJWT(claims).setProtectedHeader({ alg, kid: 'first' }).sign(secret);
    await expectRefused(signed, algorithm);
  }
  const wrongKey = 'the token is not signed by a key of its issuer';
  const key = await makeKey('first');
  const withKey = { alg: 'RS256', kid: 'first', jwk: { ...key.jwk, d: undefined } };
  const forged = await new SignJWT(claims).setProtectedHeader(withKey as never).sign(key.privateKey);
  await expectRefused(forged, wrongKey);
  const changed = Buffer.from(JSON.stringify({ ...claims, sub: 'bob' })).toString('base64url');
  const [, , signature] = (await provider.sign(hour)).split('.');
  await expectRefused(`${header}.${changed}.${signature}`, wrongKey);
  const withoutKid = await provider.sign(hour, { kid: undefined });
  await expectRefused(withoutKid, 'the token has no key id (kid)');
  await expectRefused(await provider.sign(hour, { kid: 'unknown' }), wrongKey);
  await expectRefused(await provider.sign(hour, { typ: 'logout+jwt' }), 'the token is not an access token (typ)');
});

test('a token with another audience or issuer, without an expiry or without a valid subject is refused', async () => {
  await expectRefused(
    await provider.sign({ ...hour, aud: 'https://other' }),
    'the token is for another audience (aud)',
  );
  await expectRefused(await provider.sign({ ...hour, aud: [] }), 'the token is for another audience (aud)');
  const unknown = "the token's issuer is not trusted (iss)";
  for (const iss of ['https://elsewhere.example', `${provider.url}/`, '']) {
    await expectRefused(await provider.sign({ ...hour, iss }), unknown);
  }
  await expectRefused(await provider.sign({}), 'the token has no expiration time (exp)');
  for (const token of ['a.b.c', `${'x'.repeat(3000)}.y.z`]) await expectRefused(token, 'the token is not a JWT');
  for (const sub of ['', 'a\nb', 'a\0', 'a\ud800', 'x'.repeat(256)]) {
    expect((await get('/quota/alice', await provider.sign({ ...hour, sub }))).status).toBe(401);
  }
  expect((await get('/quota/alice', 'opaque')).status).toBe(401);
});

test('a refused client learns where the issuers are listed', async () => {
  const { status, headers } = await send(app, '/tape_control/api/v1/requests');
  const [, place = ''] = /Bearer [^,]*, resource_metadata="([^"]*)"$/.exec(headers.get('www-authenticate') ?? '') ?? [];
  expect([status, place]).toEqual([401, `${app.url}/.well-known/oauth-protected-resource`]);
  expect(await (await fetch(place)).json()).toEqual({
    resource: app.url,
    authorization_servers: [provider.url, other.url],
    bearer_methods_supported: ['header'],
    scopes_supported: ['storage.read:/', 'storage.stage:/'],
    resource_name: 'Tapegate',
    tapegate_audience: AUDIENCE,
    tapegate_client_id: 'tapegate-cli',
  });
  const without = await startBeside(app, { config: accessOf({ TAPEGATE_AUTH: 'token' }) });
  expect((await send(without, '/.well-known/oauth-protected-resource')).status).toBe(404);
  const refused = await send(without, '/tape_control/api/v1/requests');
  expect(refused.headers.get('www-authenticate')).not.toContain('metadata');
  await without.close();
});

test('a stream ends when its token expires', async () => {
  const token = await provider.sign({ exp: epoch(60) });
  const headers = { ...show(token), 'Content-Type': 'application/json', Accept: 'text/event-stream' };
  const body = { query: 'subscription { stageChanges { path } }' };
  const response = await request(app, '/graphql/stream', { body, headers });
  expect(response.status).toBe(200);
  const end = response.text().catch(() => 'broken off');
  offset = 121; // more seconds than the allowed clock skew
  expect(await end).toBe('broken off');
});

test('after a key rotation the new key counts, the old one does not, and unknown keys do not make the gateway ask again', async () => {
  const old = await provider.issue();
  expect(await sees(old, 'scripts')).toEqual([200]);
  await provider.rotate('second');
  const fresh = await provider.issue();
  later(31_000);
  const asked = provider.asked.length;
  expect(await sees(fresh, 'scripts')).toEqual([200]);
  await expectRefused(await provider.sign(hour, { kid: 'first' }), 'the token is not signed by a key of its issuer');
  for (let n = 0; n < 5; n++) await get('/quota/alice', await provider.sign(hour, { kid: `made up ${n}` }));
  expect(provider.asked.slice(asked)).toEqual(['/jwks']);
});

test('while an issuer is unavailable its known keys count, and unknown ones return 503', async () => {
  expect(await sees(await provider.sign(hour), 'alice')).toEqual([200]);
  provider.isAway = true;
  later(700_000);
  expect(await sees(await provider.sign({ ...hour, jti: '1' }), 'alice')).toEqual([200]);
  const { status, headers, body } = await get('/quota/alice', await provider.sign(hour, { kid: 'third' }));
  const message = `cannot read the keys of the issuer ${provider.url}: try again later`;
  expect([status, headers.get('retry-after'), body]).toEqual([503, '5', errorBody(message)]);
  provider.isAway = false;
  await provider.rotate('third');
  later(5001);
  expect(await sees(await provider.sign(hour), 'alice')).toEqual([200]);
});

test('an issuer that fails is asked rarely, however many of its tokens callers show', async () => {
  const late = await startBeside(app, { config: accessOf(env()), now: () => at(offset) });
  const path = '/tape_control/api/v1/requests';
  const statusOf = async (header?: Record<string, string>) =>
    (await send(late, path, { headers: show(await provider.sign(hour, header)) })).status;
  /** Returns the paths that the gateway requests from the issuer while callers present five tokens. */
  const askedFor = async (header?: (n: number) => Record<string, string>) => {
    const asked = provider.asked.length;
    for (let n = 0; n < 5; n++) expect(await statusOf(header?.(n))).toBe(503);
    return provider.asked.slice(asked);
  };
  const discovery = '/.well-known/openid-configuration';
  provider.isAway = true;
  expect(await askedFor()).toEqual([discovery]);
  later(5001);
  expect(await askedFor()).toEqual([discovery]);
  // the issuer serves its discovery document, but not its keys
  provider.isAway = false;
  provider.instead = async (asked) => (asked === '/jwks' ? { status: 500 } : undefined);
  later(5001);
  expect(await askedFor()).toEqual([discovery, '/jwks']);
  provider.instead = undefined;
  later(5001);
  expect(await statusOf()).toBe(200);
  // tokens with a cached key are accepted, and five unknown key ids cause only one request to the issuer
  provider.isAway = true;
  later(31_000);
  expect(await askedFor((n) => ({ kid: `made up ${n}` }))).toEqual(['/jwks']);
  expect(await statusOf()).toBe(200);
  await late.close();
});
