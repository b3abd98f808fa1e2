/** How the library type `wlcg` reads bytes: digests, ranges, connections and redirects. */
import { randomBytes } from 'node:crypto';
import http from 'node:http';
import { afterEach, expect, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { LibraryError } from '../../src/tape/drive-library.js';
import {
  ChangedError,
  hasValidator,
  NotReadyError,
  type ReadVersion,
  RetryLaterError,
} from '../../src/tape/staging.js';
import { expectFailure } from '../support/failure.js';
import { closeServer, listen } from '../support/ports.js';
import { errorOf, makeReady, readStaged, staged } from '../support/staging-bench.js';
import { quiet } from '../support/tape-library.js';
import { createWlcgBench, type WlcgBench } from '../support/wlcg-bench.js';
import { adler32, hashOf } from '../support/wlcg-storage.js';

const BYTES = randomBytes(300_000);
const FILE = staged('/suite/a', BYTES.length);

const opened: { close(): unknown }[] = [];
afterEach(async () => {
  for (const each of opened.splice(0).reverse()) await each.close();
});

type Reply = (response: http.ServerResponse, bytes: Buffer, request: http.IncomingMessage) => void;

/** Creates a bench with one ready file. `reply` replaces the server's answer to a read. */
async function withFile(options: Parameters<typeof createWlcgBench>[1] = {}, reply?: Reply): Promise<WlcgBench> {
  const bench = await createWlcgBench('eos', options);
  opened.push(bench);
  await bench.put(FILE.path, BYTES);
  await makeReady(bench, [FILE]);
  if (reply) {
    bench.server.onBytes = (request, response, bytes) => {
      reply(response, bytes, request);
      return true;
    };
  }
  return bench;
}

const read = async (reply: Reply, from = 0n, settings = {}): Promise<Buffer> =>
  await readStaged((await withFile({ settings }, reply)).library, FILE, from);

const whole =
  (headers: Record<string, string>, status = 200): Reply =>
  (response, bytes) =>
    void response.writeHead(status, headers).end(bytes);

/** Sets the file's locality in the answers of the tape API. */
const setLocality = (bench: WlcgBench, locality: string) => {
  bench.server.onCall = (kind) =>
    kind === 'archiveinfo' ? { status: 200, body: [{ path: FILE.path, locality }] } : undefined;
};

const sha = hashOf('sha256', BYTES);
const md5 = hashOf('md5', BYTES);
const adler = adler32(BYTES).toString('hex');

test.each<[string, Record<string, string>]>([
  ['adler32 in hexadecimal', { digest: `adler32=${adler}` }],
  ['adler32 in capitals without leading zeros', { digest: `ADLER32=${adler.toUpperCase().replace(/^0+/, '')}` }],
  ['adler as bytes', { 'repr-digest': `adler=:${adler32(BYTES).toString('base64')}:` }],
  ['several', { digest: `md5=${md5}, sha-256=${sha} ,adler32=${adler}`, 'repr-digest': `sha-256=:${sha}:` }],
  ['an unknown one', { digest: 'crc64=1234', 'repr-digest': 'sha-999=:AAAA:' }],
  ['a malformed one', { digest: 'md5=?, sha-256=' }],
])('bytes with the right digest are read: %s', async (_what, headers) => {
  expect(await read(whole(headers))).toEqual(BYTES);
});

test.each<[string, Record<string, string>]>([
  ['adler32', { digest: 'adler32=00000001' }],
  ['md5', { digest: `md5=${hashOf('md5', Buffer.from('other'))}` }],
  ['sha256', { 'repr-digest': `sha-256=:${hashOf('sha256', Buffer.from('other'))}:` }],
])('bytes with another %s fail the file', async (algorithm, headers) => {
  await expectFailure(read(whole(headers)), TapeError, 'MEDIA', ` has ${algorithm} `);
});

test('a part of the bytes is not compared with the digest of the whole', async () => {
  const range = `bytes 9-${BYTES.length - 1}/${BYTES.length}`;
  const reply: Reply = (response, bytes) =>
    void response.writeHead(206, { 'content-range': range, digest: 'adler32=00000001' }).end(bytes.subarray(9));
  expect(await read(reply, 9n)).toEqual(BYTES.subarray(9));
});

test('a read that continues fails if the strong entity tag has changed', async () => {
  const tags = ['"one"', '"one"', 'W/"two"', undefined, '"two"'];
  const bench = await withFile({}, (response, bytes) => {
    const etag = tags.shift();
    response.writeHead(200, { 'content-length': bytes.length, ...(etag !== undefined && { etag }) }).end(bytes);
  });
  const version: ReadVersion = {};
  const file = { ...FILE, checksum: `adler32:${adler}` }; // the checksum identifies the version without an ETag
  const next = (from: bigint) => bench.library.read(file, from, quiet(), version)[Symbol.asyncIterator]().next();
  for (const from of [0n, 1n, 2n, 3n]) expect((await next(from)).done).toBe(false);
  expect(version).toMatchObject({ tag: '"one"' });
  await expectFailure(next(4n), ChangedError, 'TRANSIENT', /its ETag is "two", but was "one"$/);
});

const OLD = { 'last-modified': 'Mon, 01 Jan 2024 00:00:00 GMT' };
const NEW = { 'last-modified': 'Tue, 02 Jan 2024 00:00:00 GMT' };
const total = (bytes: number) => ({ 'content-range': `bytes 9-${bytes - 1}/${bytes}` });
const REST = total(BYTES.length);
const REPLACED = / was replaced while it was being read: its /;
const UNSURE = /no longer sends the ETag, Last-Modified header or digest of the first response$/;

test.each<[string, first: Record<string, string>, next: Record<string, string>, problem?: RegExp]>([
  ['the same Last-Modified', OLD, { ...REST, ...OLD }],
  ['the same digest', { digest: `adler32=${adler}` }, { ...REST, digest: `adler32=${adler}` }],
  ['a Last-Modified instead of the tag', { ...OLD, etag: '"one"' }, { ...REST, ...OLD }],
  ['another Last-Modified', OLD, { ...REST, ...NEW }, REPLACED],
  ['another digest', { ...OLD, digest: `adler32=${adler}` }, { ...REST, ...OLD, digest: 'adler32=00000001' }, REPLACED],
  ['another size', { ...OLD, 'content-length': '300000' }, { ...total(300_001), ...OLD }, REPLACED],
  ['no validator', OLD, REST, UNSURE],
  ['another tag than none', OLD, { ...REST, etag: '"one"' }, UNSURE],
])('a read that continues compares the validators: %s', async (_what, first, next, problem) => {
  const conditions: unknown[] = [];
  const bench = await withFile({}, (response, bytes, { headers: asked }) => {
    conditions.push(asked['if-range']);
    const [status, headers] = asked.range === undefined ? [200, first] : [206, next];
    response.writeHead(status, headers).end(asked.range === undefined ? bytes : bytes.subarray(9));
  });
  const version: ReadVersion = {};
  const read = async (from: bigint) => {
    let length = 0;
    for await (const chunk of bench.library.read(FILE, from, quiet(), version)) length += chunk.length;
    return length;
  };
  expect(hasValidator(version)).toBe(false);
  await read(0n);
  expect(hasValidator(version)).toBe(true);
  const type = problem === REPLACED ? ChangedError : LibraryError;
  if (problem) await expectFailure(read(9n), type, 'TRANSIENT', problem);
  else expect(await read(9n)).toBeGreaterThan(0);
  expect(conditions).toEqual([undefined, first.etag ? undefined : first['last-modified']]);
});

test.each([
  [5, false],
  [120, true],
])('a Last-Modified of %i s before the answer is a validator: %s', async (seconds, isStrong) => {
  const modified = new Date(Date.now() - seconds * 1000).toUTCString();
  const { library } = await withFile({}, whole({ 'last-modified': modified }));
  const version: ReadVersion = {};
  for await (const _chunk of library.read(FILE, 0n, quiet(), version));
  expect([hasValidator(version), version.ifRange]).toEqual([isStrong, isStrong ? modified : undefined]);
});

test('if a server ignores ranges, the bytes before the range are skipped', async () => {
  expect(await read(whole({}), 200_000n)).toEqual(BYTES.subarray(200_000));
  expect((await read(whole({}), BigInt(BYTES.length))).length).toBe(0);
  const says = /^cannot read .* from byte 300001: the file has 300000 bytes$/;
  await expectFailure(read(whole({}), BigInt(BYTES.length + 1)), TapeError, 'MEDIA', says);
});

const GZIP = /returned the encoding gzip instead of the whole file$/;

test.each<[string, Reply, from: bigint, message: RegExp]>([
  ['another range', whole({ 'content-range': 'bytes 0-299999/300000' }, 206), 9n, /range "bytes 0-299999\/300000"/],
  ['a range that ends early', whole({ 'content-range': 'bytes 9-99/300000' }, 206), 9n, /range "bytes 9-99\/300000"/],
  ['no range', whole({}, 206), 9n, /returned the range ""/],
  ['another encoding', whole({ 'content-encoding': 'gzip' }), 0n, GZIP],
  [
    'less than its length',
    (response, bytes) => {
      response.writeHead(200, { 'content-length': String(bytes.length) });
      response.write(bytes.subarray(0, 1000), () => response.destroy());
    },
    0n,
    /was interrupted: other side closed$/,
  ],
  [
    'less than its range',
    (response, bytes) =>
      response.writeHead(206, { 'content-range': 'bytes 9-299999/300000' }).end(bytes.subarray(9, 1000)),
    9n,
    /ended after 991 of 299991 bytes$/,
  ],
  [
    'malformed chunks',
    (response) => {
      response.writeHead(200).flushHeaders();
      response.socket?.write('zz\r\n', () => response.destroy());
    },
    0n,
    /was interrupted: /,
  ],
])('an answer with %s fails the library', async (_what, reply, from, message) => {
  await expectFailure(read(reply, from), LibraryError, 'TRANSIENT', message);
});

test('a silent server fails the read after its time limit, which a slow reader does not use up', async () => {
  const rest: (() => void)[] = [];
  const bench = await withFile({ settings: { silenceSeconds: 1 } }, (response, bytes) => {
    response.writeHead(200, { 'content-length': String(bytes.length) }).write(bytes.subarray(0, -1000));
    rest.push(() => response.end(bytes.subarray(-1000)));
  });
  await expectFailure(readStaged(bench.library, FILE), LibraryError, 'TRANSIENT', /sent no data for 1 s$/);
  let length = 0;
  for await (const chunk of bench.library.read(FILE, 0n, quiet())) {
    if (length === 0) await new Promise((resolve) => setTimeout(resolve, 1100)); // a pause longer than the time limit
    if (length === 0) rest.at(-1)?.();
    length += chunk.length;
  }
  expect(length).toBe(BYTES.length);
});

test('bytes of a slow server arrive within seconds, and all that came before a break', async () => {
  const { library } = await withFile({}, (response, bytes) => {
    response.writeHead(200, { 'content-length': String(bytes.length) }).write(bytes.subarray(0, 100_000));
    setTimeout(() => response.write(bytes.subarray(100_000, 101_000)), 1100); // the server sends less than a block
    cut = () => response.write(bytes.subarray(101_000, 101_500), () => response.destroy());
  });
  let cut = () => {};
  const lengths: number[] = [];
  const reading = async () => {
    for await (const { length } of library.read(FILE, 0n, quiet())) if (lengths.push(length) === 1) cut();
  };
  await expectFailure(reading(), LibraryError, 'TRANSIENT', /was interrupted/);
  expect(lengths).toEqual([101_000, 500]);
});

test('a read without an answer within its time limit fails as not ready if the file is on tape only', async () => {
  const bench = await withFile({ settings: { answerSeconds: 1 } }, () => {});
  const silent = readStaged(bench.library, FILE);
  await expectFailure(silent, LibraryError, 'TRANSIENT', /did not answer GET within 1 s$/);
  setLocality(bench, 'TAPE');
  await expectFailure(readStaged(bench.library, FILE), NotReadyError, 'TRANSIENT');
});

test.each([
  [202, 'DISK_AND_TAPE', NotReadyError, 'TRANSIENT'],
  [423, 'DISK', NotReadyError, 'TRANSIENT'],
  [415, 'DISK', NotReadyError, 'TRANSIENT'],
  [500, 'TAPE', NotReadyError, 'TRANSIENT'],
  [404, 'TAPE', NotReadyError, 'TRANSIENT'],
  [404, 'LOST', TapeError, 'PERMANENT'],
  [500, 'UNAVAILABLE', TapeError, 'TRANSIENT'],
  [403, 'DISK', TapeError, 'POLICY'],
  [401, 'TAPE', LibraryError, 'POLICY'],
  [404, 'DISK', LibraryError, 'TRANSIENT'],
  [503, 'DISK', RetryLaterError, 'TRANSIENT'],
] as const)(
  'a read that is answered %i for a file at %s fails with its type',
  async (status, locality, type, errorClass) => {
    const headers = status === 503 ? { 'retry-after': '5' } : {};
    const bench = await withFile({}, (response) => void response.writeHead(status, headers).end());
    setLocality(bench, locality);
    await expectFailure(readStaged(bench.library, FILE), type, errorClass);
  },
);

/** Starts another server that serves the bytes and records received tokens. */
async function listenElsewhere(): Promise<{ origin: string; tokens: (string | undefined)[] }> {
  const tokens: (string | undefined)[] = [];
  const server = http.createServer((request, response) => {
    tokens.push(request.headers.authorization);
    response.end(BYTES);
  });
  opened.push({ close: () => closeServer(server) });
  return { origin: `http://127.0.0.1:${await listen(server)}`, tokens };
}

const redirectTo =
  (location: string, headers = {}): Reply =>
  (response) =>
    void response.writeHead(307, { location, 'content-length': '0', ...headers }).end();

test('a redirect to another server passes on the token only if tokenOrigins contains that server', async () => {
  const elsewhere = await listenElsewhere();
  const redirect = redirectTo(`${elsewhere.origin}/pool`);
  expect(await read(redirect)).toEqual(BYTES);
  expect(await read(redirect, 0n, { tokenOrigins: [elsewhere.origin] })).toEqual(BYTES);
  expect(elsewhere.tokens).toEqual([undefined, 'Bearer a.bearer.token']);
});

test('the digest of a redirect counts if the final answer has none', async () => {
  const { origin } = await listenElsewhere();
  const reply = redirectTo(origin, { digest: 'adler32=00000001' });
  expect(await errorOf(read(reply))).toMatchObject({ message: expect.stringContaining('has adler32') });
});

test.each<[string, Reply, RegExp]>([
  ['a circle', (...args) => redirectTo(`${args[2].url}`)(...args), /redirects 6 times, the last time to/],
  ['ftp', redirectTo('ftp://127.0.0.1/a'), /does not follow redirects from http to ftp$/],
  ['no URL', (response) => void response.writeHead(302).end(), /which is not a URL$/],
])('a redirect to %s fails', async (_what, reply, message) => {
  expect(await errorOf(read(reply))).toMatchObject({ message: expect.stringMatching(message) });
});

test('a redirect from https to http fails, and the other server is not called', async () => {
  const elsewhere = await listenElsewhere();
  const { library } = await withFile({ tls: true }, redirectTo(elsewhere.origin));
  const message = expect.stringMatching(/redirects to http:.* does not follow redirects from https to http$/);
  expect(await errorOf(readStaged(library, FILE))).toMatchObject({ message });
  expect(elsewhere.tokens).toEqual([]);
});

test('at most `sockets` connections read bytes at once', async () => {
  const bench = await withFile({ settings: { sockets: 2 } });
  let most = 0;
  bench.server.onBytes = () => {
    most = Math.max(most, bench.server.reads);
    return false;
  };
  const reads = await Promise.all(Array.from({ length: 12 }, () => readStaged(bench.library, FILE)));
  for (const bytes of reads) expect(bytes).toEqual(BYTES);
  expect(most).toBeLessThanOrEqual(2);
});

test('a slow reader stops the server: little of a large file is buffered', async () => {
  const size = 200 * 1024 * 1024;
  const piece = Buffer.alloc(1024 * 1024);
  let sent = 0;
  const bench = await withFile({}, (response) => {
    response.writeHead(200, { 'content-length': String(size) });
    const send = () => {
      let hasRoom = true;
      while (hasRoom && sent < size) {
        hasRoom = response.write(piece);
        sent += piece.length;
      }
      if (sent < size) response.once('drain', send);
      else response.end();
    };
    send();
  });
  let length = 0;
  for await (const chunk of bench.library.read(FILE, 0n, quiet())) {
    if (length === 0) await new Promise((resolve) => setTimeout(resolve, 500)); // a slow disk may take this long
    length += chunk.length;
    expect(sent - length).toBeLessThan(64 * 1024 * 1024);
  }
  expect(length).toBe(size);
});
