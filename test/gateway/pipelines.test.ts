/** Pipelined requests on one connection, and requests with unknown tokens, do not delay other requests. */
import { once } from 'node:events';
import net from 'node:net';
import { expect, test } from 'vitest';
import { addQuota } from '../support/factories.js';
import { send } from '../support/http.js';
import { whileLocked } from '../support/locks.js';
import { get } from '../support/rest.js';
import { useApp } from '../support/use-app.js';
import { whenClosed } from '../support/wait.js';

const app = useApp({ limits: { callerRequests: 3 } }, async () => {
  await addQuota(app.ctx, 'alice', 1_000_000n);
});

const ask = (path: string, header = '') =>
  `GET /tape_control/api/v1${path} HTTP/1.1\r\nHost: 127.0.0.1\r\n${header}\r\n`;

async function connect(): Promise<net.Socket> {
  const socket = net.connect(Number(new URL(app.url).port), '127.0.0.1');
  socket.on('error', () => {});
  await once(socket, 'connect');
  return socket;
}

/** Returns the response statuses of a connection, until there are `count` statuses or the connection ends. */
async function readStatuses(socket: net.Socket, count: number): Promise<number[]> {
  let text = '';
  const found = () => [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status));
  for await (const chunk of socket) {
    text += chunk;
    if (found().length >= count) break;
  }
  return found();
}

test('pipelined requests of one caller are answered one at a time, in order, up to one that closes the connection', async () => {
  const forty = await connect();
  forty.write(ask('/quota/alice').repeat(40));
  expect(await readStatuses(forty, 40)).toEqual(Array(40).fill(200));
  const body = JSON.stringify([{ quota: 'alice', files: '/none' }]);
  const post = `POST /tape_control/api/v1/requests HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const mixed = await connect();
  mixed.write(ask('/quota/nobody') + post + ask('/requests/1') + ask('/requests', 'Connection: close\r\n'));
  expect(await readStatuses(mixed, 5)).toEqual([404, 200, 200, 200]);
});

test('a connection with very many pipelined requests is closed, and others are served', async () => {
  const socket = await connect();
  const closed = whenClosed(socket);
  socket.resume();
  socket.write(ask('/quota/alice').repeat(500));
  await closed;
  expect((await get(app, '/quota/alice')).status).toBe(200);
});

test('lookups of unknown tokens leave connections to known callers', async () => {
  const show = (n: number) => `Authorization: Bearer tapegate_${String(n).padStart(43, 'x')}\r\n`;
  const sockets = await Promise.all(Array.from({ length: 60 }, connect));
  const refused = sockets.map((socket) => readStatuses(socket, 1));
  await whileLocked(app, 'LOCK TABLE api_token IN ACCESS EXCLUSIVE MODE', async (waiters) => {
    for (const [n, socket] of sockets.entries()) socket.write(ask('/quota/alice', show(n)));
    await waiters(8);
    expect((await send({ url: app.url }, '/tape_control/api/v1/quota/alice')).status).toBe(200);
  });
  expect(await Promise.all(refused)).toEqual(Array(60).fill([401]));
});
