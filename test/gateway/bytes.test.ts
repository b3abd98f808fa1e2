/** The door for the bytes of restored files. How fast it is, bench/ tells. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { hostname } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { DoorConfig } from '../../src/config-door.js';
import { setPathRule } from '../../src/operations/access/path-rules.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota, putOnTape } from '../support/factories.js';
import { request } from '../support/http.js';
import { stageFiles, type TapeClient, waitForStaged } from '../support/tape-rest.js';
import { createGate, waitFor } from '../support/wait.js';

const backend = createMemoryBackend();
const door: DoorConfig = {
  siteName: 'TEST',
  webdav: 'all',
  gateways: new Map([['elsewhere', 'https://elsewhere.example.org:8443/t']]),
  diskCalls: 2,
};
let app: TestApp;
let alice: TapeClient;

beforeAll(async () => {
  app = await startApp({ backend, config: { door, access: { auth: new Set(['token']) } } });
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  alice = { url: app.url, token: (await createToken(app.ctx, { name: 'alice', role: 'USER' })).secret };
});
afterAll(() => app.close());

const bytesOf = (text: string, size: number) => Buffer.alloc(size, text);
const adler32 = (bytes: Buffer) => {
  let [a, b] = [1, 0];
  for (const byte of bytes) [a, b] = [(a + byte) % 65_521, (b + a + byte) % 65_521];
  return (b * 65_536 + a).toString(16).padStart(8, '0');
};

interface Kept {
  bytes?: Buffer;
  algorithm?: 'sha256' | 'adler32';
  mode?: number;
}

let position = 0n;

/** Brings files to disk. */
async function restore(files: Record<string, Kept>): Promise<void> {
  const rows = Object.entries(files).map(([name, { bytes = bytesOf(name, 1000), algorithm = 'sha256', mode }]) => {
    position += 1n;
    putOnTape(backend, { volume: 'V1', position, bytes });
    const hex = algorithm === 'adler32' ? adler32(bytes) : createHash('sha256').update(bytes).digest('hex');
    const checksum = `${algorithm}:${hex}`;
    return {
      path: name,
      size: BigInt(bytes.length),
      volume: 'V1',
      position,
      checksum,
      mode,
      mtime: '2024-02-03T04:05:06.000000',
    };
  });
  await addFiles(app.ctx, rows as Parameters<typeof addFiles>[1]);
  const { files: told } = await waitForStaged(
    alice,
    await stageFiles(
      alice,
      Object.keys(files).map((name) => ({ path: name })),
    ),
  );
  expect(told.map(({ state }) => state)).toEqual(rows.map(() => 'COMPLETED'));
}

const placeOf = (name: string) => path.join(app.restoreDir, name);

async function fetchBytes(target: string, headers: Record<string, string> = {}, method = 'GET', gateway = app) {
  const response = await request(gateway, `/webdav${target}`, {
    method,
    headers: { Authorization: `Bearer ${alice.token}`, ...headers },
  });
  return { status: response.status, headers: response.headers, bytes: Buffer.from(await response.arrayBuffer()) };
}

test('a restored file is read whole, with what it is known by', async () => {
  const bytes = bytesOf('0123456789abcdef-', 3_000_001);
  await restore({ '/b/large': { bytes } });
  const { status, headers, bytes: came } = await fetchBytes('//b/large');
  const sha256 = createHash('sha256').update(bytes).digest();
  expect([status, came.equals(bytes)]).toEqual([200, true]);
  expect(Object.fromEntries(headers)).toMatchObject({
    'accept-ranges': 'bytes',
    'content-length': '3000001',
    'content-type': 'application/octet-stream',
    etag: `"sha256-${sha256.toString('hex')}"`,
    'last-modified': 'Sat, 03 Feb 2024 04:05:06 GMT',
    digest: `sha-256=${sha256.toString('base64')}`,
    'repr-digest': `sha-256=:${sha256.toString('base64')}:`,
  });
  const head = await fetchBytes('/b/large', {}, 'HEAD');
  expect([head.status, head.headers.get('content-length'), head.bytes.length]).toEqual([200, '3000001', 0]);
});

