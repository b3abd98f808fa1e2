/** How the kind `wlcg` reads bytes: what a server says of them is held against what comes. */
import { randomBytes } from 'node:crypto';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { LibraryError } from '../../src/tape/backend.js';
import { ChangedError, NotReadyError, type ReadVersion, RetryLaterError } from '../../src/tape/staging.js';
import { errorOf, makeReady, readStaged, staged } from '../support/staging-bench.js';
import { quiet } from '../support/tape-backend.js';
import { createWlcgBench, type WlcgBench } from '../support/wlcg-bench.js';
import { adler32, hashOf } from '../support/wlcg-storage.js';

const BYTES = randomBytes(300_000);
const FILE = staged('/suite/a', BYTES.length);

const open: { close(): unknown }[] = [];

afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each.close();
});

/** A bench that has the one file ready. */
async function withFile(...options: Parameters<typeof createWlcgBench>): Promise<WlcgBench> {
  const bench = await createWlcgBench(...options);
  open.push(bench);
  await bench.put(FILE.path, BYTES);
  await makeReady(bench, [FILE]);
  return bench;
}

type Reply = (response: http.ServerResponse, bytes: Buffer, request: http.IncomingMessage) => void;

async function reading(reply: Reply, from = 0n, settings = {}): Promise<Buffer> {
  const bench = await withFile('eos', { settings });
  bench.server.onBytes = (request, response, bytes) => {
    reply(response, bytes, request);
    return true;
  };
  return await readStaged(bench.library, FILE, from);
}

const whole = (headers: Record<string, string>, status = 200): Reply => {
  return (response, bytes) => void response.writeHead(status, headers).end(bytes);
};

const sha = hashOf('sha256', BYTES);
const md5 = hashOf('md5', BYTES);
const adler = adler32(BYTES).toString('hex');

test.each<[string, Record<string, string>]>([
  ['adler32 as hexadecimal digits', { digest: `adler32=${adler}` }],
  ['adler32 in capitals, without its noughts', { digest: `ADLER32=${adler.toUpperCase().replace(/^0+/, '')}` }],
  ['adler as bytes', { 'repr-digest': `adler=:${adler32(BYTES).toString('base64')}:` }],
  ['several', { digest: `md5=${md5}, sha-256=${sha} ,adler32=${adler}`, 'repr-digest': `sha-256=:${sha}:` }],
  ['one that is not known here', { digest: 'crc64=1234', 'repr-digest': 'sha-999=:AAAA:' }],
  ['one that is none', { digest: 'md5=?, sha-256=' }],
])('bytes are as the digest says: %s', async (_what, headers) => {
  expect((await reading(whole(headers))).equals(BYTES)).toBe(true);
});

test.each<[string, Record<string, string>]>([
  ['adler32', { digest: 'adler32=00000001' }],
  ['md5', { digest: `md5=${hashOf('md5', Buffer.from('other'))}` }],
  ['sha-256', { 'repr-digest': `sha-256=:${hashOf('sha256', Buffer.from('other'))}:` }],
])('bytes that are not as the digest says are an error: %s', async (algorithm, headers) => {
  const error = await errorOf(reading(whole(headers)));
  expect(error).not.toBeInstanceOf(LibraryError);
  expect(error).toMatchObject({
    errorClass: 'MEDIA',
    message: expect.stringContaining(` came with ${algorithm} `),
  });
});

test('what is read from a byte on is not held against the digest of the whole', async () => {
  const reply: Reply = (response, bytes) => {
    const range = `bytes 9-${bytes.length - 1}/${bytes.length}`;
    response.writeHead(206, { 'content-range': range, digest: 'adler32=00000001' }).end(bytes.subarray(9));
  };
  expect((await reading(reply, 9n)).equals(BYTES.subarray(9))).toBe(true);
});

test('a read goes on in the version that it began with, as far as the server tells one from another', async () => {
  const bench = await withFile('eos');
  const tags = ['"one"', '"one"', 'W/"two"', undefined, '"two"'];
  bench.server.onBytes = (_request, response, bytes) => {
    const etag = tags.shift();
    const length = { 'content-length': String(bytes.length) };
    response.writeHead(200, etag === undefined ? length : { ...length, etag }).end(bytes);
    return true;
  };
  const version: ReadVersion = {};
  const read = (from: bigint) => bench.library.read(FILE, from, quiet(), version)[Symbol.asyncIterator]().next();
  for (const from of [0n, 1n, 2n, 3n]) expect((await read(from)).done).toBe(false);
  expect(version).toEqual({ tag: '"one"' });
  const error = await errorOf(read(4n));
  expect(error).toBeInstanceOf(ChangedError);
  expect(error).toMatchObject({ message: expect.stringMatching(/it has the tag "two", and had "one"$/) });
});

