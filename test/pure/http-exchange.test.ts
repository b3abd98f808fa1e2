/** The HTTP client of the library types `wlcg` and `s3`, with servers that follow HTTP and servers that do not. */
import net from 'node:net';
import { afterAll, expect, test } from 'vitest';
import { LibraryError } from '../../src/tape/backend.js';
import { SilentServerError } from '../../src/tape/http/body.js';
import { exchange, Pools } from '../../src/tape/http/exchange.js';
import { expectFailure } from '../support/failure.js';
import { listen } from '../support/ports.js';
import { quiet } from '../support/tape-backend.js';
import { waitFor } from '../support/wait.js';

const limits = { connectMs: 5000, answerMs: 5000, silenceMs: 5000 };
const servers: net.Server[] = [];
afterAll(() => {
  for (const server of servers) server.close();
});

/** @param answer gets the number of requests before on this connection, and the number of the connection */
async function serve(answer: (socket: net.Socket, asked: number, connection: number) => void) {
  let connections = 0;
  const requests: string[] = [];
  const server = net.createServer((socket) => {
    const connection = connections++;
    let asked = 0;
    let text = '';
    socket.on('error', () => {});
    socket.on('data', (data) => {
      text += data;
      if (!text.endsWith('\r\n\r\n')) return;
      requests.push(text);
      text = '';
      answer(socket, asked++, connection);
    });
  });
  servers.push(server);
  return { url: new URL(`http://127.0.0.1:${await listen(server)}/a?b=c`), requests, connections: () => connections };
}

const createPools = () => new Pools({ limits, sockets: 1 });

interface Asked {
  method?: 'GET' | 'HEAD' | 'POST';
  pools: Pools;
  url: URL;
  signal?: AbortSignal;
  headers?: Record<string, string>;
  isRepeatable?: boolean;
}

async function ask({ method = 'GET', pools, url, signal = quiet(), isRepeatable = true, ...given }: Asked) {
  const { headers = { 'x-from': 'tests' } } = given;
  return await exchange({ method, url, headers, pools, limits, signal, isRepeatable });
}

async function get({ signal = quiet(), ...asked }: Asked) {
  const answer = await ask({ ...asked, signal });
  const chunks: Buffer[] = [];
  for await (const chunk of answer.read(signal)) chunks.push(chunk);
  const { statusCode, statusMessage, headers: received } = answer.response;
  return { statusCode, statusMessage, headers: received, body: Buffer.concat(chunks).toString('latin1') };
}

test('an answer is read in whatever pieces it arrives', async () => {
  const text = 'HTTP/1.1 206 Some of it\r\nX-One: 1\r\nx-one: 2\r\nContent-Length: 10\r\nETag: "x"\r\n\r\n0123456789';
  const { url, requests } = await serve(async (socket) => {
    for (const byte of text) {
      await new Promise((resolve) => setImmediate(resolve));
      socket.write(byte);
    }
  });
  const headers = { 'x-one': '1, 2', 'content-length': '10', etag: '"x"' };
  const expected = { statusCode: 206, statusMessage: expect.any(String), headers, body: '0123456789' };
  expect(await get({ pools: createPools(), url })).toEqual(expected);
  expect(requests).toEqual([
    `GET /a?b=c HTTP/1.1\r\nhost: ${url.host}\r\nconnection: keep-alive\r\nx-from: tests\r\n\r\n`,
  ]);
});

