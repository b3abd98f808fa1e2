/** The door for transfer tools, where callers ask for what is not theirs, for what there cannot be, or for too much; and where a disk fails beneath it. */
import { once } from 'node:events';
import { readFileSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { setMember } from '../../src/operations/access/members.js';
import { setPathRule } from '../../src/operations/access/path-rules.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { request } from '../support/http.js';
import { callTape, poll, stageFiles, statesOf, type TapeClient, waitForStaged } from '../support/tape-rest.js';
import { createGate } from '../support/wait.js';

const backend = createMemoryBackend();
const door = { siteName: 'TEST', webdav: 'all' as const, gateways: new Map<string, string>(), diskCalls: 2 };
let app: TestApp;
let alice: TapeClient;
let bob: TapeClient;

beforeAll(async () => {
  app = await startApp({ backend, config: { door, access: { auth: new Set(['token']) } } });
  for (const user of ['alice', 'bob', 'lab']) await addQuota(app.ctx, user, 1_000_000_000n);
  const clientOf = async (name: string) => ({
    url: app.url,
    token: (await createToken(app.ctx, { name, role: 'USER' })).secret,
  });
  [alice, bob] = [await clientOf('alice'), await clientOf('bob')];
});
afterAll(() => app.close());

const fetchOf = (client: TapeClient, target: string, method = 'GET', headers = {}) =>
  request(app, `/webdav${target}`, { method, headers: { Authorization: `Bearer ${client.token}`, ...headers } });

async function restore(name: string, bytes: Buffer): Promise<void> {
  await addTaped(app.ctx, backend, [{ path: name, bytes, volume: name.replaceAll('/', '-') }]);
  const { files } = await waitForStaged(alice, await stageFiles(alice, [{ path: name }]));
  expect(files.map(({ state }) => state)).toEqual(['COMPLETED']);
}

/** Until `end`, reads of files give what `read` makes of them. */
async function disturbReads(read: (...args: unknown[]) => Promise<unknown> | undefined): Promise<{ end(): void }> {
  const handle = await open('/proc/self/cmdline');
  const methods = Object.getPrototypeOf(handle) as { read(...args: unknown[]): Promise<unknown> };
  await handle.close();
  const real = methods.read;
  methods.read = async function disturbed(this: unknown, ...args: unknown[]) {
    return await (read(...args) ?? real.apply(this, args));
  };
  return { end: () => Object.assign(methods, { read: real }) };
}

test('what is kept from a caller takes no longer to be told of the more of it there is', async () => {
  const folder = (name: string) => Array.from({ length: 60 }, (_, n) => ({ path: `/vault/${name}/${n}` }));
  await addFiles(app.ctx, [...folder('a'), ...folder('b'), { path: '/vault/open/x' }, { path: '/vault-2' }]);
  await setPathRule(app.ctx, { prefix: '/vault', action: 'LIST', kind: 'USER', name: 'alice' });
  await setPathRule(app.ctx, { prefix: '/vault/open', action: 'LIST', kind: 'EVERYBODY', name: '' });
  await app.ctx.db.pool.query('CREATE SEQUENCE looks; ALTER FUNCTION path_ruled RENAME TO path_ruled_for');
  await app.ctx.db.pool.query(
    `CREATE FUNCTION path_ruled(path text, wanted "PathAction", who text, groups text[]) RETURNS boolean LANGUAGE plpgsql AS $$
     BEGIN PERFORM nextval('looks'); RETURN path_ruled_for(path, wanted, who, groups); END $$`,
  );
  const looksOf = async (work: () => Promise<unknown>): Promise<number> => {
    const read = async () => (await app.ctx.db.pool.query('SELECT last_value::int AS n FROM looks')).rows[0].n;
    const before = await read();
    await work();
    return (await read()) - before;
  };
  const calls = [
    async () => expect((await fetchOf(bob, '/vault/a')).status).toBe(404),
    async () => expect((await fetchOf(bob, '/vault/a', 'PROPFIND', { Depth: '0' })).status).toBe(404),
    async () =>
      expect((await callTape(bob, 'POST', '/archiveinfo', { paths: ['/vault/a'] })).text).toContain('no such'),
    async () =>
      expect(statesOf(await poll(bob, await stageFiles(bob, [{ path: '/vault/b' }])))).toEqual({
        '/vault/b': 'FAILED',
      }),
    async () => {
      const listed = await (await fetchOf(bob, '/vault', 'PROPFIND', { Depth: '1' })).text();
      expect([...listed.matchAll(/<D:href>(.*?)<\/D:href>/g)].map(([, href]) => href)).toEqual([
        '/webdav/vault/',
        '/webdav/vault/open/',
      ]);
    },
    async () =>
      expect(await (await fetchOf(bob, '/', 'PROPFIND', { Depth: '1' })).text()).toContain('/webdav/vault-2<'),
  ];
  try {
    for (const call of calls) expect(await looksOf(call)).toBeLessThan(20);
  } finally {
    await app.ctx.db.pool.query('DROP FUNCTION path_ruled; ALTER FUNCTION path_ruled_for RENAME TO path_ruled');
  }
});

test('who may not change what another has staged with the same quota changes nothing of it', async () => {
  for (const name of ['alice', 'bob']) await setMember(app.ctx, { quota: 'lab', kind: 'USER', name, isManager: false });
  await addTaped(app.ctx, backend, [{ path: '/lab/a', volume: 'LAB' }]);
  const targetedMetadata = { TEST: { quota: 'lab' } };
  const id = await stageFiles(alice, [{ path: '/lab/a', targetedMetadata }, { path: '/lab/none' }]);
  await waitForStaged(alice, id);
  const stored = async () =>
    (
      await app.ctx.db.pool.query(
        'SELECT b.cancelled_at, f.path, f.was_on_disk FROM bulk b JOIN bulk_file f ON f.bulk_id = b.id WHERE b.id = $1 ORDER BY f.path',
        [id],
      )
    ).rows;
  const before = await stored();
  const statuses = [];
  for (const paths of [['/lab/none'], ['/lab/a']]) {
    statuses.push((await callTape(bob, 'POST', `/stage/${id}/cancel`, { paths })).status);
    statuses.push((await callTape(bob, 'POST', `/release/${id}`, { paths })).status);
  }
  statuses.push((await callTape(bob, 'DELETE', `/stage/${id}`)).status);
  expect([statuses, await stored()]).toEqual([Array(5).fill(403), before]);
  expect((await callTape(alice, 'DELETE', `/stage/${id}`)).status).toBe(200);
});

test('what is no path is its own error, and not that of the files beside it', async () => {
  await addTaped(app.ctx, backend, [{ path: '/odd/good', volume: 'ODD' }]);
  const odd = [
    ...['relative', '/webdav', '/odd/../x', '/odd/./x', `/${'x'.repeat(300)}`, `/${'long/'.repeat(600)}x`],
    ...['/odd/.tapegate-x', '/webdav/odd/%00', '/webdav/odd/%2e%2e/y', '/webdav/odd/a%2F%2Fb'],
  ];
  const id = await stageFiles(
    alice,
    [...odd.slice(0, 5), '/odd/good', ...odd.slice(5)].map((each) => ({ path: each })),
  );
  const states = statesOf(await waitForStaged(alice, id));
  expect(states).toEqual({ ...Object.fromEntries(odd.map((each) => [each, 'FAILED'])), '/odd/good': 'COMPLETED' });
  const answers = [
    await callTape(alice, 'POST', '/release/gfal2-placeholder-id', { paths: odd }),
    await callTape(alice, 'POST', `/stage/${id}/cancel`, { paths: odd }),
    await callTape(alice, 'POST', `/release/${id}`, { paths: odd }),
    await callTape(alice, 'POST', `/stage/${id}/cancel`, { paths: ['/webdav/%00/other'] }),
  ];
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 400]);
  expect(answers[3]?.text).toContain('/other');
  expect((await callTape(alice, 'DELETE', `/stage/${id}`)).status).toBe(200);
});

