/**
 * Callers without credentials: the endpoints that they may use, the counts of their calls, and how an operator closes
 * the gateway.
 */
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { type Endpoint, endpoints } from '../../src/config/setting-values.js';
import { packageRoot } from '../../src/core/package-root.js';
import { addLegacyUses } from '../../src/domain/access/legacy-uses.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { startBeside, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { ask, askData, type Edges } from '../support/graphql.js';
import { sendAsIs } from '../support/http.js';
import { findFreePort } from '../support/ports.js';
import { cleanUp, runCli, serveHere, startProcess } from '../support/process.js';
import { addedBy, OF_PROXY, settingsOfProxy } from '../support/proxy.js';
import { makeTempDir } from '../support/temp-dir.js';
import { useApp } from '../support/use-app.js';

/** A gateway with `TAPEGATE_AUTH=token,legacy` behind a proxy on 127.0.0.1. */
let legacy: TestApp;
let secret: string;

const TAPEGATE_LEGACY =
  'GET /requests/{id} from 198.51.100.0/24 203.0.113.9, GET /quota/{user}, PUT /requests/{id} from ::1';

const app = useApp({}, async () => {
  await addQuota(app.ctx, 'alice', 10_000n);
  ({ secret } = await createToken(app.ctx, { name: 'alice', role: 'USER' }));
  legacy = await startLegacy({ ...settingsOfProxy(), TAPEGATE_LEGACY });
});
afterAll(async () => {
  await legacy.close();
  await cleanUp();
});

const startLegacy = (settings: Record<string, string>) =>
  startBeside(app, { config: { access: readConfig({ TAPEGATE_AUTH: 'token,legacy', ...settings }).access } });

/** Sends a request to the REST API. @returns the HTTP status */
async function statusOf(
  gateway: TestApp,
  path: string,
  headers: Record<string, string> = {},
  method = 'GET',
  body?: string,
) {
  const call = { method, headers: { Host: 'localhost', ...addedBy(gateway), ...headers }, ...(body && { body }) };
  return (await sendAsIs(gateway, `/tape_control/api/v1${path}`, call)).status;
}

const serve = (env: Record<string, string>) =>
  serveHere({ DATABASE_URL: app.databaseUrl, DATA_DIR: makeTempDir(), ...env });

test('a script without credentials runs, is counted, is refused after the close, and runs again with a line in ~/.netrc', async () => {
  const home = makeTempDir();
  const port = await findFreePort();
  const api = `http://127.0.0.1:${port}/tape_control/api/v1`;
  const script = path.join(home, 'ask-for-files');
  const lines = [
    '#!/bin/sh',
    `curl -sSn -w ' %{http_code}\\n' -d '{"quota": "alice", "files": "/a/1"}' ${api}/requests`,
    `curl -sSn -o ${home}/list -w '%{http_code}\\n' ${api}/requests`,
  ];
  writeFileSync(script, `${lines.join('\n')}\n`);
  chmodSync(script, 0o755);
  const run = async (TAPEGATE_LEGACY: string) => {
    const server = await serve({ TAPEGATE_AUTH: 'token,legacy', TAPEGATE_LEGACY, PORT: String(port) });
    const { stdout } = await startProcess(script, [], { env: { HOME: home } }).ended;
    await server.stop(); // stopping the server writes the counts
    return stdout;
  };
  expect(await run('all')).toMatch(/^\[\{"req_id":\d+\}\] 200\n200\n$/);
  expect(await run('none')).toMatch(/^\[\{"error":"authentication required: [^\n]* 401\n401\n$/);
  const env = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
  const { stdout } = await runCli(['legacy', '--json'], { env });
  const rows = stdout.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line)]));
  const counts = rows.map(({ endpoint, address, user, accepted, rejected }) => [
    endpoint,
    address,
    user,
    accepted,
    rejected,
  ]);
  expect(counts.sort()).toEqual([
    ['GET /requests', '127.0.0.1', null, 1, 1],
    ['POST /requests', '127.0.0.1', null, 0, 1],
    ['POST /requests', '127.0.0.1', 'alice', 1, 0],
  ]);
  const table = /^DAY +ENDPOINT +FROM +USER +ACCEPTED +REJECTED +LAST\n.*\/requests/;
  expect((await runCli(['legacy'], { env })).stdout).toMatch(table);
  writeFileSync(path.join(home, '.netrc'), `machine 127.0.0.1 login alice password ${secret}\n`, { mode: 0o600 });
  expect(await run('none')).toMatch(/^\[\{"req_id":\d+\}\] 200\n200\n$/);
});

