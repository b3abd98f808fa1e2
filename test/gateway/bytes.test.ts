/** WebDAV for restored files: which files are served, and which are refused. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import http from 'node:http';
import net from 'node:net';
import { hostname } from 'node:os';
import path from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import type { TransferConfig } from '../../src/config/config.js';
import { setQuotaMember } from '../../src/domain/access/members.js';
import { addPathRule } from '../../src/domain/access/path-rules.js';
import { recordDirectories } from '../../src/domain/catalogue/directory-modes.js';
import { startBeside } from '../support/app.js';
import { addFiles, addQuota, addTaped, putOnTape } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { sendBytes } from '../support/http.js';
import { whileLocked } from '../support/locks.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import {
  bearer,
  callTape,
  createTapeClient,
  fetchWebdav,
  stageFiles,
  type TapeClient,
  waitForStaged,
} from '../support/tape-rest.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';
import { adler32 } from '../support/wlcg-storage.js';

const library = createMemoryLibrary();
const transfer: TransferConfig = {
  siteName: 'TEST',
  webdav: 'all',
  gateways: new Map([['elsewhere', 'https://elsewhere.example.org:8443/t']]),
  diskCalls: 2,
};
let alice: TapeClient;
let bob: TapeClient;
const app = useApp({ library, config: { transfer, access: { auth: new Set(['token']) } } }, async () => {
  for (const user of ['alice', 'bob', 'lab']) await addQuota(app.ctx, user, 10n ** 12n);
  [alice, bob] = [await createTapeClient(app, 'alice'), await createTapeClient(app, 'bob')];
  await restore({ '/b/letters': { bytes: Buffer.from('abcdefghijklmnopqrstuvwxyz') } });
});

const bytesOf = (text: string, size: number) => Buffer.alloc(size, text);
interface Kept {
  bytes?: Buffer;
  algorithm?: 'sha256' | 'adler32';
  mode?: number;
  mtime?: string;
}

let position = 0n;

/** Restores files to disk. */
async function restore(files: Record<string, Kept>): Promise<void> {
  const rows = Object.entries(files).map(([name, kept]) => {
    const { bytes = bytesOf(name, 1000), algorithm = 'sha256', mode, mtime = '2024-02-03T04:05:06.000000' } = kept;
    position += 1n;
    putOnTape(library, { volume: 'V1', position, bytes });
    const hex =
      algorithm === 'adler32' ? adler32(bytes).toString('hex') : createHash('sha256').update(bytes).digest('hex');
    const checksum = `${algorithm}:${hex}`;
    return {
      path: name,
      size: BigInt(bytes.length),
      volume: 'V1',
      position,
      checksum,
      mode,
      mtime,
    };
  });
  await addFiles(app.ctx, rows as Parameters<typeof addFiles>[1]);
  const id = await stageFiles(
    alice,
    Object.keys(files).map((name) => ({ path: name })),
  );
  expect((await waitForStaged(alice, id)).files.map(({ state }) => state)).toEqual(rows.map(() => 'COMPLETED'));
}

const copyOf = (name: string) => path.join(app.restoreDir, name);

/** Sends a request as alice. */
const fetchBytes = (target: string, headers: Record<string, string> = {}, method = 'GET', gateway = app) =>
  fetchWebdav({ ...alice, url: gateway.url }, target, headers, method);

test('GET returns a restored file with its metadata and checksums', async () => {
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
    digest: `sha-256=${sha256.toString('base64')},adler32=${adler32(bytes).toString('hex')}`,
    'repr-digest': `sha-256=:${sha256.toString('base64')}:, adler=:${adler32(bytes).toString('base64')}:`,
  });
  const head = await fetchBytes('/b/large', {}, 'HEAD');
  expect([head.status, head.headers.get('content-length'), head.bytes.length]).toEqual([200, '3000001', 0]);
});

test('files of any year are served with their dates', async () => {
  const dates = {
    '0001-01-01T00:00:00': 'Mon, 01 Jan 0001 00:00:00 GMT',
    '2446-05-10T22:38:55': 'Thu, 10 May 2446 22:38:55 GMT',
    '9999-12-31T23:59:59': 'Fri, 31 Dec 9999 23:59:59 GMT',
  };
  await restore(Object.fromEntries(Object.keys(dates).map((mtime) => [`/years/${mtime}`, { mtime }])));
  for (const [mtime, date] of Object.entries(dates)) {
    const { status, headers, bytes } = await fetchBytes(`/years/${mtime}`);
    expect([status, bytes.length, headers.get('last-modified')]).toEqual([200, 1000, date]);
    expect((await fetchBytes(`/years/${mtime}`, { 'If-Modified-Since': date })).status).toBe(304);
  }
});

