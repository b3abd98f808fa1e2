/** HTTP calls to servers that stall, or whose answers never end. */
import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { fetchBounded } from '../../src/core/net/bounded-fetch.js';

const ANSWERS: Record<string, http.RequestListener> = {
  '/whole': (_req, res) => void res.writeHead(201, { 'Content-Type': 'application/json' }).end('{"a":1}'),
  '/empty': (_req, res) => void res.writeHead(204).end(),
  '/silent': () => {},
  '/stalled': (_req, res) => void res.writeHead(400).write('{"a":'),
  '/endless': (_req, res) => {
    const write = (): void => {
      while (!res.destroyed) if (!res.write(Buffer.alloc(65_536, ' '))) return void res.once('drain', write);
    };
    write();
  },
};
const server = http.createServer((req, res) => ANSWERS[req.url ?? '']?.(req, res));
let url: string;

beforeAll(async () => {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

test('a whole answer is returned with its status and headers', async () => {
  const response = await fetchBounded(`${url}/whole`, {}, 5000);
  expect([response.status, response.url, await response.json()]).toEqual([201, `${url}/whole`, { a: 1 }]);
  expect(response.headers.get('content-type')).toBe('application/json');
  expect(await (await fetchBounded(`${url}/empty`, {}, 5000)).text()).toBe('');
});

test.each(['/silent', '/stalled'])('an answer that does not end in time fails: %s', async (place) => {
  await expect(fetchBounded(url + place, {}, 50)).rejects.toThrow('no response within 0.05 s');
});

test('an answer without an end fails, and its connection is closed', async () => {
  const closed = once(server, 'request').then(([, res]: http.ServerResponse[]) => res && once(res, 'close'));
  await expect(fetchBounded(`${url}/endless`, {}, 20_000)).rejects.toThrow('the response is larger than 1048576 bytes');
  await closed;
});

test('the signal of the caller ends the read of a body', async () => {
  const leaving = new AbortController();
  const answer = fetchBounded(`${url}/stalled`, { signal: leaving.signal }, 20_000);
  leaving.abort(new Error('the caller leaves'));
  await expect(answer).rejects.toThrow('the caller leaves');
});
