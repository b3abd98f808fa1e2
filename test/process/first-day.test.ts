/** The first day: a script that shows nothing goes on, is counted, is cut off, and comes back with a line in ~/.netrc. */
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readConfig } from '../../src/config.js';
import { type Endpoint, endpoints } from '../../src/config-legacy.js';
import { addLegacyUses } from '../../src/operations/access/legacy-uses.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { packageRoot } from '../../src/package-root.js';
import { backendNames } from '../../src/tape/index.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { ask, askData, type Edges } from '../support/graphql.js';
import { sendAsIs } from '../support/http.js';
import { takePort } from '../support/ports.js';
import { cleanUp, runCli, serveHere, startProcess } from '../support/process.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

afterAll(cleanUp);

const startWith = (settings: Record<string, string>) =>
  startApp({ config: { access: readConfig(settings, backendNames).access } });

test('a script without a header runs, is counted, is cut off, and runs again by a line in ~/.netrc', async () => {
  const app = await startApp();
  await addQuota(app.ctx, 'alice', 1000n);
  const home = makeTempDir();
  const { port, letGo } = await takePort();
  await letGo();
  const api = `http://127.0.0.1:${port}/tape_control/api/v1`;
  const script = path.join(home, 'ask-for-files');
  writeFileSync(
    script,
    `#!/bin/sh
curl -sSn -w ' %{http_code}\\n' -d '{"quota": "alice", "files": "/a/1"}' ${api}/requests
curl -sSn -o ${home}/list -w '%{http_code}\\n' ${api}/requests
`,
  );
  chmodSync(script, 0o755);
  const run = async () => (await startProcess(script, [], { env: { HOME: home } }).ended).stdout;
  const start = (LEGACY: string) =>
    serveHere({ AUTH: 'token,legacy', LEGACY, PORT: String(port), DATABASE_URL: app.databaseUrl, DATA_DIR: home });

  let server = await start('all');
  expect(await run()).toBe('[{"req_id":1}] 200\n200\n');
  await server.stop();

  server = await start('none');
  expect(await run()).toMatch(/^\[\{"error":"say who you are: [^\n]* 401\n401\n$/);
  const env = { TAPEGATE_URL: server.url, TAPEGATE_TOKEN: app.token };
  const uses = await waitFor('what was refused to be written down', async () => {
    const { stdout } = await runCli(['legacy', '--json'], { env });
    const rows = stdout.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line)]));
    return rows.reduce((sum, { refused }) => sum + refused, 0) === 2 ? rows : undefined;
  });
  const figures = uses.map(({ endpoint, address, user, uses: count, refused }) => [
    endpoint,
    address,
    user,
    count,
    refused,
  ]);
  expect(figures.sort()).toEqual([
    ['GET /requests', '127.0.0.1', '', 1, 1],
    ['POST /requests', '127.0.0.1', '', 0, 1],
    ['POST /requests', '127.0.0.1', 'alice', 1, 0],
  ]);
  const heads = /^DAY +ENDPOINT +FROM +USER +USES +REFUSED +LAST\n.*\/requests/;
  expect((await runCli(['legacy'], { env })).stdout).toMatch(heads);

  const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
  writeFileSync(path.join(home, '.netrc'), `machine 127.0.0.1 login alice password ${secret}\n`, { mode: 0o600 });
  expect(await run()).toBe('[{"req_id":2}] 200\n200\n');
  await server.stop();
  await app.close();
});

const asked: Record<Endpoint, [method: string, path: string, body?: string]> = {
  'GET /requests': ['GET', '/requests'],
  'GET /requests/{id}': ['GET', '/requests/1'],
  'GET /files': ['GET', '/files'],
  'GET /quota/{user}': ['GET', '/quota/alice'],
  'POST /requests': ['POST', '/requests', '[{"quota":"alice","files":"/a/2"}]'],
  'PUT /requests/{id}': ['PUT', '/requests/1', '[{"quota":"alice","label":"x"}]'],
};

