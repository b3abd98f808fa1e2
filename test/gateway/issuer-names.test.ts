/** User and group names from several issuers, a proxy and tokens. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { setQuotaMember } from '../../src/domain/access/members.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { setQuota } from '../../src/domain/quotas/quotas.js';
import { startApp, startBeside, type TestApp } from '../support/app.js';
import { type Edges, sendGraphql } from '../support/graphql.js';
import { AUDIENCE, type Realms, startRealms } from '../support/identity-provider.js';
import { OF_PROXY, settingsOfProxy } from '../support/proxy.js';
import { call, errorBody } from '../support/rest.js';

let realms: Realms;
let app: TestApp;

beforeAll(async () => {
  realms = await startRealms('a', 'b', 'c');
  const env = {
    TAPEGATE_AUTH: 'token,oidc,proxy,certificate',
    TAPEGATE_OIDC_ISSUER: ['a', 'b', 'c'].map(realms.urlOf).join(),
    TAPEGATE_OIDC_AUDIENCE: AUDIENCE,
    ...settingsOfProxy(),
    TAPEGATE_PROXY_HEADERS: 'groups=X-Remote-Groups',
  };
  app = await startApp({ config: { access: readConfig(env).access } });
  for (const user of ['alice', nameOf('b'), nameOf('c')]) await setQuota(app.ctx, { user, size: 1000n });
});
afterAll(async () => {
  await app.close();
  await realms.close();
});

/** Returns the URL of an issuer without its scheme. */
const endOf = (realm: string) => realms.urlOf(realm).replace('http://', '');
const nameOf = (realm: string) => `alice@${endOf(realm)}`;

const tokenOf = async (realm: string, claims = {}) =>
  await realms.sign(realm, { exp: Math.floor(Date.now() / 1000) + 3600, ...claims });
const bearer = (token: string) => ({ Authorization: `Bearer ${token}` });

/** Returns the users of the quotas that a caller sees. */
async function quotasOf(headers: Record<string, string>, { url } = app): Promise<string[]> {
  const { body } = await sendGraphql({ url }, { query: '{ quotas { edges { node { user } } } }' }, { headers });
  return (body.data as { quotas: Edges<{ user: string }> }).quotas.edges.map(({ node }) => node.user);
}

test('users with the same name at different issuers are different users, even on one host', async () => {
  const seen = [];
  for (const realm of ['a', 'b', 'c']) seen.push(await quotasOf(bearer(await tokenOf(realm))));
  expect(seen).toEqual([['alice'], [nameOf('b')], [nameOf('c')]]);
});

test('a group belongs to its issuer', async () => {
  await setQuotaMember(app.ctx, { quota: 'alice', kind: 'GROUP', name: `ocean@${endOf('b')}`, isManager: false });
  expect(await quotasOf(bearer(await tokenOf('b', { sub: 'dora', groups: ['ocean'] })))).toEqual(['alice']);
  expect(await quotasOf(bearer(await tokenOf('c', { sub: 'dora', groups: ['ocean'] })))).toEqual([]);
});

test('only a listed issuer may give names with its own suffix', async () => {
  const refused = async (headers: Record<string, string>, source: string, name: string) => {
    const { status, body } = await call(app, 'GET', '/quota/alice', { headers });
    const message = `${source} names ${JSON.stringify(name)}, but only an issuer in TAPEGATE_OIDC_ISSUER may use this name`;
    expect([status, body]).toEqual([401, errorBody(message)]);
  };
  const taken = nameOf('b');
  await refused(bearer(await tokenOf('a', { sub: taken })), 'the token', taken);
  await refused(bearer(await tokenOf('a', { groups: ['ocean', taken] })), 'the token', taken);
  await refused({ ...OF_PROXY, 'X-Remote-User': taken }, 'the proxy', taken);
  await refused({ ...OF_PROXY, 'X-Remote-User': 'alice', 'X-Remote-Groups': `ocean;${taken}` }, 'the proxy', taken);
  const subject = { ...OF_PROXY, 'X-SSL-Client-S-DN': `CN=${taken}`, 'X-SSL-Client-Verify': 'SUCCESS' };
  await refused(subject, 'the client certificate', taken);
  // any other name with an @ is an ordinary name
  expect(await quotasOf({ ...OF_PROXY, 'X-Remote-User': 'alice@example.org' })).toEqual([]);
  expect(await quotasOf(bearer(await tokenOf('c', { sub: taken })))).toEqual([]);
});

test('an operator may create a token for a user of an issuer', async () => {
  const TAPEGATE_OIDC_ISSUER = 'https://sso.example.org/a https://sso.example.org/b';
  const { access } = readConfig({
    TAPEGATE_AUTH: 'token,oidc',
    TAPEGATE_OIDC_AUDIENCE: AUDIENCE,
    TAPEGATE_OIDC_ISSUER,
  });
  const other = await startBeside(app, { config: { access } });
  const name = 'alice@sso.example.org/b';
  await setQuota(other.ctx, { user: name, size: 1000n });
  const { secret } = await createToken(other.ctx, { name, role: 'USER' });
  expect(await quotasOf(bearer(secret), other)).toEqual([name]);
  await other.close();
});

test('issuers whose users would have the same names are refused', () => {
  const TAPEGATE_OIDC_ISSUER = 'https://sso.example.org/a,https://SSO.example.org:443/a/';
  expect(() => readConfig({ TAPEGATE_AUTH: 'oidc', TAPEGATE_OIDC_AUDIENCE: AUDIENCE, TAPEGATE_OIDC_ISSUER })).toThrow(
    'TAPEGATE_OIDC_ISSUER contains several issuers with the address sso.example.org/a: keep one of them, because Tapegate could not distinguish their users',
  );
});