test('Adler-32 is told in hex in Digest, and only what is wanted is told', async () => {
  const bytes = bytesOf('adler', 12_345);
  await restore({ '/b/adler': { bytes, algorithm: 'adler32' } });
  const told = async (headers: Record<string, string>) => {
    const { headers: answered } = await fetchBytes('/b/adler', headers, 'HEAD');
    return [answered.get('digest'), answered.get('repr-digest')];
  };
  const hex = adler32(bytes);
  const both = [`adler32=${hex}`, `adler=:${Buffer.from(hex, 'hex').toString('base64')}:`];
  expect(await told({})).toEqual(both);
  expect(await told({ 'Want-Digest': 'ADLER32' })).toEqual(both);
  expect(
    await told({ 'Want-Digest': 'sha-256;q=1, adler32;q=0.3', 'Want-Repr-Digest': 'sha-256=10, adler=3' }),
  ).toEqual(both);
  expect(await told({ 'Want-Digest': 'sha-256', 'Want-Repr-Digest': 'adler=0' })).toEqual([null, null]);
});

test('a file of no bytes is read', async () => {
  await restore({ '/b/empty': { bytes: Buffer.alloc(0) } });
  const { status, headers, bytes } = await fetchBytes('/b/empty');
  expect([status, headers.get('content-length'), bytes.length]).toEqual([200, '0', 0]);
  expect((await fetchBytes('/b/empty', { Range: 'bytes=0-0' })).status).toBe(416);
});

test.each([
  ['bytes=0-0', 206, 'bytes 0-0/26', 'a'],
  ['bytes=3-5', 206, 'bytes 3-5/26', 'def'],
  ['bytes=20-', 206, 'bytes 20-25/26', 'uvwxyz'],
  ['bytes=-3', 206, 'bytes 23-25/26', 'xyz'],
  ['bytes=-100', 206, 'bytes 0-25/26', 'abcdefghijklmnopqrstuvwxyz'],
  ['bytes=24-1000', 206, 'bytes 24-25/26', 'yz'],
  ['bytes=26-', 416, 'bytes */26', undefined],
  ['bytes=-0', 416, 'bytes */26', undefined],
  ['bytes=5-3', 200, null, 'abcdefghijklmnopqrstuvwxyz'],
  ['bytes=x', 200, null, 'abcdefghijklmnopqrstuvwxyz'],
  ['lines=1-2', 200, null, 'abcdefghijklmnopqrstuvwxyz'],
  ['bytes=0-20,0-20', 200, null, 'abcdefghijklmnopqrstuvwxyz'],
])('Range %s is answered with %s', async (range, status, contentRange, text) => {
  if ((await fetchBytes('/b/letters')).status === 404)
    await restore({ '/b/letters': { bytes: Buffer.from('abcdefghijklmnopqrstuvwxyz') } });
  const answer = await fetchBytes('/b/letters', { Range: range });
  expect([answer.status, answer.headers.get('content-range')]).toEqual([status, contentRange]);
  if (text !== undefined)
    expect([answer.bytes.toString(), answer.headers.get('content-length')]).toEqual([text, String(text.length)]);
});

test('several ranges are several parts', async () => {
  const { status, headers, bytes } = await fetchBytes('/b/letters', { Range: 'bytes=1-2, -2' });
  const boundary = /^multipart\/byteranges; boundary=(\w+)$/.exec(headers.get('content-type') ?? '')?.[1];
  const part = (range: string, text: string) =>
    `--${boundary}\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes ${range}/26\r\n\r\n${text}\r\n`;
  expect([status, headers.get('content-length'), bytes.toString()]).toEqual([
    206,
    String(bytes.length),
    `${part('1-2', 'bc')}${part('24-25', 'yz')}--${boundary}--\r\n`,
  ]);
});