describe('of the endpoints', () => {
  let app: TestApp;
  afterAll(() => app.close());
  beforeAll(async () => {
    const LEGACY =
      'GET /requests/{id} from 198.51.100.0/24 203.0.113.9, GET /quota/{user}, PUT /requests/{id} from ::1';
    app = await startWith({ AUTH: 'token,legacy', PROXY_ADDRESSES: '127.0.0.1', LEGACY });
    await addQuota(app.ctx, 'alice', 1000n);
  });

  const openFrom = async (address?: string) => {
    const open: string[] = [];
    for (const endpoint of endpoints) {
      const [method, target, body] = asked[endpoint];
      const headers = { Host: 'localhost', ...(address && { 'X-Forwarded-For': address }) };
      const answer = await sendAsIs(app, `/tape_control/api/v1${target}`, { method, headers, ...(body && { body }) });
      if (answer.status !== 401) open.push(endpoint);
    }
    return open;
  };

  test('each is open to whom the setting says, and no other', async () => {
    expect(await openFrom()).toEqual(['GET /quota/{user}']);
    expect(await openFrom('198.51.100.7')).toEqual(['GET /requests/{id}', 'GET /quota/{user}']);
    expect(await openFrom('203.0.113.9')).toEqual(['GET /requests/{id}', 'GET /quota/{user}']);
    expect(await openFrom('203.0.113.10')).toEqual(['GET /quota/{user}']);
    expect(await openFrom('::1')).toEqual(['GET /quota/{user}', 'PUT /requests/{id}']);
  });

  test('where the proxy tells no address of its client, its own is not taken for it', async () => {
    const LEGACY = 'GET /quota/{user} from 127.0.0.0/8';
    const near = await startWith({ AUTH: 'token,legacy', PROXY_ADDRESSES: '127.0.0.1', LEGACY });
    await addQuota(near.ctx, 'alice', 1000n);
    const ask = async (headers: Record<string, string>) =>
      (await sendAsIs(near, '/tape_control/api/v1/quota/alice', { headers: { Host: 'localhost', ...headers } })).status;
    for (const headers of [
      {},
      { 'X-Real-IP': '198.51.100.7' },
      { Forwarded: 'for=198.51.100.7' },
      { 'X-Forwarded-For': 'unknown' },
      { 'X-Forwarded-For': '198.51.100.7, junk' },
      { 'X-Forwarded-For': '198.51.100.7' },
    ]) {
      expect([headers, await ask(headers as never)]).toEqual([headers, 401]);
    }
    expect(await ask({ 'X-Forwarded-For': '127.0.0.9' })).toBe(200);
    await near.close();
  });

  test('a script on the host of a proxy that asks through it comes from there', async () => {
    const LEGACY = 'GET /quota/{user} from 127.0.0.1 10.1.0.0/16';
    const near = await startWith({ AUTH: 'token,legacy', PROXY_ADDRESSES: '127.0.0.1,10.0.0.0/8', LEGACY });
    await addQuota(near.ctx, 'alice', 1000n);
    const ask = async (chain: string) => {
      const headers = { Host: 'localhost', 'X-Forwarded-For': chain };
      return (await sendAsIs(near, '/tape_control/api/v1/quota/alice', { headers })).status;
    };
    expect([await ask('127.0.0.1'), await ask('10.1.0.7'), await ask('127.0.0.1, 10.2.0.5')]).toEqual([200, 200, 200]);
    expect([await ask('10.2.0.7'), await ask('10.2.0.7, 127.0.0.1')]).toEqual([401, 401]);
    await near.close();
  });

  test('nothing else is, and a token that is not known is not passed over', async () => {
    const { status } = await sendAsIs(app, '/graphql?query={drives{totalCount}}', { headers: { Host: 'localhost' } });
    expect(status).toBe(401);
    for (const [method, target] of [
      ['DELETE', '/quota/alice'],
      ['GET', '/quota'],
      ['GET', '/quota/alice/more'],
    ] as const) {
      const answer = await sendAsIs(app, `/tape_control/api/v1${target}`, { method, headers: { Host: 'localhost' } });
      expect([method, target, answer.status]).toEqual([method, target, 401]);
    }
    const shown = [
      'Bearer tapegate_none',
      'Bearer',
      'Bearer a b',
      'Basic Zm9v',
      'Basic',
      'Digest x',
      'Negotiate abc',
      '',
    ];
    for (const Authorization of shown) {
      const headers = { Host: 'localhost', Authorization };
      const { status: answered } = await sendAsIs(app, '/tape_control/api/v1/quota/alice', { headers });
      expect([Authorization, answered]).toEqual([Authorization, 401]);
    }
  });

  test('what was asked is counted with the address and a user that there is', async () => {
    const from = (address: string, user: string) =>
      sendAsIs(app, `/tape_control/api/v1/quota/${user}`, {
        headers: { Host: 'localhost', 'X-Forwarded-For': address },
      });
    for (let n = 0; n < 3; n++) await from('192.0.2.77', 'alice');
    await from('192.0.2.77', 'nobody');
    const query = '{ legacyUses(first: 1000) { edges { node { address user uses } } } }';
    const found = async () => {
      const { legacyUses } = await askData<{ legacyUses: Edges<{ address: string }> }>(app, query);
      const own = legacyUses.edges.filter(({ node }) => node.address === '192.0.2.77');
      return own.length === 2 ? own.map(({ node }) => node) : undefined;
    };
    const uses = await waitFor('the uses to be written down', found);
    expect(uses).toEqual(
      expect.arrayContaining([
        { address: '192.0.2.77', user: 'alice', uses: '3' },
        { address: '192.0.2.77', user: '', uses: '1' },
      ]),
    );
    const { secret: token } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
    const { errors } = await ask({ ...app, token }, query);
    expect(errors?.map(({ extensions }) => extensions?.code)).toEqual(['FORBIDDEN']);
  });

  test('what is refused to who shows nothing is counted beside, and named in the audit', async () => {
    const headers = { Host: 'localhost', 'X-Forwarded-For': '192.0.2.99' };
    const send = async (method: string, target: string, more: Record<string, string> = {}) => {
      const sent = {
        method,
        headers: { ...headers, ...more },
        ...(method === 'POST' && { body: '[{"quota":"alice"}]' }),
      };
      return (await sendAsIs(app, `/tape_control/api/v1${target}`, sent)).status;
    };
    const narrow = [await send('POST', '/requests'), await send('POST', '/requests'), await send('GET', '/requests/1')];
    expect([...narrow, await send('GET', '/quota/alice')]).toEqual([401, 401, 401, 200]);
    // neither of these is a script of the contract that shows nothing
    expect([await send('GET', '/nothing'), await send('GET', '/files', { Authorization: 'Bearer x' })]).toEqual([
      401, 401,
    ]);
    const rows = await waitFor('the refusals to be written down', async () => {
      const where = { address: '192.0.2.99' };
      const found = await app.ctx.db.prisma.legacyUse.findMany({ where, orderBy: { endpoint: 'asc' } });
      return found.length === 3 ? found : undefined;
    });
    expect(rows.map(({ endpoint, user, uses, refused }) => [endpoint, user, uses, refused])).toEqual([
      ['GET /quota/{user}', 'alice', 1n, 0n],
      ['GET /requests/{id}', '', 0n, 1n],
      ['POST /requests', '', 0n, 2n],
    ]);
    await app.ctx.refusals.settle();
    const where = { address: '192.0.2.99', operation: 'identify' };
    const [first] = await app.ctx.db.prisma.audit.findMany({ where, orderBy: { id: 'asc' } });
    expect(first).toMatchObject({
      who: '',
      way: 'unknown',
      given: { endpoint: 'POST /requests', problem: expect.stringMatching(/^say who you are/) },
      result: 'UNAUTHENTICATED',
    });
  });

  test('counts add up, over gateways, and go after 90 days', async () => {
    const use = { endpoint: 'GET /files', address: '192.0.2.88', user: '', uses: 2, refused: 1, lastAt: app.ctx.now() };
    const old = { ...use, lastAt: '2020-01-01T00:00:00' };
    await Promise.all([addLegacyUses(app.ctx, [use, old]), addLegacyUses(app.ctx, [use])]);
    await addLegacyUses(app.ctx, [use]);
    const where = { address: '192.0.2.88' };
    const rows = await app.ctx.db.prisma.legacyUse.findMany({ where });
    expect(rows.map(({ uses, refused, lastAt }) => [uses, refused, lastAt])).toEqual([[6n, 3n, use.lastAt]]);
  });
});