test('of more paths than are served at once the first ones are told of, and the others can be asked for again', async () => {
  const small = await startApp({ limits: { requestPaths: 2 }, config: { access: { auth: new Set(['open']) } } });
  try {
    const client = { url: small.url, token: 'none' };
    const paths = ['/1', '/2', '/3'];
    const { status, body } = await callTape(client, 'POST', '/archiveinfo', { paths });
    expect([status, (body as { path: string }[]).map((info) => info.path)]).toEqual([200, ['/1', '/2']]);
    expect((await callTape(client, 'POST', '/release/gfal2-placeholder-id', { paths })).status).toBe(400);
  } finally {
    await small.close();
  }
});

test('a copy that cannot be read is told in an answer of its own length, and the connection goes on', async () => {
  await restore('/eio', Buffer.alloc(54_321, 'e'));
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const { port } = new URL(app.url);
  const get = async () => {
    const headers = { Authorization: `Bearer ${alice.token}` };
    const [response] = (await once(
      http.get({ agent, port, host: '127.0.0.1', path: '/webdav/eio', headers }),
      'response',
    )) as [http.IncomingMessage];
    let text = '';
    for await (const part of response) text += part;
    const { etag, digest, 'repr-digest': repr, 'retry-after': retry } = response.headers;
    return { status: response.statusCode, length: text.length, of: [etag, digest, repr].filter(Boolean).length, retry };
  };
  const reads = await disturbReads((buffer) =>
    (buffer as Buffer).length === 54_321
      ? Promise.reject(Object.assign(new Error('EIO: i/o error, read'), { code: 'EIO' }))
      : undefined,
  );
  const broken = await get().finally(reads.end);
  expect(broken).toEqual({ status: 503, length: expect.any(Number), of: 0, retry: '30' });
  expect(await get()).toMatchObject({ status: 200, length: 54_321, of: 3 });
  agent.destroy();
  const beyond = await fetchOf(alice, '/eio', 'GET', { Range: 'bytes=60000-' });
  expect([beyond.status, beyond.headers.get('content-range'), beyond.headers.get('repr-digest')]).toEqual([
    416,
    'bytes */54321',
    null,
  ]);
});