test('bodies of any length are read over one connection', async () => {
  const lengths = [0, 1, 65_535, 65_536, 262_143, 262_144, 262_145, 3_000_000, 7];
  const bodyOf = (length: number) => Buffer.from(Array.from({ length }, (_, index) => (index * 7 + length) & 255));
  const { url, connections } = await serve((socket, asked) => {
    const body = bodyOf(lengths[asked] ?? 0);
    const head = Buffer.from(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n`);
    socket.write(Buffer.concat([head, body]));
  });
  const pools = createPools();
  for (const length of lengths) {
    const found = await get({ pools, url });
    expect([length, found?.body === bodyOf(length).toString('latin1')]).toEqual([length, true]);
  }
  expect(connections()).toBe(1);
});

test('informational answers are skipped, up to 10 of them', async () => {
  const early = 'HTTP/1.1 103 Early Hints\r\nlink: </b>\r\n\r\n';
  const { url } = await serve((socket, asked) => {
    const heads = early.repeat(asked === 0 ? 2 : 20);
    socket.write(`${heads}HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok`);
  });
  const pools = createPools();
  expect(await get({ pools, url })).toMatchObject({ statusCode: 200, body: 'ok' });
  await expect(get({ pools, url })).rejects.toThrow(/it answers 11 times that it will answer$/);
});

test('a connection that the server closes, or that has extra bytes, is not reused', async () => {
  const { url, connections } = await serve((socket, _asked, connection) => {
    const rest = ['close', 'more', 'kept', ''][connection];
    const kept = rest === 'close' ? 'connection: close\r\n' : '';
    socket.write(`HTTP/1.1 200 OK\r\n${kept}content-length: 2\r\n\r\nok${rest === 'more' ? 'more' : ''}`);
  });
  const pools = createPools();
  for (let n = 0; n < 5; n++) expect(await get({ pools, url })).toMatchObject({ body: 'ok' });
  expect(connections()).toBe(3);
});

test('a connection is reused after HEAD', async () => {
  const head = 'HTTP/1.1 200 OK\r\nconnection: keep-alive\r\ncontent-length: 7\r\n\r\n';
  const { url, connections } = await serve((socket) => socket.write(head));
  const pools = createPools();
  for (let n = 0; n < 3; n++) {
    expect(await get({ method: 'HEAD', pools, url })).toMatchObject({ headers: { 'content-length': '7' }, body: '' });
  }
  expect(connections()).toBe(1);
});

test('a request on an idle connection that the server closes is repeated on a new one', async () => {
  const { url, connections } = await serve((socket, asked, connection) => {
    if (connection === 0 && asked === 1) socket.destroy();
    else socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok');
  });
  const pools = createPools();
  await get({ pools, url });
  expect(await get({ pools, url })).toMatchObject({ body: 'ok' });
  expect(connections()).toBe(2);
});

test('a POST on a connection that the server closes is not repeated', async () => {
  const { url, requests } = await serve((socket) => socket.destroy());
  const sent = get({ method: 'POST', pools: createPools(), url, isRepeatable: false });
  await expect(sent).rejects.toThrow(/cannot be reached: other side closed$/);
  expect(requests.length).toBe(1);
});

test('a body without Content-Length is read to its end', async () => {
  const { url } = await serve((socket, _asked, connection) => {
    if (connection === 0) socket.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n');
    else socket.end('HTTP/1.1 200 OK\r\n\r\nuntil the end');
  });
  expect(await get({ pools: createPools(), url })).toMatchObject({ body: 'ok' });
  expect(await get({ pools: createPools(), url })).toMatchObject({ body: 'until the end' });
});

test('a header with a line end is not sent', async () => {
  const { url, requests } = await serve(() => {});
  const sent = get({ pools: createPools(), url, headers: { authorization: 'Bearer a\r\nx-other: b' } });
  await expect(sent).rejects.toThrow(/invalid authorization header$/);
  expect(requests).toEqual([]);
});

test.each([
  ['is not HTTP', 'SSH-2.0-x\r\n\r\n', /does not match the HTTP\/1\.1 protocol/],
  ['contains no header', 'HTTP/1.1 200 OK\r\nno header\r\n\r\n', /does not match the HTTP\/1\.1 protocol/],
  ['has two lengths', 'HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n', /content-length/i],
  ['never ends', `HTTP/1.1 200 OK\r\nx: ${'y'.repeat(70_000)}`, /Headers Overflow/i],
])('a head that %s fails the library', async (_what, text, message) => {
  const { url } = await serve((socket) => socket.write(text));
  const error = await get({ pools: createPools(), url }).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(LibraryError);
  expect(error).toMatchObject({ errorClass: 'TRANSIENT', message: expect.stringMatching(message) });
});

test.each(['reads a part of it', 'does not read it'])('the connection closes if the caller %s', async (what) => {
  let isClosed = false;
  const { url } = await serve((socket) => {
    socket.once('close', () => {
      isClosed = true;
    });
    socket.write('HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nthe beginning');
  });
  const answer = await ask({ pools: createPools(), url });
  if (what === 'does not read it') answer.response.destroy();
  else {
    const reading = answer.read(quiet());
    expect(String((await reading.next()).value)).toBe('the beginning');
    await reading.return(undefined);
  }
  await waitFor('the connection to close', async () => isClosed);
});

test('a request waits for a free connection, until it is aborted', async () => {
  const asked: net.Socket[] = [];
  const { url, connections } = await serve((socket) => asked.push(socket));
  const pools = createPools();
  const first = get({ pools, url });
  await waitFor('the first to be asked for', async () => asked.length === 1);
  const abort = new AbortController();
  const second = get({ pools, url, signal: abort.signal });
  const third = get({ pools, url });
  const reason = new Error('not wanted');
  abort.abort(reason);
  await expect(second).rejects.toBe(reason);
  asked[0]?.write('HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1');
  await first;
  await waitFor('the third to be asked for', async () => asked.length === 2);
  asked[1]?.write('HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n3');
  expect(await third).toMatchObject({ body: '3' });
  expect(connections()).toBe(1);
});

test('a server that accepts a connection and does not begin TLS fails after its time limit', async () => {
  const { url } = await serve(() => {});
  url.protocol = 'https:';
  const short = { ...limits, connectMs: 500 };
  const pools = new Pools({ limits: short, sockets: 1 });
  const signal = quiet();
  const sent = exchange({ method: 'GET', url, headers: {}, pools, limits: short, signal, isRepeatable: true });
  await expectFailure(sent, SilentServerError, 'TRANSIENT', /\/a took no connection within 0\.5 s$/);
});