const calls: Record<Endpoint, [method: string, path: string, body?: string]> = {
  'GET /requests': ['GET', '/requests'],
  'GET /requests/{id}': ['GET', '/requests/1'],
  'GET /files': ['GET', '/files'],
  'GET /quota/{user}': ['GET', '/quota/alice'],
  'POST /requests': ['POST', '/requests', '[{"quota":"alice","files":"/a/2"}]'],
  'PUT /requests/{id}': ['PUT', '/requests/1', '[{"quota":"alice","label":"x"}]'],
};

test.each([
  [undefined, ['GET /quota/{user}']],
  ['198.51.100.7', ['GET /requests/{id}', 'GET /quota/{user}']],
  ['203.0.113.9', ['GET /requests/{id}', 'GET /quota/{user}']],
  ['203.0.113.10', ['GET /quota/{user}']],
  ['::1', ['GET /quota/{user}', 'PUT /requests/{id}']],
])('TAPEGATE_LEGACY opens its endpoints to its addresses only: %s', async (address, expected) => {
  const open: string[] = [];
  for (const endpoint of endpoints) {
    const [method, path, body] = calls[endpoint];
    const headers = address === undefined ? {} : { 'X-Forwarded-For': address };
    if ((await statusOf(legacy, path, headers, method, body)) !== 401) open.push(endpoint);
  }
  expect(open).toEqual(expected);
});

test('the address of a client is the one that the proxies report, never the address of a proxy', async () => {
  const near = await startLegacy({
    ...settingsOfProxy('127.0.0.1,10.0.0.0/8'),
    TAPEGATE_LEGACY: 'GET /quota/{user} from 127.0.0.0/8 10.1.0.0/16',
  });
  const cases: [headers: Record<string, string>, status: number][] = [
    [{}, 401],
    [{ 'X-Real-IP': '198.51.100.7' }, 401],
    [{ Forwarded: 'for=198.51.100.7' }, 401],
    ...(
      [
        ['unknown', 401],
        ['198.51.100.7, junk', 401],
        ['198.51.100.7', 401],
        ['10.2.0.7', 401],
        ['10.2.0.7, 127.0.0.1', 401],
        ['127.0.0.9', 200],
        // scripts that run on the hosts of proxies
        ['127.0.0.1', 200],
        ['10.1.0.7', 200],
        ['127.0.0.1, 10.2.0.5', 200],
      ] as const
    ).map(([chain, status]): [Record<string, string>, number] => [{ 'X-Forwarded-For': chain }, status]),
  ];
  for (const [headers, status] of cases) {
    expect([headers, await statusOf(near, '/quota/alice', headers)]).toEqual([headers, status]);
  }
  await near.close();
});

test('a local program that does not send the secret of the proxy is not known by the headers of the proxy', async () => {
  const near = await startLegacy({ ...settingsOfProxy(), TAPEGATE_LEGACY: 'GET /quota/{user} from 198.51.100.7' });
  const target = '/tape_control/api/v1/quota/alice';
  const headers = { Host: 'localhost', 'X-Forwarded-For': '198.51.100.7' };
  const answers = [
    await sendAsIs(near, target, { headers }),
    await sendAsIs(near, target, { headers: { ...headers, ...OF_PROXY } }),
  ];
  expect(answers.map(({ status }) => status)).toEqual([401, 200]);
  await near.close();
});

test('requests through a proxy that is not listed need a token', async () => {
  const near = await startLegacy({ TAPEGATE_LEGACY: 'all' });
  expect(await statusOf(near, '/requests')).toBe(200);
  const headers = { Host: 'localhost', 'X-Forwarded-For': '10.0.0.1' };
  const { status, text } = await sendAsIs(near, '/tape_control/api/v1/requests', { headers });
  expect([status, text]).toEqual([401, expect.stringContaining('must have a token (found: x-forwarded-for)')]);
  await near.close();
});

test('other paths, methods and protocols stay closed', async () => {
  const graphql = await sendAsIs(legacy, '/graphql?query={drives{totalCount}}', { headers: { Host: 'localhost' } });
  expect(graphql.status).toBe(401);
  for (const [method, path] of [
    ['DELETE', '/quota/alice'],
    ['GET', '/quota'],
    ['GET', '/quota/alice/more'],
  ] as const) {
    expect([method, path, await statusOf(legacy, path, {}, method)]).toEqual([method, path, 401]);
  }
});