test('a copy that was changed is compared once, however often it is asked for', async () => {
  const size = 32 * 1024 * 1024;
  await restore('/altered', Buffer.alloc(size, 'o'));
  const place = path.join(app.restoreDir, 'altered');
  const { atime, mtime } = statSync(place);
  writeFileSync(place, Buffer.alloc(size, 'x'));
  utimesSync(place, atime, mtime);
  const bytesRead = () => Number(/rchar: (\d+)/.exec(readFileSync('/proc/self/io', 'utf8'))?.[1]);
  expect((await fetchOf(alice, '/altered')).status).toBe(409);
  const before = bytesRead();
  for (const method of ['GET', 'HEAD', 'GET']) expect((await fetchOf(alice, '/altered', method)).status).toBe(409);
  expect(bytesRead() - before).toBeLessThan(size / 4);
});

test('folders that are listed at once are counted, and those that are looked at alone are not', async () => {
  const busy = await startApp({
    config: { door, access: { auth: new Set(['open']) } },
    limits: { longLists: 2 },
  });
  try {
    await addFiles(busy.ctx, [{ path: '/wide/a' }, { path: '/wide/b' }]);
    const find = (depth: string) => request(busy, '/webdav/wide', { method: 'PROPFIND', headers: { Depth: depth } });
    const gate = createGate();
    const { looks } = busy.ctx.db;
    const enter = looks.enter.bind(looks);
    const held = new Promise<void>((resolve) => {
      Object.assign(looks, {
        enter: async (...args: Parameters<typeof enter>) => {
          resolve();
          await gate.opened;
          return await enter(...args);
        },
      });
    });
    const first = find('1');
    await held;
    const second = await find('1');
    expect([second.status, second.headers.get('retry-after'), (await find('0')).status]).toEqual([429, '5', 207]);
    gate.open();
    expect((await first).status).toBe(207);
    expect((await find('1')).status).toBe(207);
  } finally {
    await busy.close();
  }
});

test('a folder of thousands is told whole', async () => {
  await addFiles(
    app.ctx,
    Array.from({ length: 1201 }, (_, n) => ({ path: `/broad/${n}`, volume: 'BROAD', position: BigInt(n + 1) })),
  );
  const text = await (await fetchOf(alice, '/broad', 'PROPFIND', { Depth: '1' })).text();
  expect([text.match(/<D:response>/g)?.length, text.endsWith('</D:multistatus>\n')]).toEqual([1202, true]);
});

async function sendRaw(text: string): Promise<string> {
  const socket = net.connect(Number(new URL(app.url).port), '127.0.0.1');
  socket.write(text);
  let answer = '';
  for await (const part of socket) answer += part;
  return answer;
}

test('a client that joins host and path by two slashes finds the files, and one that names no host is told so', async () => {
  await restore('/slashes', Buffer.from('slashes'));
  const shown = `Authorization: Bearer ${alice.token}\r\nConnection: close\r\n\r\n`;
  const answers = [
    await sendRaw(`GET //webdav//slashes HTTP/1.1\r\nHost: x\r\n${shown}`),
    await sendRaw('GET //webdav//slashes HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'),
    await sendRaw('GET /.well-known/wlcg-tape-rest-api HTTP/1.0\r\n\r\n'),
  ];
  expect(answers.map((answer) => answer.split('\r\n')[0])).toEqual([
    'HTTP/1.1 200 OK',
    'HTTP/1.1 401 Unauthorized',
    'HTTP/1.1 400 Bad Request',
  ]);
  expect(answers[0]?.endsWith('slashes')).toBe(true);
});
