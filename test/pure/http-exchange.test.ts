/**
 * How HTTP requests of the library type `wlcg` use connections, and which errors they report for servers that violate
 * HTTP.
 */
import net from 'node:net';
import { afterAll, expect, test } from 'vitest';
import { LibraryError } from '../../src/tape/drive-library.js';
import { exchange, Pools, readText, SilentServerError } from '../../src/tape/http/exchange.js';
import { expectFailure } from '../support/failure.js';
import { listen } from '../support/ports.js';
import { quiet } from '../support/tape-library.js';
import { waitFor } from '../support/wait.js';

const limits = { connectMs: 5000, answerMs: 5000, silenceMs: 5000 };
const servers: net.Server[] = [];
afterAll(() => {
  for (const server of servers) server.close();
});

/** Starts a server that calls `answer` whenever data arrives. */
async function serve(answer: (socket: net.Socket) => void) {
  const server = net.createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', () => answer(socket));
  });
  servers.push(server);
  return { url: new URL(`http://127.0.0.1:${await listen(server)}/a?b=c`) };
}

const createPools = () => new Pools({ limits, sockets: 1, secure: async () => ({}) });

const ask = (pools: Pools, url: URL, signal = quiet()) => exchange({ method: 'GET', url, headers: {}, pools, signal });

test('repeated headers are joined', async () => {
  const { url } = await serve((socket) =>
    socket.write('HTTP/1.1 200 OK\r\na: 1\r\nA: 2\r\ncontent-length: 2\r\n\r\nok'),
  );
  const answer = await ask(createPools(), url);
  expect(answer.response).toEqual({ statusCode: 200, statusText: 'OK', headers: { a: '1, 2', 'content-length': '2' } });
  expect(await readText(answer, 2)).toBe('ok');
});

test.each([
  ['is not HTTP', 'SSH-2.0-x\r\n\r\n', /does not match the HTTP\/1\.1 protocol/],
  ['never ends', `HTTP/1.1 200 OK\r\nx: ${'y'.repeat(70_000)}`, /Headers Overflow/i],
])('a head that %s fails the library', async (_what, text, message) => {
  const { url } = await serve((socket) => socket.write(text));
  await expectFailure(ask(createPools(), url), LibraryError, 'TRANSIENT', message);
});

test.each(['reads a part of it', 'does not read it'])('the connection closes if the caller %s', async (what) => {
  let isClosed = false;
  const { url } = await serve((socket) => {
    socket.once('close', () => {
      isClosed = true;
    });
    socket.write('HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nthe beginning');
  });
  const answer = await ask(createPools(), url);
  if (what === 'does not read it') answer.destroy();
  else {
    const reading = answer.read();
    expect(String((await reading.next()).value)).toBe('the beginning');
    await reading.return(undefined);
  }
  await waitFor('the connection to close', async () => isClosed);
});

test('a request waits for a free connection, until it is aborted', async () => {
  const asked: net.Socket[] = [];
  const { url } = await serve((socket) => asked.push(socket));
  const pools = createPools();
  const first = ask(pools, url);
  await waitFor('the first to be asked for', async () => asked.length === 1);
  const abort = new AbortController();
  const second = ask(pools, url, abort.signal);
  const third = ask(pools, url);
  const reason = new Error('not wanted');
  abort.abort(reason);
  await expect(second).rejects.toBe(reason);
  asked[0]?.write('HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1');
  expect(await readText(await first, 1)).toBe('1');
  await waitFor('the third to be asked for', async () => asked.length === 2);
  asked[1]?.write('HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n3');
  expect(await readText(await third, 1)).toBe('3');
});

test('a server that accepts a connection and does not begin TLS fails after its time limit', async () => {
  const { url } = await serve(() => {});
  url.protocol = 'https:';
  const pools = new Pools({ limits: { ...limits, connectMs: 500 }, sockets: 1, secure: async () => ({}) });
  await expectFailure(ask(pools, url), SilentServerError, 'TRANSIENT', /\/a accepted no connection within 0\.5 s$/);
});