test('conditions are kept', async () => {
  const { headers } = await fetchBytes('/b/letters', {}, 'HEAD');
  const [etag, modified] = [headers.get('etag') ?? '', headers.get('last-modified') ?? ''];
  const earlier = new Date(Date.parse(modified) - 1000).toUTCString();
  const statusOf = async (given: Record<string, string>) => (await fetchBytes('/b/letters', given)).status;
  expect([
    await statusOf({ 'If-None-Match': etag }),
    await statusOf({ 'If-None-Match': `"x", W/${etag}` }),
    await statusOf({ 'If-None-Match': '"x"', 'If-Modified-Since': modified }),
    await statusOf({ 'If-Modified-Since': modified }),
    await statusOf({ 'If-Modified-Since': earlier }),
    await statusOf({ 'If-Match': etag }),
    await statusOf({ 'If-Match': '"x"' }),
    await statusOf({ 'If-Unmodified-Since': earlier }),
    await statusOf({ Range: 'bytes=0-1', 'If-Range': etag }),
    await statusOf({ Range: 'bytes=0-1', 'If-Range': '"x"' }),
    await statusOf({ Range: 'bytes=0-1', 'If-Range': modified }),
    await statusOf({ Range: 'bytes=0-1', 'If-Range': earlier }),
  ]).toEqual([304, 304, 200, 304, 200, 200, 412, 412, 206, 200, 206, 200]);
});

test('what has no copy to be read is not found, or in conflict with where it is', async () => {
  await addFiles(app.ctx, [
    { path: '/n/tape' },
    { path: '/n/primary', stage: 'ONDISK' },
    { path: '/n/lost', stage: 'RESTORED' },
  ]);
  const names = ['/n/tape', '/n/primary', '/n/lost', '/n/none', '/n', '', '/', '/n/../n/tape', '/n/%ff', '/n/%2e%2e/x'];
  const answers = await Promise.all(names.map((name) => fetchBytes(name)));
  expect(answers.map(({ status }) => status)).toEqual([409, 409, 503, 404, 404, 404, 404, 409, 400, 404]);
  expect(JSON.parse(answers[0]?.bytes.toString() ?? '')).toEqual({
    status: 409,
    title: 'Conflict',
    detail: expect.stringContaining('/.well-known/wlcg-tape-rest-api'),
  });
  expect(answers[2]?.headers.get('retry-after')).toBe('60');
});

test('nobody reads without a token, or what rules by folders keep for others', async () => {
  await restore({ '/private/listed/a': {}, '/private/hidden/a': {} });
  await setPathRule(app.ctx, { prefix: '/private/listed', action: 'FETCH', kind: 'USER', name: 'bob' });
  await setPathRule(app.ctx, { prefix: '/private/hidden', action: 'LIST', kind: 'USER', name: 'bob' });
  const statusOf = async (name: string, headers = {}) => (await fetchBytes(name, headers)).status;
  expect([
    await statusOf('/private/listed/a'),
    await statusOf('/private/hidden/a'),
    await statusOf('/b/letters', { Authorization: '' }),
    await statusOf('/b/letters', { Authorization: 'Bearer none' }),
  ]).toEqual([403, 404, 401, 401]);
  const bob = (await createToken(app.ctx, { name: 'bob', role: 'USER', isReadOnly: true })).secret;
  expect(await statusOf('/private/hidden/a', { Authorization: `Bearer ${bob}` })).toBe(200);
});

test('nothing but the copy is read: no link, no file of others, and none that was changed', async () => {
  const names = ['linked', 'exchanged', 'changed', 'folder', 'gone', 'same', 'touched'];
  await restore(Object.fromEntries(names.map((name) => [`/x/${name}/f`, { bytes: bytesOf(name, 500) }])));
  const secret = path.join(app.dataDir, 'secret');
  writeFileSync(secret, bytesOf('exchanged', 500));
  const at = (name: string) => placeOf(`/x/${name}/f`);
  const keepTimes = (name: string, change: () => void) => {
    const { atime, mtime } = statSync(at(name));
    change();
    utimesSync(at(name), atime, mtime);
  };
  rmSync(at('linked'));
  symlinkSync(secret, at('linked'));
  keepTimes('exchanged', () => renameSync(secret, at('exchanged')));
  keepTimes('changed', () => writeFileSync(at('changed'), bytesOf('CHANGED', 500)));
  renameSync(path.dirname(at('folder')), path.join(app.dataDir, 'moved'));
  symlinkSync(path.join(app.dataDir, 'moved'), path.dirname(at('folder')));
  rmSync(at('gone'));
  chmodSync(at('same'), 0o640); // its bytes are compared
  linkSync(at('touched'), path.join(app.dataDir, 'second-name'));
  const answers = await Promise.all(names.map((name) => fetchBytes(`/x/${name}/f`)));
  expect(Object.fromEntries(names.map((name, n) => [name, answers[n]?.status]))).toEqual({
    linked: 409,
    exchanged: 409,
    changed: 409,
    folder: 409,
    gone: 409,
    same: 200,
    touched: 200,
  });
  expect(answers.every(({ bytes }) => !bytes.toString().includes(app.dataDir))).toBe(true);
});

