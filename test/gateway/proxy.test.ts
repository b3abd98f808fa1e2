/** Callers named by a reverse proxy: the headers that count, and the rights that they grant. */
import { once } from 'node:events';
import { existsSync, readdirSync, renameSync, statSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import { expect, test } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { setQuota } from '../../src/domain/quotas/quotas.js';
import { startBeside, type TestApp } from '../support/app.js';
import { createClock } from '../support/clock.js';
import { sendAsIs } from '../support/http.js';
import { addedBy, OF_PROXY, settingsOfProxy } from '../support/proxy.js';
import { errorBody } from '../support/rest.js';
import { waitForReaders } from '../support/streams.js';
import { makeTempDir } from '../support/temp-dir.js';
import { useApp } from '../support/use-app.js';

const dir = makeTempDir();
const certUsers = path.join(dir, 'users');
writeFileSync(certUsers, '# subjects\n"/DC=org/CN=Robot" robot\n\n"CN=Ada,CN=1234,O=Example" ada\n');

const accessOf = (env: Record<string, string>) => readConfig(env).access;
const clock = createClock();

const access = accessOf({
  TAPEGATE_AUTH: 'token,proxy,certificate',
  ...settingsOfProxy('127.0.0.1 10.9.0.0/16'),
  TAPEGATE_PROXY_HEADERS: 'groups=X-Remote-Groups',
  TAPEGATE_PROXY_CERT_USERS: certUsers,
  TAPEGATE_PROXY_ROLES: 'operator=ops,viewer=user:eve',
});
const app = useApp({ now: clock.now, config: { access } }, async () => {
  for (const user of ['alice', 'bob', 'zoé']) await setQuota(app.ctx, { user, size: 1000n });
});

const get = (app: TestApp, where: string, headers: Record<string, string> = {}) =>
  sendAsIs(app, `/tape_control/api/v1${where}`, { headers: { Host: 'localhost', ...addedBy(app), ...headers } });

/** Returns the HTTP statuses of the quotas of alice and bob. */
const sees = async (app: TestApp, headers: Record<string, string>) => {
  const answers = [await get(app, '/quota/alice', headers), await get(app, '/quota/bob', headers)];
  return answers.map(({ status }) => status);
};

const OVER_TLS = 'a password is accepted only over TLS or from the same host';

async function expectRefused(app: TestApp, headers: Record<string, string>, message: string): Promise<void> {
  const answer = await get(app, '/quota/alice', headers);
  expect([answer.status, answer.body]).toEqual([401, errorBody(message)]);
  expect(answer.headers.has('www-authenticate')).toBe(true);
}

test('the named user sees its own quota', async () => {
  expect(await sees(app, { 'X-Remote-User': 'alice' })).toEqual([200, 404]);
  expect(await sees(app, { 'X-Remote-User': 'bob' })).toEqual([404, 200]);
  const name = Buffer.from('zoé').toString('latin1');
  expect((await get(app, '/quota/zo%C3%A9', { 'X-Remote-User': name })).status).toBe(200);
});

test('groups and names give roles', async () => {
  expect(await sees(app, { 'X-Remote-User': 'carol', 'X-Remote-Groups': 'staff, ops' })).toEqual([200, 200]);
  expect(await sees(app, { 'X-Remote-User': 'eve' })).toEqual([200, 200]);
  expect(await sees(app, { 'X-Remote-User': 'ops' })).toEqual([404, 404]);
});

test('a request without a user is refused', async () => {
  for (const headers of [{}, { 'X-Remote-User': '' }, { 'X-Remote-User': '(null)' }]) {
    expect((await get(app, '/quota/alice', headers)).status).toBe(401);
  }
  const message = 'the request has the header x-remote-groups, but not the header x-remote-user';
  await expectRefused(app, { 'X-Remote-Groups': 'ops' }, message);
});

test('a repeated header and an invalid name are refused', async () => {
  const twice = { 'X-Remote-User': ['alice', 'bob'] as unknown as string };
  await expectRefused(app, twice, 'the header x-remote-user must be sent once, not 2 times');
  const bytes = (name: string) => Buffer.from(name).toString('latin1');
  const unseen = ['alice\u00a0', '\ufeffalice', 'al\u200bice', 'alice\u2003', 'zoe\u0301'].map(bytes);
  for (const user of ['\u00ff', 'a'.repeat(256), ...unseen]) {
    const { status } = await get(app, '/quota/alice', { 'X-Remote-User': user });
    expect([user, status]).toEqual([user, 401]);
  }
  const groups = { 'X-Remote-User': 'carol', 'X-Remote-Groups': bytes('ops\u00a0') };
  expect(await sees(app, groups)).toEqual([404, 404]);
});

test('a verified certificate is the user of its common name, or of the file', async () => {
  const certificate = (subject: string, verify = 'SUCCESS') => ({
    'X-SSL-Client-S-DN': subject,
    'X-SSL-Client-Verify': verify,
  });
  expect(await sees(app, certificate('CN=alice,OU=People,O=Example'))).toEqual([200, 404]);
  expect(await sees(app, certificate('O=Example, cn = bob'))).toEqual([404, 200]);
  expect((await get(app, '/quota/robot', certificate('/DC=org/CN=Robot'))).status).toBe(404);
  expect(await sees(app, certificate('CN=eve'))).toEqual([200, 200]);
  const subjects = ['/DC=org/CN=alice', 'CN=bob,CN=alice', 'O=x', 'O="CN=alice"', 'O=x\\,CN=alice', 'CN=#0c01'];
  for (const subject of subjects) {
    const message = `the client certificate of ${JSON.stringify(subject)} does not map to a user: the certificate must have exactly one common name`;
    await expectRefused(app, certificate(subject), message);
  }
  for (const verify of ['FAILED:expired', '', 'success', 'GENEROUS']) {
    const message = 'the proxy has not verified the client certificate: the header x-ssl-client-verify must be SUCCESS';
    await expectRefused(app, certificate('CN=alice', verify), message);
  }
  const missing = await get(app, '/quota/alice', certificate('', 'NONE'));
  expect([missing.status, missing.text]).toEqual([401, expect.stringContaining('authentication required')]);
});

test.each([
  'system',
  'System',
  'anonymous',
  'anybody',
  'operator',
  'OPERATOR',
  'sys tem',
  '\uff53ystem',
  'syste\u1d50',
])('the reserved name "%s" is refused for users of proxies and certificates', async (name) => {
  const sent = Buffer.from(name).toString('latin1');
  for (const headers of [
    { 'X-Remote-User': sent },
    { 'X-SSL-Client-S-DN': `CN=${sent},O=Example`, 'X-SSL-Client-Verify': 'SUCCESS' },
  ]) {
    const answer = await get(app, '/quota/alice', headers);
    expect([answer.status, answer.text]).toEqual([401, expect.stringContaining('is reserved: ')]);
  }
});

test('the time to read a subject grows with its length only', async () => {
  const startedAt = performance.now();
  for (const spaces of [
    `CN=a${' '.repeat(14_000)}b"`,
    `CN=a,O=${' '.repeat(14_000)}"`,
    `O=${'\\ '.repeat(7000)},CN="`,
  ]) {
    for (let n = 0; n < 5; n++) {
      const headers = { 'X-SSL-Client-S-DN': spaces, 'X-SSL-Client-Verify': 'SUCCESS' };
      expect((await get(app, '/quota/alice', headers)).status).toBe(401);
    }
  }
  expect(performance.now() - startedAt).toBeLessThan(3000);
});

test('a token counts through the proxy, and as a password over TLS only', async () => {
  const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
  const basic = { Authorization: `Basic ${Buffer.from(`alice:${secret}`).toString('base64')}` };
  expect(await sees(app, { Authorization: `Bearer ${secret}`, 'X-Forwarded-Proto': 'http' })).toEqual([200, 404]);
  expect(await sees(app, { ...basic, 'X-Forwarded-Proto': 'https' })).toEqual([200, 404]);
  for (const scheme of ['http', '', 'https,http']) {
    await expectRefused(app, { ...basic, 'X-Forwarded-Proto': scheme }, OVER_TLS);
  }
});

test('behind a proxy that is not listed its headers are refused, not ignored, and so is a password', async () => {
  const access = accessOf({ TAPEGATE_AUTH: 'token,proxy,certificate,open', TAPEGATE_PROXY_ADDRESSES: '192.0.2.7' });
  const other = await startBeside(app, { config: { access } });
  try {
    expect((await get(other, '/quota/alice')).status).toBe(200);
    for (const name of ['x-remote-user', 'x-ssl-client-s-dn', 'x-ssl-client-verify']) {
      const message = `the header ${name} is accepted only from a proxy in TAPEGATE_PROXY_ADDRESSES, not from 127.0.0.1`;
      await expectRefused(other, { [name]: 'alice' }, message);
    }
    const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
    const basic = { Authorization: `Basic ${Buffer.from(`alice:${secret}`).toString('base64')}` };
    expect(await sees(other, basic)).toEqual([200, 404]);
    await expectRefused(other, { ...basic, 'X-Forwarded-Proto': 'https' }, OVER_TLS);
  } finally {
    await other.close();
  }
});

test('a local program that does not have the secret is no proxy', async () => {
  for (const sent of ['', 'a-secret-of-the-prox', 'another-secret-of-it']) {
    const headers = { 'X-Tapegate-Proxy-Secret': sent, 'X-Remote-User': 'eve', 'X-Forwarded-For': '192.0.2.66' };
    const message =
      'the header x-remote-user is accepted only from a proxy in TAPEGATE_PROXY_ADDRESSES, but the request has no valid x-tapegate-proxy-secret';
    await expectRefused(app, headers, message);
  }
  await app.ctx.refusals.settle();
  const invented = await app.ctx.db.prisma.audit.count({ where: { address: '192.0.2.66' } });
  expect(invented).toBe(0);
});

test('a proxy connects by a socket that only its group can open, which a killed gateway leaves behind', async () => {
  const socketPath = path.join(dir, 'proxy.sock');
  const left = net.createServer().listen(`${socketPath}.left`);
  await once(left, 'listening');
  renameSync(`${socketPath}.left`, socketPath);
  left.close();
  const access = accessOf({
    TAPEGATE_AUTH: 'proxy',
    TAPEGATE_PROXY_ADDRESSES: `unix:${socketPath}:${process.getgid?.()}`,
  });
  const near = await startBeside(app, { config: { access } });
  const { mode, gid } = statSync(socketPath);
  expect([(mode & 0o777).toString(8), gid]).toEqual(['660', process.getgid?.()]);
  const headers = { Host: 'localhost', 'X-Remote-User': 'alice', 'X-Forwarded-For': '192.0.2.7' };
  const target = '/tape_control/api/v1/quota/alice';
  const request = http.get({ socketPath, path: target, headers });
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  response.resume();
  expect(response.statusCode).toBe(200);
  expect((await sendAsIs(near, target, { headers })).status).toBe(401);
  await expect(startBeside(app, { config: { access } })).rejects.toThrow(
    `cannot listen on ${socketPath} (TAPEGATE_PROXY_ADDRESSES): another process is listening on this socket`,
  );
  await near.close();
  expect(existsSync(socketPath)).toBe(false);
  expect(readdirSync(dir)).toEqual(['users']);
  writeFileSync(socketPath, '');
  await expect(startBeside(app, { config: { access } })).rejects.toThrow('the file at this path is not a socket');
});

test('a stream of a caller named by a proxy ends after a while, and one with a token stays', async () => {
  const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
  const query = encodeURIComponent('subscription { stageChanges { path } }');
  const leaving = new AbortController();
  const open = async (headers: Record<string, string>) => {
    const target = `${app.url}/graphql?query=${query}`;
    const accept = { ...headers, Accept: 'text/event-stream' };
    const answer = await fetch(target, { headers: accept, signal: leaving.signal });
    expect(answer.status).toBe(200);
    return answer.text().catch(() => 'broken off');
  };
  const proxied = open({ ...OF_PROXY, 'X-Remote-User': 'alice' });
  const byToken = open({ Authorization: `Bearer ${secret}` });
  await waitForReaders(app, 2);
  clock.advance(16 * 60);
  expect(await proxied).toBe('broken off');
  await waitForReaders(app, 1);
  leaving.abort();
  await byToken;
});