test('a proxy that is not listed hides nobody', async () => {
  const app = await startWith({ AUTH: 'token,legacy', LEGACY: 'all' });
  const get = (headers: Record<string, string>) =>
    sendAsIs(app, '/tape_control/api/v1/requests', { headers: { Host: 'localhost', ...headers } });
  expect((await get({})).status).toBe(200);
  const { status, text } = await get({ 'X-Forwarded-For': '10.0.0.1' });
  expect([status, text]).toEqual([401, expect.stringContaining('a proxy (x-forwarded-for) that is not listed')]);
  await app.close();
});

test('whoever shows something that is good for nothing is not taken for one who shows nothing', async () => {
  const app = await startWith({ AUTH: 'token,legacy', LEGACY: 'all' });
  const { secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' });
  const statusOf = async (Authorization: string) =>
    (await sendAsIs(app, '/tape_control/api/v1/requests', { headers: { Host: 'localhost', Authorization } })).status;
  for (const header of [
    'Basic Zm9v',
    'Bearer',
    'Bearer a b',
    'Digest x',
    'Negotiate abc',
    'tapegate_AAAA',
    'Bearer foo',
  ]) {
    expect([header, await statusOf(header)]).toEqual([header, 401]);
  }
  expect(await statusOf(`Bearer ${secret}`)).toBe(200);
  await app.close();
});

test('a start with an open door says how to close it, as the README shows it', async () => {
  const [line = ''] = /^ {2}access .*\n/m.exec(readFileSync(path.join(packageRoot, 'README.md'), 'utf8')) ?? [];
  const app = await startApp();
  const says = async (env: Record<string, string>) => {
    const server = await serveHere({ ...env, DATABASE_URL: app.databaseUrl, DATA_DIR: makeTempDir() });
    await server.stop();
    return server.stdout().includes(line);
  };
  expect(line).toContain('AUTH=token');
  expect([await says({}), await says({ AUTH: 'token' })]).toEqual([true, false]);
  await app.close();
});

test('a gateway that is open in another way than one that runs on the same database says so', async () => {
  const app = await startApp();
  const start = (AUTH?: string) =>
    serveHere({ ...(AUTH && { AUTH }), DATABASE_URL: app.databaseUrl, DATA_DIR: makeTempDir() });
  const closed = await start('token,legacy');
  const open = await start();
  const same = await start('legacy,token');
  const warnings = async (server: Awaited<ReturnType<typeof start>>) =>
    (await server.stop()).stderr.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line).msg]));
  const told = (other: string, own: string) =>
    `another gateway of this database runs with AUTH=${other}, and this one with AUTH=${own}: who is kept out by one may come in by the other`;
  expect(await warnings(open)).toEqual([told('token,legacy', 'token,open')]);
  expect(await warnings(same)).toEqual([told('token,open', 'token,legacy')]);
  expect(await warnings(closed)).toEqual([]);
  const alone = await start('token');
  expect(await warnings(alone)).toEqual([]);
  await app.close();
});