test('where only what is public is served, copies that others may not read, and those in closed folders, are not', async () => {
  await restore({ '/public/open': { mode: 0o644 }, '/public/closed': { mode: 0o640 } });
  const statuses = async (webdav: DoorConfig['webdav']) => {
    Object.assign(app.ctx.config.door, { webdav });
    const answers = [(await fetchBytes('/public/open')).status, (await fetchBytes('/public/closed')).status];
    Object.assign(app.ctx.config.door, { webdav: 'all' });
    return answers;
  };
  chmodSync(app.dataDir, 0o700);
  expect([await statuses('public'), await statuses('all'), await statuses('off')]).toEqual([
    [403, 403],
    [200, 200],
    [404, 404],
  ]);
  chmodSync(app.dataDir, 0o755);
  await waitFor('the folder to be looked at again', async () => (await statuses('public'))[0] === 200);
  expect(await statuses('public')).toEqual([200, 403]);
});

test('a gateway without the disk sends readers to one that has it, or says that it is away', async () => {
  await restore({ '/away/a b': {} });
  renameSync(app.restoreDir, `${app.restoreDir}-away`);
  mkdirSync(app.restoreDir);
  try {
    const ask = () =>
      fetch(`${app.url}/webdav/away/a%20b`, {
        headers: { Authorization: `Bearer ${alice.token}` },
        redirect: 'manual',
      });
    const first = await ask();
    expect([first.status, first.headers.get('retry-after')]).toEqual([503, '30']);
    await app.ctx.db.pool.query(
      `INSERT INTO disk_measurement (disk_id, host, free, problem, measured_at)
       SELECT id, h.host, 1, NULL, timezone('utc', clock_timestamp()) FROM restore_disk, (VALUES ('elsewhere'), ('unknown'), ('${hostname()}')) h (host)
       ON CONFLICT DO NOTHING`,
    );
    const second = await ask();
    expect([second.status, second.headers.get('location')]).toEqual([
      307,
      'https://elsewhere.example.org:8443/t/webdav/away/a%20b',
    ]);
  } finally {
    rmSync(app.restoreDir, { recursive: true });
    renameSync(`${app.restoreDir}-away`, app.restoreDir);
  }
});

test('a file that is changed while it is read does not end as if it were whole', async () => {
  const bytes = bytesOf('whole', 16 * 1024 * 1024);
  await restore({ '/b/whole': { bytes } });
  const { port } = new URL(app.url);
  const asked = http.get({
    port,
    host: '127.0.0.1',
    path: '/webdav/b/whole',
    headers: { Authorization: `Bearer ${alice.token}` },
  });
  const [response] = (await once(asked, 'response')) as [http.IncomingMessage];
  writeFileSync(placeOf('/b/whole'), 'x', { flag: 'a' });
  const ended = await new Promise((resolve) => {
    response
      .on('data', () => {})
      .on('end', () => resolve('end'))
      .on('error', () => resolve('broken off'));
  });
  expect(ended).toBe('broken off');
});

/** Of this process. */
function openFiles(): string[] {
  return readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return ''; // closed meanwhile
    }
  });
}

