/** Callers whom a reverse proxy has known: whose word is taken, and what becomes of it. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readConfig } from '../../src/config.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { setQuota } from '../../src/operations/quotas/quotas.js';
import { backendNames } from '../../src/tape/index.js';
import { startApp, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { type Answer, sendAsIs } from '../support/http.js';
import { errorBody } from '../support/rest.js';
import { waitForReaders } from '../support/streams.js';
import { makeTempDir } from '../support/temp-dir.js';

const dir = makeTempDir();
const certUsers = path.join(dir, 'users');
writeFileSync(certUsers, '# subjects\n"/DC=org/CN=Robot" robot\n\n"CN=Ada,CN=1234,O=Example" ada\n');

/** An app with these settings beside its own. */
async function startWith(env: Record<string, string>): Promise<TestApp> {
  const { access } = readConfig(env, backendNames);
  const app = await startApp({ config: { access } });
  for (const user of ['alice', 'bob', 'zoé']) await setQuota(app.ctx, { user, size: 1000n });
  return app;
}

const get = (app: TestApp, where: string, headers: Record<string, string> = {}) =>
  sendAsIs(app, `/tape_control/api/v1${where}`, { headers: { Host: 'localhost', ...headers } });

/** Whether a caller sees the quotas of alice and of bob. */
const sees = async (app: TestApp, headers: Record<string, string>) => {
  const answers = [await get(app, '/quota/alice', headers), await get(app, '/quota/bob', headers)];
  return answers.map(({ status }) => status);
};

const refusal = ({ status, headers, body }: Answer) => ({ status, challenge: headers.has('www-authenticate'), body });
const refused = (message: string) => ({ status: 401, challenge: true, body: errorBody(message) });

test('what a proxy says of a caller holds for a while in a stream, which is asked again then', async () => {
  const clock = createClock();
  const { access } = readConfig({ AUTH: 'token,proxy', PROXY_ADDRESSES: '127.0.0.1' }, backendNames);
  const app = await startApp({ now: clock.now, config: { access } });
  await setQuota(app.ctx, { user: 'alice', size: 1n });
  const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
  const query = encodeURIComponent('subscription { stageChanges { path } }');
  const open = async (headers: Record<string, string>) => {
    const answer = await fetch(`${app.url}/graphql?query=${query}`, {
      headers: { ...headers, Accept: 'text/event-stream' },
    });
    expect(answer.status).toBe(200);
    return answer.text().then(
      () => 'complete',
      () => 'broken off',
    );
  };
  const proxied = open({ 'X-Remote-User': 'alice' });
  const byToken = open({ Authorization: `Bearer ${secret}` });
  await waitForReaders(app, 2);
  clock.advance(16 * 60);
  expect(await proxied).toBe('broken off');
  expect(app.ctx.events.readers).toBe(1);
  await app.close();
  await byToken;
});

