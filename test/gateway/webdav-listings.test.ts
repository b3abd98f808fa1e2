import { EventEmitter } from 'node:events';
import { expect, test } from 'vitest';
import { propfind } from '../../rest/webdav/propfind.js';
import type { TransferConfig } from '../../src/config/config.js';
import { addPathRule } from '../../src/domain/access/path-rules.js';
import { startBeside } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import {
  callTape,
  createTapeClient,
  fetchWebdav,
  poll,
  stageFiles,
  statesOf,
  type TapeClient,
} from '../support/tape-rest.js';
import { useApp } from '../support/use-app.js';
import { createGate } from '../support/wait.js';

let alice: TapeClient;
let bob: TapeClient;
const transfer: TransferConfig = { siteName: 'TEST', webdav: 'all', gateways: new Map(), diskCalls: 2 };
const app = useApp({ config: { transfer, access: { auth: new Set(['token']) } } }, async () => {
  for (const user of ['alice', 'bob']) await addQuota(app.ctx, user, 10n ** 12n);
  [alice, bob] = [await createTapeClient(app, 'alice'), await createTapeClient(app, 'bob')];
});

const find = (target: string, depth: string, client = alice) =>
  fetchWebdav(client, target, { Depth: depth }, 'PROPFIND');

test('PROPFIND lists files and directories, on disk and on tape', async () => {
  await addFiles(app.ctx, [
    { path: '/f/a&b/x', size: 5n },
    { path: '/f/a&b.txt', size: 6n, mtime: '2024-01-02T03:04:05.678900' },
    { path: '/f/a&b/y/z' },
    { path: '/f/ü', size: 8n },
  ] as Parameters<typeof addFiles>[1]);
  await addFiles(app.ctx, [{ path: '/hidden/a' }]);
  await addPathRule(app.ctx, { prefix: '/hidden', action: 'LIST', kind: 'USER', name: 'bob' });
  const list = async (target: string, depth: string) => {
    const { status, bytes } = await find(target, depth);
    const entries = [...bytes.toString().matchAll(/<D:response><D:href>(.*?)<\/D:href>(.*?)<\/D:response>/g)];
    return [
      status,
      entries.map(([, href, rest = '']) => [
        href,
        /<D:getcontentlength>(\d+)/.exec(rest)?.[1] ?? (rest.includes('<D:collection/>') ? 'directory' : ''),
      ]),
    ];
  };
  expect(await list('/f/a%26b.txt', '0')).toEqual([207, [['/webdav/f/a%26b.txt', '6']]]);
  expect(await list('//f/', '0')).toEqual([207, [['/webdav/f/', 'directory']]]);
  expect(await list('/f', '1')).toEqual([
    207,
    [
      ['/webdav/f/', 'directory'],
      ['/webdav/f/a%26b/', 'directory'],
      ['/webdav/f/a%26b.txt', '6'],
      ['/webdav/f/%C3%BC', '8'],
    ],
  ]);
  expect((await list('', '1'))[1]).toContainEqual(['/webdav/f/', 'directory']);
  const { bytes } = await find('/f/a%26b.txt', '0');
  expect(bytes.toString()).toContain('<D:displayname>a&amp;b.txt</D:displayname>');
  expect(bytes.toString()).toContain('<D:getlastmodified>Tue, 02 Jan 2024 03:04:05 GMT</D:getlastmodified>');
  expect([(await list('/f/none', '0'))[0], (await list('/f', 'infinity'))[0], (await list('/hidden', '1'))[0]]).toEqual(
    [404, 403, 404],
  );
});