test('a server that knows no ranges gives all, and what was read already is passed over', async () => {
  expect((await reading(whole({}), 200_000n)).equals(BYTES.subarray(200_000))).toBe(true);
  expect((await reading(whole({}), BigInt(BYTES.length))).length).toBe(0);
  expect(await errorOf(reading(whole({}), BigInt(BYTES.length + 1)))).toMatchObject({
    errorClass: 'MEDIA',
    message: expect.stringMatching(/has 300000 bytes, and is to be read from byte 300001 on$/),
  });
});

test.each<[string, Reply, bigint, RegExp]>([
  [
    'the wrong range',
    whole({ 'content-range': 'bytes 0-299999/300000' }, 206),
    9n,
    /answers the range "bytes 0-299999\/300000"/,
  ],
  [
    'a range that ends early',
    whole({ 'content-range': 'bytes 9-99/300000' }, 206),
    9n,
    /answers the range "bytes 9-99\/300000"/,
  ],
  ['no range', whole({}, 206), 9n, /answers the range ""/],
  [
    'another encoding',
    whole({ 'content-encoding': 'gzip' }),
    0n,
    /answers in the encoding gzip, where the whole file was asked for$/,
  ],
  [
    'less than it said',
    (response, bytes) => {
      response.writeHead(200, { 'content-length': String(bytes.length) });
      response.write(bytes.subarray(0, 1000), () => response.destroy());
    },
    0n,
    /broke off: the connection was closed$/,
  ],
  [
    'less than its range',
    (response, bytes) => {
      response.writeHead(206, { 'content-range': 'bytes 9-299999/300000' }).end(bytes.subarray(9, 1000));
    },
    9n,
    /ended after 991 of 299991 bytes$/,
  ],
  [
    'no end of its chunks',
    (response, bytes) => {
      response.writeHead(200).write(bytes, () => response.destroy());
    },
    0n,
    /broke off: aborted$/,
  ],
  [
    'an encoding of chunks that is broken',
    (response) => {
      response.writeHead(200).flushHeaders();
      response.socket?.write('zz\r\n', () => response.destroy());
    },
    0n,
    /broke off: /,
  ],
])('a server that gives %s is what fails', async (_what, reply, from, message) => {
  const error = await errorOf(reading(reply, from));
  expect(error).toBeInstanceOf(LibraryError);
  expect(error).toMatchObject({ errorClass: 'TRANSIENT', message: expect.stringMatching(message) });
});

test('a server that stops in the middle is left after its time; a reader may take longer than that', async () => {
  const bench = await withFile('eos', { settings: { silenceSeconds: 1 } });
  const rest: (() => void)[] = [];
  bench.server.onBytes = (_request, response, bytes) => {
    response.writeHead(200, { 'content-length': String(bytes.length) }).write(bytes.subarray(0, 1000));
    rest.push(() => response.end(bytes.subarray(1000)));
    return true;
  };
  const error = await errorOf(readStaged(bench.library, FILE));
  expect(error).toMatchObject({ errorClass: 'TRANSIENT', message: expect.stringMatching(/sent nothing for 1 s$/) });
  let read = 0;
  for await (const chunk of bench.library.read(FILE, 0n, quiet())) {
    if (read === 0) await new Promise((resolve) => setTimeout(resolve, 1500));
    if (read === 0) rest.at(-1)?.();
    read += chunk.length;
  }
  expect(read).toBe(BYTES.length);
});

test('a server that is silent because it fetches the file from tape is not waited for', async () => {
  const bench = await withFile('eos', { settings: { answerSeconds: 1 } });
  bench.server.onBytes = () => true;
  expect(await errorOf(readStaged(bench.library, FILE))).toMatchObject({
    message: expect.stringMatching(/did not answer GET within 1 s$/),
  });
  bench.server.onCall = (kind) =>
    kind === 'archiveinfo' ? { status: 200, body: [{ path: FILE.path, locality: 'TAPE' }] } : undefined;
  expect(await errorOf(readStaged(bench.library, FILE))).toBeInstanceOf(NotReadyError);
});

test.each<[number, string, object]>([
  [202, 'DISK_AND_TAPE', { name: 'NotReady' }],
  [423, 'DISK', { name: 'NotReady' }],
  [500, 'TAPE', { name: 'NotReady' }],
  [404, 'TAPE', { name: 'NotReady' }],
  [404, 'LOST', { name: 'Tape', errorClass: 'PERMANENT' }],
  [500, 'UNAVAILABLE', { name: 'Tape', errorClass: 'TRANSIENT' }],
  [403, 'DISK', { name: 'Tape', errorClass: 'POLICY' }],
  [401, 'TAPE', { name: 'Library', errorClass: 'POLICY' }],
  [404, 'DISK', { name: 'Library', errorClass: 'TRANSIENT' }],
  [503, 'DISK', { name: 'Retry' }],
])(
  'a read that is answered %i, of a file that is at %s, says whose fault that is',
  async (status, locality, expected) => {
    const bench = await withFile('eos');
    bench.server.onBytes = (_request, response) => {
      response.writeHead(status, status === 503 ? { 'retry-after': '5' } : {}).end();
      return true;
    };
    bench.server.onCall = (kind) =>
      kind === 'archiveinfo' ? { status: 200, body: [{ path: FILE.path, locality }] } : undefined;
    const error = (await errorOf(readStaged(bench.library, FILE))) as LibraryError;
    const kinds = {
      NotReady: error instanceof NotReadyError,
      Retry: error instanceof RetryLaterError,
      Library: error instanceof LibraryError,
    };
    const name = Object.entries(kinds).find(([, is]) => is)?.[0] ?? 'Tape';
    expect({ name, errorClass: error.errorClass }).toMatchObject(expected);
  },
);