test('a reader that takes nothing keeps no file open', async () => {
  const slow = await startApp({
    backend: createMemoryBackend(),
    config: { door, readerSeconds: 0.3, access: { auth: new Set(['open']) } },
  });
  try {
    const bytes = bytesOf('slow', 16 * 1024 * 1024);
    const place = path.join(slow.restoreDir, 'slow');
    await waitFor('the restore disk', async () => statSync(slow.restoreDir, { throwIfNoEntry: false }) !== undefined);
    writeFileSync(place, bytes);
    await addFiles(slow.ctx, [{ path: '/slow', size: BigInt(bytes.length), stage: 'RESTORED' }]);
    const { ino, mtimeNs, ctimeNs } = statSync(place, { bigint: true });
    await slow.ctx.db.pool.query(
      'UPDATE tape_file SET disk_id = (SELECT id FROM restore_disk), disk_ino = $1, disk_mtime_ns = $2, disk_ctime_ns = $3',
      [ino, mtimeNs, ctimeNs],
    );
    const isOpen = async () => openFiles().includes(place);
    const socket = net.connect(Number(new URL(slow.url).port), '127.0.0.1');
    socket.pause().write('GET /webdav/slow HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await waitFor('the file to be opened', isOpen);
    await waitFor('the file to be closed', async () => !(await isOpen()));
    socket.destroy();
  } finally {
    await slow.close();
  }
});

test('files that are read at once are counted, and half of the places are one caller’s', async () => {
  const busy = await startApp({ config: { door, access: { auth: new Set(['open']) } }, limits: { downloads: 2 } });
  try {
    const gate = createGate();
    const held = new Promise<void>((resolve) => {
      const query = busy.ctx.db.pool.query.bind(busy.ctx.db.pool);
      Object.assign(busy.ctx.db.pool, {
        query: async (...args: Parameters<typeof query>) => {
          resolve();
          await gate.opened;
          return await query(...args);
        },
      });
    });
    const first = fetch(`${busy.url}/webdav/a`);
    await held;
    const second = await fetch(`${busy.url}/webdav/a`);
    expect([second.status, second.headers.get('retry-after')]).toEqual([429, '5']);
    gate.open();
    expect((await first).status).toBe(404);
    expect((await fetch(`${busy.url}/webdav/a`)).status).toBe(404);
  } finally {
    await busy.close();
  }
});

test('PROPFIND tells of files and folders, and of those that are on tape too', async () => {
  await addFiles(app.ctx, [
    { path: '/f/a&b/x', size: 5n },
    { path: '/f/a&b.txt', size: 6n, mtime: '2024-01-02T03:04:05.678900' },
    { path: '/f/a&b/y/z' },
    { path: '/f/ü', size: 8n },
  ] as Parameters<typeof addFiles>[1]);
  const find = async (target: string, depth: string) => {
    const { status, bytes } = await fetchBytes(target, { Depth: depth }, 'PROPFIND');
    const entries = [...bytes.toString().matchAll(/<D:response><D:href>(.*?)<\/D:href>(.*?)<\/D:response>/g)];
    return [
      status,
      entries.map(([, href, rest = '']) => [
        href,
        /<D:getcontentlength>(\d+)/.exec(rest)?.[1] ?? (rest.includes('<D:collection/>') ? 'folder' : ''),
      ]),
    ];
  };
  expect(await find('/f/a%26b.txt', '0')).toEqual([207, [['/webdav/f/a%26b.txt', '6']]]);
  expect(await find('//f/', '0')).toEqual([207, [['/webdav/f/', 'folder']]]);
  expect(await find('/f', '1')).toEqual([
    207,
    [
      ['/webdav/f/', 'folder'],
      ['/webdav/f/a%26b/', 'folder'],
      ['/webdav/f/a%26b.txt', '6'],
      ['/webdav/f/%C3%BC', '8'],
    ],
  ]);
  expect((await find('', '1'))[1]).toContainEqual(['/webdav/f/', 'folder']);
  const { bytes } = await fetchBytes('/f/a%26b.txt', { Depth: '0' }, 'PROPFIND');
  expect(bytes.toString()).toContain('<D:displayname>a&amp;b.txt</D:displayname>');
  expect(bytes.toString()).toContain('<D:getlastmodified>Tue, 02 Jan 2024 03:04:05 GMT</D:getlastmodified>');
  expect([
    (await find('/f/none', '0'))[0],
    (await find('/f', 'infinity'))[0],
    (await find('/private/hidden', '1'))[0],
  ]).toEqual([404, 403, 404]);
});

test('what may be asked is told, and nothing is written', async () => {
  const options = await fetchBytes('/b/letters', {}, 'OPTIONS');
  expect([options.status, options.headers.get('allow'), options.headers.get('dav')]).toEqual([
    200,
    'OPTIONS, GET, HEAD, PROPFIND',
    '1',
  ]);
  for (const method of ['PUT', 'DELETE', 'MKCOL', 'COPY', 'POST']) {
    const { status, headers } = await fetchBytes('/b/letters', {}, method);
    expect([method, status, headers.get('allow')]).toEqual([method, 405, 'OPTIONS, GET, HEAD, PROPFIND']);
  }
});