test('the response for a hidden directory does not depend on the number of its files', async () => {
  const directory = (name: string) => Array.from({ length: 60 }, (_, n) => ({ path: `/vault/${name}/${n}` }));
  await addFiles(app.ctx, [...directory('a'), ...directory('b'), { path: '/vault/open/x' }, { path: '/vault-2' }]);
  await addPathRule(app.ctx, { prefix: '/vault', action: 'LIST', kind: 'USER', name: 'alice' });
  await addPathRule(app.ctx, { prefix: '/vault/open', action: 'LIST', kind: 'EVERYBODY', name: '' });
  await app.ctx.db.pool.query('CREATE SEQUENCE shortReads; ALTER FUNCTION path_ruled RENAME TO path_ruled_for');
  await app.ctx.db.pool.query(
    `CREATE FUNCTION path_ruled(path text, wanted "PathAction", who text, groups text[]) RETURNS boolean LANGUAGE plpgsql AS $$
     BEGIN PERFORM nextval('shortReads'); RETURN path_ruled_for(path, wanted, who, groups); END $$`,
  );
  const looksOf = async (work: () => Promise<unknown>): Promise<number> => {
    const read = async () => (await app.ctx.db.pool.query('SELECT last_value::int AS n FROM shortReads')).rows[0].n;
    const before = await read();
    await work();
    return (await read()) - before;
  };
  const hrefs = ['<D:href>/webdav/vault/<', '<D:href>/webdav/vault/open/<'];
  const propfind = async (target: string) => (await find(target, '1', bob)).bytes.toString();
  const calls = [
    async () => expect((await fetchWebdav(bob, '/vault/a')).status).toBe(404),
    async () => expect((await find('/vault/a', '0', bob)).status).toBe(404),
    async () => expect((await callTape(bob, 'POST', '/archiveinfo', { paths: ['/vault/a'] })).text).toMatch(/no such/),
    async () => {
      const id = await stageFiles(bob, [{ path: '/vault/b' }]);
      expect(statesOf(await poll(bob, id))).toEqual({ '/vault/b': 'FAILED' });
    },
    async () => expect((await propfind('/vault')).match(/<D:href>.*?</g)).toEqual(hrefs),
    async () => expect(await propfind('/')).toContain('/webdav/vault-2<'),
  ];
  try {
    for (const call of calls) expect(await looksOf(call)).toBeLessThan(20);
  } finally {
    await app.ctx.db.pool.query('DROP FUNCTION path_ruled; ALTER FUNCTION path_ruled_for RENAME TO path_ruled');
  }
});

test('listings of directories need a slot, and a request for a single directory does not', async () => {
  const busy = await startBeside(app, { limits: { longLists: 2 }, database: { longLists: 2 } });
  try {
    await addFiles(app.ctx, [{ path: '/wide/a' }, { path: '/wide/b' }]);
    const findWide = (depth: string) => find('/wide', depth, { ...alice, url: busy.url });
    const gate = createGate();
    const { shortReads } = busy.ctx.db;
    const enter = shortReads.enter.bind(shortReads);
    const held = new Promise<void>((resolve) => {
      Object.assign(shortReads, {
        enter: async (...args: Parameters<typeof enter>) => {
          resolve();
          await gate.opened;
          return await enter(...args);
        },
      });
    });
    const first = findWide('1');
    await held;
    const second = await findWide('1');
    expect([second.status, second.headers.get('retry-after'), (await findWide('0')).status]).toEqual([429, '5', 207]);
    gate.open();
    expect((await first).status).toBe(207);
    expect((await findWide('1')).status).toBe(207);
  } finally {
    await busy.close();
  }
});

test('a listing keeps its slot until its response is read or the client is gone', async () => {
  await addFiles(app.ctx, [{ path: '/kept/a' }]);
  const list = async (res: object) => {
    let left = 0;
    const answer = Object.assign(new EventEmitter(), { status: () => answer, setHeader: () => answer, end() {} }, res);
    const given = [{ path: '/kept', headers: { depth: '1' } }, answer] as unknown as [never, never];
    const error = await propfind(app.ctx, () => () => void left++, ...given).catch(String);
    const before = left;
    answer.emit('close');
    return { error, before, after: left };
  };
  const end = () => {
    throw new Error('no memory');
  };
  expect(await list({})).toEqual({ before: 0, after: 1 });
  expect(await list({ closed: true })).toEqual({ before: 1, after: 1 });
  expect(await list({ end })).toEqual({ error: 'Error: no memory', before: 1, after: 1 });
});

test('a directory of thousands of files is listed completely', async () => {
  await addFiles(
    app.ctx,
    Array.from({ length: 1201 }, (_, n) => ({ path: `/broad/${n}`, volume: 'BROAD', position: BigInt(n + 1) })),
  );
  const text = (await find('/broad', '1')).bytes.toString();
  expect([text.match(/<D:response>/g)?.length, text.endsWith('</D:multistatus>\n')]).toEqual([1202, true]);
});