test('Digest contains Adler-32 in hex, and only requested algorithms are returned', async () => {
  const bytes = bytesOf('adler', 12_345);
  await restore({ '/b/adler': { bytes, algorithm: 'adler32' } });
  const digestsOf = async (headers: Record<string, string>) => {
    const { headers: answered } = await fetchBytes('/b/adler', headers, 'HEAD');
    return [answered.get('digest'), answered.get('repr-digest')];
  };
  const sum = adler32(bytes);
  const both = [`adler32=${sum.toString('hex')}`, `adler=:${sum.toString('base64')}:`];
  expect(await digestsOf({})).toEqual(both);
  expect(await digestsOf({ 'Want-Digest': 'ADLER32' })).toEqual(both);
  expect(
    await digestsOf({ 'Want-Digest': 'sha-256;q=1, adler32;q=0.3', 'Want-Repr-Digest': 'sha-256=10, adler=3' }),
  ).toEqual(both);
  expect(await digestsOf({ 'Want-Digest': 'sha-256', 'Want-Repr-Digest': 'adler=0' })).toEqual([null, null]);
});

test('Digest of a file with another checksum has the Adler-32 that its restore computed, or that the catalogue has', async () => {
  const bytes = bytesOf('both', 12_345);
  const adler = adler32(bytes).toString('hex');
  await restore({ '/b/both': { bytes } });
  const digest = async (want: string, name = '/b/both') =>
    (await fetchBytes(name, { 'Want-Digest': want }, 'HEAD')).headers.get('digest');
  expect(await digest('adler32')).toBe(`adler32=${adler}`);
  expect(await digest('ADLER32;q=0.5, md5')).toBe(`adler32=${adler}`);
  expect(await digest('sha-256, adler32;q=0')).toMatch(/^sha-256=[^,]+$/);
  await addFiles(app.ctx, [{ path: '/b/archived', checksum: `sha256:${'ab'.repeat(32)}`, adler32: adler }]);
  expect(await digest('adler32', '/b/archived')).toBe(`adler32=${adler}`);
});

test('an empty file can be read', async () => {
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
])('Range %s returns %s', async (range, status, contentRange, text) => {
  const answer = await fetchBytes('/b/letters', { Range: range });
  expect([answer.status, answer.headers.get('content-range')]).toEqual([status, contentRange]);
  if (text !== undefined)
    expect([answer.bytes.toString(), answer.headers.get('content-length')]).toEqual([text, String(text.length)]);
});