describe('behind a listed proxy', () => {
  let app: TestApp;
  beforeAll(async () => {
    app = await startWith({
      AUTH: 'token,proxy,certificate',
      PROXY_ADDRESSES: '127.0.0.1 10.9.0.0/16',
      PROXY_GROUPS_HEADER: 'X-Remote-Groups',
      PROXY_CERT_USERS: certUsers,
      PROXY_ROLES: 'operator=ops,viewer=user:eve',
    });
  });
  afterAll(() => app.close());

  test('the user whom it names sees its own', async () => {
    expect(await sees(app, { 'X-Remote-User': 'alice' })).toEqual([200, 404]);
    expect(await sees(app, { 'X-Remote-User': 'bob' })).toEqual([404, 200]);
    const name = Buffer.from('zoé').toString('latin1');
    expect((await get(app, '/quota/zo%C3%A9', { 'X-Remote-User': name })).status).toBe(200);
  });

  test('groups and names bring roles', async () => {
    expect(await sees(app, { 'X-Remote-User': 'carol', 'X-Remote-Groups': 'staff, ops' })).toEqual([200, 200]);
    expect(await sees(app, { 'X-Remote-User': 'eve' })).toEqual([200, 200]);
    expect(await sees(app, { 'X-Remote-User': 'ops' })).toEqual([404, 404]);
  });

  test('whoever is not named is not known', async () => {
    for (const headers of [{}, { 'X-Remote-User': '' }, { 'X-Remote-User': '(null)' }]) {
      expect((await get(app, '/quota/alice', headers)).status).toBe(401);
    }
    expect(refusal(await get(app, '/quota/alice', { 'X-Remote-Groups': 'ops' }))).toEqual(
      refused('there are groups (x-remote-groups) and no user (x-remote-user)'),
    );
  });

  test('a header that is there twice, and a name that is none, are refused', async () => {
    const twice = { 'X-Remote-User': ['alice', 'bob'] as unknown as string };
    expect(refusal(await get(app, '/quota/alice', twice))).toEqual(
      refused('the header x-remote-user is there 2 times'),
    );
    const bytes = (name: string) => Buffer.from(name).toString('latin1');
    const unseen = ['alice\u00a0', '\ufeffalice', 'al\u200bice', 'alice\u2003', 'zoe\u0301'].map(bytes);
    for (const user of ['\u00ff', 'a'.repeat(256), ...unseen]) {
      const { status } = await get(app, '/quota/alice', { 'X-Remote-User': user });
      expect([user, status]).toEqual([user, 401]);
    }
    const groups = { 'X-Remote-User': 'carol', 'X-Remote-Groups': bytes('ops\u00a0') };
    expect(await sees(app, groups)).toEqual([404, 404]);
  });

  test('a verified certificate is its common name, or what the file says', async () => {
    const certificate = (subject: string, verify = 'SUCCESS') => ({
      'X-SSL-Client-S-DN': subject,
      'X-SSL-Client-Verify': verify,
    });
    expect(await sees(app, certificate('CN=alice,OU=People,O=Example'))).toEqual([200, 404]);
    expect(await sees(app, certificate('O=Example, cn = bob'))).toEqual([404, 200]);
    expect((await get(app, '/quota/robot', certificate('/DC=org/CN=Robot'))).status).toBe(404);
    expect(await sees(app, certificate('CN=eve'))).toEqual([200, 200]);
    for (const subject of [
      '/DC=org/CN=alice',
      'CN=bob,CN=alice',
      'O=x',
      'O="CN=alice"',
      'O=x\\,CN=alice',
      'CN=#0c01',
    ]) {
      expect(refusal(await get(app, '/quota/alice', certificate(subject)))).toEqual(
        refused(
          `no user is known for the client certificate of ${JSON.stringify(subject)}: it has not one common name`,
        ),
      );
    }
    for (const verify of ['FAILED:expired', '', 'success', 'GENEROUS']) {
      expect(refusal(await get(app, '/quota/alice', certificate('CN=alice', verify)))).toEqual(
        refused('the client certificate is not verified: x-ssl-client-verify must say SUCCESS'),
      );
    }
    const missing = await get(app, '/quota/alice', certificate('', 'NONE'));
    expect([missing.status, missing.text]).toEqual([401, expect.stringContaining('say who you are')]);
  });

  test('a token counts through it, and its password over TLS only', async () => {
    const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
    const basic = { Authorization: `Basic ${Buffer.from(`alice:${secret}`).toString('base64')}` };
    expect(await sees(app, { Authorization: `Bearer ${secret}`, 'X-Forwarded-Proto': 'http' })).toEqual([200, 404]);
    expect(await sees(app, { ...basic, 'X-Forwarded-Proto': 'https' })).toEqual([200, 404]);
    for (const scheme of ['http', '', 'https,http']) {
      const answer = await get(app, '/quota/alice', { ...basic, 'X-Forwarded-Proto': scheme });
      expect(refusal(answer)).toEqual(refused('a password is taken over TLS, or from the same host, only'));
    }
  });
});

describe('of a proxy that is not listed', () => {
  let app: TestApp;
  beforeAll(async () => {
    app = await startWith({ AUTH: 'token,proxy,certificate,open', PROXY_ADDRESSES: '192.0.2.7' });
  });
  afterAll(() => app.close());

  test('the headers are refused, not passed over', async () => {
    expect((await get(app, '/quota/alice')).status).toBe(200);
    for (const name of ['x-remote-user', 'x-ssl-client-s-dn', 'x-ssl-client-verify']) {
      expect(refusal(await get(app, '/quota/alice', { [name]: 'alice' }))).toEqual(
        refused(`the header ${name} is taken from a listed proxy only, and 127.0.0.1 is none`),
      );
    }
  });

  test('a password that came through it is refused, whatever it says', async () => {
    const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
    const basic = { Authorization: `Basic ${Buffer.from(`alice:${secret}`).toString('base64')}` };
    expect(await sees(app, basic)).toEqual([200, 404]);
    const answer = await get(app, '/quota/alice', { ...basic, 'X-Forwarded-Proto': 'https' });
    expect(refusal(answer)).toEqual(refused('a password is taken over TLS, or from the same host, only'));
  });
});