test.each([
  ...['Bearer tapegate_none', 'Bearer foo', 'Bearer', 'Bearer a b', 'Basic Zm9v', 'Basic', 'Digest x'],
  ...['Negotiate abc', 'tapegate_AAAA', ''],
])('credentials that are not valid do not count as none: "%s"', async (Authorization) => {
  expect(await statusOf(legacy, '/quota/alice', { Authorization })).toBe(401);
  expect(await statusOf(legacy, '/quota/alice', { Authorization: `Bearer ${secret}` })).toBe(200);
});

test('uses are counted by address and by existing user, for operators', async () => {
  const near = await startLegacy({ ...settingsOfProxy(), TAPEGATE_LEGACY });
  const headers = { 'X-Forwarded-For': '192.0.2.77' };
  for (const user of ['alice', 'alice', 'alice', 'nobody']) await statusOf(near, `/quota/${user}`, headers);
  await near.close();
  const query = '{ legacyUses(first: 1000) { edges { node { address user accepted } } } }';
  const { legacyUses } = await askData<{ legacyUses: Edges<{ address: string }> }>(app, query);
  const own = legacyUses.edges.map(({ node }) => node).filter(({ address }) => address === '192.0.2.77');
  expect(own).toHaveLength(2);
  expect(own).toEqual(
    expect.arrayContaining([
      { address: '192.0.2.77', user: 'alice', accepted: 3 },
      { address: '192.0.2.77', user: null, accepted: 1 },
    ]),
  );
  const { errors } = await ask({ ...app, token: secret }, query);
  expect(errors?.map(({ extensions }) => extensions?.code)).toEqual(['FORBIDDEN']);
});

test('refusals of callers without credentials are counted separately, and are in the audit', async () => {
  const near = await startLegacy({ ...settingsOfProxy(), TAPEGATE_LEGACY });
  const address = '192.0.2.99';
  const headers = { 'X-Forwarded-For': address };
  const post = () => statusOf(near, '/requests', headers, 'POST', '[{"quota":"alice"}]');
  const refused = [await post(), await post(), await statusOf(near, '/requests/1', headers)];
  expect([...refused, await statusOf(near, '/quota/alice', headers)]).toEqual([401, 401, 401, 200]);
  // a call of an unknown path and a call with credentials are not counted
  const others = [
    statusOf(near, '/nothing', headers),
    statusOf(near, '/files', { ...headers, Authorization: 'Bearer x' }),
  ];
  expect(await Promise.all(others)).toEqual([401, 401]);
  await near.close();
  const { prisma } = app.ctx.db;
  const rows = await prisma.legacyUse.findMany({ where: { address }, orderBy: { endpoint: 'asc' } });
  expect(rows.map(({ endpoint, user, uses, refused }) => [endpoint, user, uses, refused])).toEqual([
    ['GET /quota/{user}', 'alice', 1n, 0n],
    ['GET /requests/{id}', '', 0n, 1n],
    ['POST /requests', '', 0n, 2n],
  ]);
  await app.ctx.refusals.settle();
  const [first] = await prisma.audit.findMany({ where: { address, operation: 'identify' }, orderBy: { id: 'asc' } });
  expect(first).toMatchObject({
    who: '',
    way: 'unknown',
    given: { endpoint: 'POST /requests', problem: expect.stringMatching(/^authentication required/) },
    result: 'UNAUTHENTICATED',
  });
});

test('the counts of several gateways add up, and are removed after 90 days', async () => {
  const use = { endpoint: 'GET /files', address: '192.0.2.88', user: '', uses: 2, refused: 1, lastAt: app.ctx.now() };
  const old = { ...use, lastAt: '2020-01-01T00:00:00' };
  await Promise.all([addLegacyUses(app.ctx, [use, old]), addLegacyUses(app.ctx, [use])]);
  await addLegacyUses(app.ctx, [use]);
  const rows = await app.ctx.db.prisma.legacyUse.findMany({ where: { address: '192.0.2.88' } });
  expect(rows.map(({ uses, refused, lastAt }) => [uses, refused, lastAt])).toEqual([[6n, 3n, use.lastAt]]);
});

test('an open gateway prints how to close it, as in the README', async () => {
  const [line = ''] = /^ {2}access .*\n/m.exec(readFileSync(path.join(packageRoot, 'README.md'), 'utf8')) ?? [];
  expect(line).toContain('TAPEGATE_AUTH=token');
  const closed = await serve({ TAPEGATE_AUTH: 'token,legacy' });
  const open = await serve({});
  expect([closed, open].map((server) => server.stdout().includes(line))).toEqual([false, true]);
  for (const server of [closed, open]) expect((await server.stop()).stderr).toBe('');
});