test('several ranges return several parts', async () => {
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

test('conditional headers are honoured', async () => {
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

test('a file without a copy returns 415, and an unknown one 404', async () => {
  await addFiles(app.ctx, [
    { path: '/n/tape' },
    { path: '/n/primary', stage: 'ONDISK' },
    { path: '/n/lost', stage: 'RESTORED' },
  ]);
  const names = ['/n/tape', '/n/primary', '/n/lost', '/n/none', '/n', '', '/', '/n/../n/tape', '/n/%ff', '/n/%2e%2e/x'];
  const answers = await Promise.all(names.map((name) => fetchBytes(name)));
  expect(answers.map(({ status }) => status)).toEqual([415, 415, 503, 404, 404, 404, 404, 415, 400, 404]);
  expect(JSON.parse(answers[0]?.bytes.toString() ?? '')).toEqual({
    status: 415,
    title: 'Unsupported Media Type',
    detail: expect.stringContaining('/.well-known/wlcg-tape-rest-api'),
  });
  expect(answers[2]?.headers.get('retry-after')).toBe('60');
});

test('HEAD of a file on tape returns its size, checksum and locality, and GET of any range 415', async () => {
  const hex = 'ab'.repeat(32);
  await addFiles(app.ctx, [{ path: '/n/near', size: 1234n, checksum: `sha256:${hex}` }]);
  const value = Buffer.from(hex, 'hex').toString('base64');
  const head = async (want: string) => {
    const { status, headers } = await fetchBytes('/n/near', { 'Want-Digest': want }, 'HEAD');
    return [status, headers.get('content-length'), headers.get('locality'), headers.get('digest')];
  };
  for (const want of ['sha-256', 'Sha-256;q=0.5', 'adler32, sha-256;q=0.1']) {
    expect(await head(want)).toEqual([200, '1234', 'NEARLINE', `sha-256=${value}`]);
  }
  // davix expects the digest under the algorithm name in its request
  for (const want of ['SHA256', 'adler32, sha256;q=0.1']) {
    expect(await head(want)).toEqual([200, '1234', 'NEARLINE', `sha-256=${value},SHA256=${value}`]);
  }
  for (const want of ['adler32', 'SHA256;Q=0', 'sha-512']) {
    expect(await head(want)).toEqual([200, '1234', 'NEARLINE', null]);
  }
  for (const range of ['bytes=0-1', 'bytes=0-1,5-6']) {
    expect((await fetchBytes('/n/near', { Range: range })).status).toBe(415);
  }
});

test('reading needs a token and the right to fetch the path', async () => {
  await restore({ '/private/listed/a': {}, '/private/hidden/a': {} });
  await addPathRule(app.ctx, { prefix: '/private/listed', action: 'FETCH', kind: 'USER', name: 'bob' });
  await addPathRule(app.ctx, { prefix: '/private/hidden', action: 'LIST', kind: 'USER', name: 'bob' });
  const statusOf = async (name: string, headers = {}) => (await fetchBytes(name, headers)).status;
  expect([
    await statusOf('/private/listed/a'),
    await statusOf('/private/hidden/a'),
    await statusOf('/b/letters', { Authorization: '' }),
    await statusOf('/b/letters', { Authorization: 'Bearer none' }),
  ]).toEqual([403, 404, 401, 401]);
  expect(await statusOf('/private/hidden/a', bearer(bob))).toBe(200);
});

test('links, foreign files and changed copies are not served', async () => {
  const names = ['linked', 'exchanged', 'changed', 'directory', 'gone', 'same', 'touched'];
  await restore(Object.fromEntries(names.map((name) => [`/x/${name}/f`, { bytes: bytesOf(name, 500) }])));
  const secret = path.join(app.dataDir, 'secret');
  writeFileSync(secret, bytesOf('exchanged', 500));
  const at = (name: string) => copyOf(`/x/${name}/f`);
  const keepTimes = (name: string, change: () => void) => {
    const { atime, mtime } = statSync(at(name));
    change();
    utimesSync(at(name), atime, mtime);
  };
  rmSync(at('linked'));
  symlinkSync(secret, at('linked'));
  keepTimes('exchanged', () => renameSync(secret, at('exchanged')));
  keepTimes('changed', () => writeFileSync(at('changed'), bytesOf('CHANGED', 500)));
  renameSync(path.dirname(at('directory')), path.join(app.dataDir, 'moved'));
  symlinkSync(path.join(app.dataDir, 'moved'), path.dirname(at('directory')));
  rmSync(at('gone'));
  chmodSync(at('same'), 0o640); // only the mode of this copy has changed, so its bytes are compared
  linkSync(at('touched'), path.join(app.dataDir, 'second-name'));
  const answers = await Promise.all(names.map((name) => fetchBytes(`/x/${name}/f`)));
  expect(answers.map(({ status }) => status)).toEqual([415, 415, 415, 415, 415, 200, 200]);
  expect(answers.every(({ bytes }) => !bytes.toString().includes(app.dataDir))).toBe(true);
});

test('a copy that was removed outside Tapegate is recalled for live requests, regardless of what finds it missing', async () => {
  await restore({ '/gone/read': {}, '/gone/staged': {}, '/gone/shown': {}, '/gone/kept': {} });
  const remove = (name: string) => rmSync(copyOf(name));
  const isBack = (name: string) => waitFor(`${name} to be restored anew`, async () => existsSync(copyOf(name)));
  remove('/gone/read');
  const answer = await fetchBytes('/gone/read', {}, 'HEAD');
  expect(answer.status).toBe(415);
  await isBack('/gone/read');

  remove('/gone/staged');
  const staged = await stageFiles(bob, [{ path: '/gone/staged' }]);
  await waitForStaged(bob, staged);
  expect((await fetchBytes('/gone/staged')).status).toBe(200);

  remove('/gone/shown');
  const localities = await callTape(alice, 'POST', '/archiveinfo', { paths: ['/gone/shown', '/gone/kept'] });
  expect(localities.body).toEqual([
    { path: '/gone/shown', locality: 'TAPE' },
    { path: '/gone/kept', locality: 'DISK_AND_TAPE' },
  ]);
  await isBack('/gone/shown');
});

test('a copy that is missing without a live request goes back to tape', async () => {
  await restore({ '/lost/a': {} });
  const { pool } = app.ctx.db;
  await pool.query(
    "UPDATE request_file SET state = 'RELEASED' WHERE file_id = (SELECT id FROM tape_file WHERE path = '/lost/a')",
  );
  rmSync(copyOf('/lost/a'));
  const query = '{ tapeFile(path: "/lost/a") { restoredPath stage } }';
  expect(await askData(app, query)).toMatchObject({ tapeFile: { restoredPath: null } });
  expect(await askData(app, query)).toEqual({ tapeFile: { restoredPath: null, stage: 'ONTAPE' } });
});

test('TAPEGATE_WEBDAV=public serves only copies that everybody on the host may read, TAPEGATE_WEBDAV=off none', async () => {
  await recordDirectories(app.ctx, [{ path: '/public', mode: 0o755, gid: null }]);
  await restore({ '/public/open': { mode: 0o644 }, '/public/closed': { mode: 0o640 } });
  const statuses = async (webdav: TransferConfig['webdav']) => {
    Object.assign(app.ctx.config.transfer, { webdav });
    const answers = [(await fetchBytes('/public/open')).status, (await fetchBytes('/public/closed')).status];
    Object.assign(app.ctx.config.transfer, { webdav: 'all' });
    return answers;
  };
  chmodSync(app.dataDir, 0o700);
  expect([await statuses('public'), await statuses('all'), await statuses('off')]).toEqual([
    [403, 403],
    [200, 200],
    [404, 404],
  ]);
  chmodSync(app.dataDir, 0o755);
  const { now } = performance;
  performance.now = () => now.call(performance) + 6000; // directory modes are cached for 5 s
  expect(await statuses('public').finally(() => Object.assign(performance, { now }))).toEqual([200, 403]);
});

test('a gateway without the disk redirects to one that has it, or returns 503', async () => {
  await restore({ '/away/a b': {} });
  renameSync(app.restoreDir, `${app.restoreDir}-away`);
  mkdirSync(app.restoreDir);
  try {
    const ask = () => fetch(`${app.url}/webdav/away/a%20b`, { headers: bearer(alice), redirect: 'manual' });
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

/** Returns the open files of this process. */
function openFiles(): string[] {
  return readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return ''; // the descriptor was closed meanwhile
    }
  });
}

test('a client that reads nothing keeps no file open', async () => {
  await restore({ '/b/whole': { bytes: bytesOf('whole', 16 * 1024 * 1024) } });
  const slow = await startBeside(app, { config: { readerSeconds: 0.3 } });
  try {
    const isOpen = async () => openFiles().includes(copyOf('/b/whole'));
    const socket = net.connect(Number(new URL(slow.url).port), '127.0.0.1');
    const head = ['GET /webdav/b/whole HTTP/1.1', 'Host: localhost', `Authorization: Bearer ${alice.token}`];
    socket.pause().write(`${head.join('\r\n')}\r\n\r\n`);
    await waitFor('the file to be opened', isOpen);
    await waitFor('the file to be closed', async () => !(await isOpen()));
    socket.destroy();
  } finally {
    await slow.close();
  }
});

test('a download of a file that changes meanwhile breaks off', async () => {
  await restore({ '/b/changing': { bytes: bytesOf('changing', 16 * 1024 * 1024) } });
  const asked = http.get(`${app.url}/webdav/b/changing`, { headers: bearer(alice) });
  const [response] = (await once(asked, 'response')) as [http.IncomingMessage];
  writeFileSync(copyOf('/b/changing'), 'x', { flag: 'a' });
  await expect(buffer(response).then(({ length }) => length)).rejects.toThrow('aborted');
});

test('one caller may use half of the download slots', async () => {
  const busy = await startBeside(app, { limits: { downloads: 2 } });
  try {
    const statusOf = async () => (await fetchBytes('/none', {}, 'GET', busy)).status;
    const first = await whileLocked(app, 'LOCK TABLE tape_file IN ACCESS EXCLUSIVE MODE', async (waiters) => {
      const waiting = statusOf();
      await waiters(1);
      const { status, headers } = await fetchBytes('/none', {}, 'GET', busy);
      expect([status, headers.get('retry-after')]).toEqual([429, '5']);
      return { waiting };
    });
    expect([await first.waiting, await statusOf()]).toEqual([404, 404]);
  } finally {
    await busy.close();
  }
});

test('OPTIONS returns the allowed methods, and others return 405', async () => {
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

/**
 * Replaces FileHandle.read() with `read` until `end` is called. If `read` returns undefined, the file is really read.
 */
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

test('a member of a quota cannot change the stage requests of another', async () => {
  for (const name of ['alice', 'bob'])
    await setQuotaMember(app.ctx, { quota: 'lab', kind: 'USER', name, isManager: false });
  await addTaped(app.ctx, library, [{ path: '/lab/a', volume: 'LAB' }]);
  const targetedMetadata = { TEST: { quota: 'lab' } };
  const id = await stageFiles(alice, [{ path: '/lab/a', targetedMetadata }, { path: '/lab/none' }]);
  await waitForStaged(alice, id);
  const staged = `SELECT b.cancelled_at, f.path, f.was_on_disk FROM stage_request b JOIN stage_request_file f ON f.stage_request_id = b.id
    WHERE b.id = $1 ORDER BY f.path`;
  const stored = async () => (await app.ctx.db.pool.query(staged, [id])).rows;
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

test('a copy that cannot be read returns a complete 503, and the connection stays open', async () => {
  await restore({ '/eio': { bytes: Buffer.alloc(54_321, 'e') } });
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const get = async () => {
    const asked = http.get(`${app.url}/webdav/eio`, { agent, headers: bearer(alice) });
    const [response] = (await once(asked, 'response')) as [http.IncomingMessage];
    const { etag, digest, 'repr-digest': repr, 'retry-after': retry } = response.headers;
    const { length } = await buffer(response);
    return { status: response.statusCode, length, of: [etag, digest, repr].filter(Boolean).length, retry };
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
  const beyond = await fetchBytes('/eio', { Range: 'bytes=60000-' });
  expect([beyond.status, beyond.headers.get('content-range'), beyond.headers.get('repr-digest')]).toEqual([
    416,
    'bytes */54321',
    null,
  ]);
});

test('a changed copy is compared only once', async () => {
  const size = 4 * 1024 * 1024;
  await restore({ '/altered': { bytes: Buffer.alloc(size, 'o') } });
  const place = copyOf('/altered');
  const { atime, mtime } = statSync(place);
  writeFileSync(place, Buffer.alloc(size, 'x'));
  utimesSync(place, atime, mtime);
  const bytesRead = () => Number(/rchar: (\d+)/.exec(readFileSync('/proc/self/io', 'utf8'))?.[1]);
  expect((await fetchBytes('/altered')).status).toBe(415);
  const before = bytesRead();
  for (const method of ['GET', 'HEAD', 'GET']) expect((await fetchBytes('/altered', {}, method)).status).toBe(415);
  expect(bytesRead() - before).toBeLessThan(size / 4);
});

test('double slashes in a path are accepted, and a request without a host is refused', async () => {
  await restore({ '/slashes': { bytes: Buffer.from('slashes') } });
  const shown = `Authorization: Bearer ${alice.token}\r\nConnection: close\r\n\r\n`;
  const answers = [
    await sendBytes(app, `GET //webdav//slashes HTTP/1.1\r\nHost: x\r\n${shown}`),
    await sendBytes(app, 'GET //webdav//slashes HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'),
    await sendBytes(app, 'GET /.well-known/wlcg-tape-rest-api HTTP/1.0\r\n\r\n'),
  ];
  expect(answers.map((answer) => answer.split('\r\n')[0])).toEqual([
    'HTTP/1.1 200 OK',
    'HTTP/1.1 401 Unauthorized',
    'HTTP/1.1 400 Bad Request',
  ]);
  expect(answers[0]?.endsWith('slashes')).toBe(true);
});