/** Another server, which notes what it is asked with. */
async function listenElsewhere(
  answer: http.RequestListener,
): Promise<{ origin: string; tokens: (string | undefined)[] }> {
  const tokens: (string | undefined)[] = [];
  const server = http.createServer((request, response) => {
    tokens.push(request.headers.authorization);
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  open.push({ close: () => new Promise((resolve) => server.close(resolve).closeAllConnections()) });
  return { origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, tokens };
}

const redirectTo = (location: string): Reply => {
  return (response) => void response.writeHead(307, { location, 'content-length': '0' }).end();
};

test('a token goes to no other server, unless the settings let it', async () => {
  const elsewhere = await listenElsewhere((_request, response) => response.end(BYTES));
  const redirect = redirectTo(`${elsewhere.origin}/pool`);
  expect((await reading(redirect)).equals(BYTES)).toBe(true);
  expect((await reading(redirect, 0n, { tokenOrigins: [elsewhere.origin] })).equals(BYTES)).toBe(true);
  expect(elsewhere.tokens).toEqual([undefined, 'Bearer a.bearer.token']);
});

test('the digest of an answer that redirects counts where the last one tells none', async () => {
  const elsewhere = await listenElsewhere((_request, response) => response.end(BYTES));
  const reply: Reply = (response) => {
    response.writeHead(302, { location: elsewhere.origin, digest: 'adler32=00000001', 'content-length': '0' }).end();
  };
  expect(await errorOf(reading(reply))).toMatchObject({ message: expect.stringContaining('came with adler32') });
});

test('redirections have an end, and lead to no server without certificates', async () => {
  const round: Reply = (response, _bytes, request) => redirectTo(`${request.url}`)(response, BYTES, request);
  expect(await errorOf(reading(round))).toMatchObject({ message: expect.stringMatching(/redirects for the 6th time/) });
  expect(await errorOf(reading(redirectTo('ftp://127.0.0.1/a')))).toMatchObject({
    message: expect.stringMatching(/which is not followed$/),
  });
  expect(await errorOf(reading((response) => void response.writeHead(302).end()))).toMatchObject({
    message: expect.stringMatching(/which is no URL$/),
  });
  const elsewhere = await listenElsewhere((_request, response) => response.end(BYTES));
  const secure = await withFile('eos', { tls: true });
  secure.server.onBytes = (request, response) => {
    redirectTo(elsewhere.origin)(response, BYTES, request);
    return true;
  };
  expect(await errorOf(readStaged(secure.library, FILE))).toMatchObject({
    message: expect.stringMatching(/redirects from https to http:.* which is not followed$/),
  });
  expect(elsewhere.tokens).toEqual([]);
});

test('connections are used again, for calls and for bytes', async () => {
  const bench = await withFile('dcache', { tls: true });
  const sockets = new Set<unknown>();
  bench.server.onBytes = (request) => {
    sockets.add(request.socket);
    return false;
  };
  for (let time = 0; time < 5; time++) await readStaged(bench.library, FILE, BigInt(time));
  for (let time = 0; time < 5; time++) await bench.library.stage([FILE], quiet());
  expect(sockets.size).toBe(1);
  expect(await bench.server.countConnections()).toBeLessThanOrEqual(3);
});

test('no more connections than the settings say are open for bytes', async () => {
  const bench = await withFile('eos', { settings: { sockets: 2 } });
  let most = 0;
  bench.server.onBytes = () => {
    most = Math.max(most, bench.server.reads);
    return false;
  };
  const reads = await Promise.all(Array.from({ length: 12 }, () => readStaged(bench.library, FILE)));
  expect(reads.every((bytes) => bytes.equals(BYTES))).toBe(true);
  expect(most).toBeLessThanOrEqual(2);
});

test('a reader that is slow holds the server up, and no more than some of the bytes are on their way', async () => {
  const bench = await withFile('eos');
  const size = 400 * 1024 * 1024;
  let sent = 0;
  bench.server.onBytes = (_request, response) => {
    response.writeHead(200, { 'content-length': String(size) });
    const piece = Buffer.alloc(1024 * 1024);
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
    return true;
  };
  let read = 0;
  for await (const chunk of bench.library.read(FILE, 0n, quiet())) {
    if (read === 0) await new Promise((resolve) => setTimeout(resolve, 500)); // as long as a disk may take
    read += chunk.length;
    expect(sent - read).toBeLessThan(64 * 1024 * 1024);
  }
  expect(read).toBe(size);
});
