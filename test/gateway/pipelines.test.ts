/** What a client sends ahead, and what nobody has shown before, keeps nobody else waiting. */
import { once } from 'node:events';
import net from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { send } from '../support/http.js';
import { whileLocked } from '../support/locks.js';
import { get } from '../support/rest.js';
import { dumpTables } from '../support/tables.js';
import { waitFor, whenClosed } from '../support/wait.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp({ limits: { callerRequests: 3 } });
  await addQuota(app.ctx, 'alice', 1_000_000n);
});
afterAll(() => app.close());

const ask = (path: string, header = '') =>
  `GET /tape_control/api/v1${path} HTTP/1.1\r\nHost: 127.0.0.1\r\n${header}\r\n`;

async function connect(): Promise<net.Socket> {
  const socket = net.connect(Number(new URL(app.url).port), '127.0.0.1');
  socket.on('error', () => {});
  await once(socket, 'connect');
  return socket;
}

/** The statuses of what comes on a connection, until there are so many or it ends. */
async function readStatuses(socket: net.Socket, count: number): Promise<number[]> {
  let text = '';
  const found = () => [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status));
  for await (const chunk of socket) {
    text += chunk;
    if (found().length >= count) break;
  }
  return found();
}

test('requests that are sent ahead on one connection are answered in turn, one at a time', async () => {
  const socket = await connect();
  socket.write(ask('/quota/alice').repeat(40));
  expect(await readStatuses(socket, 40)).toEqual(Array(40).fill(200));
});

test('what is sent ahead comes in order, bodies and an answer that ends the connection included', async () => {
  const body = JSON.stringify([{ quota: 'alice', files: '/none' }]);
  const post = `POST /tape_control/api/v1/requests HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const socket = await connect();
  socket.write(ask('/quota/nobody') + post + ask('/requests/1') + ask('/requests', 'Connection: close\r\n'));
  expect(await readStatuses(socket, 5)).toEqual([404, 200, 200, 200]);
});

test.each([
  ['an import that is refused', 'PUT /import HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\r\npath\n'],
  ['what asks for it', ask('/quota/alice', 'Connection: close\r\n')],
])('what is sent behind %s, which ends the connection, is not begun', async (_name, first) => {
  const wish = JSON.stringify({ quota: 'alice', files: [`/behind/${first.length}`] });
  const watch = JSON.stringify({ query: 'subscription { stageChanges { path } }' });
  const post = (path: string, body: string, header = '') =>
    `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n${header}Content-Length: ${body.length}\r\n\r\n${body}`;
  const behind = [
    post('/tape_control/api/v1/requests', wish),
    post('/graphql', watch, 'Accept: text/event-stream\r\n'),
    ask('/requests'),
  ];
  const before = await dumpTables(app.ctx);
  for (const next of [...behind, ...behind]) {
    const socket = await connect();
    socket.write(first + next);
    expect(await readStatuses(socket, 2)).toHaveLength(1);
  }
  await waitFor('all turns of the caller to be free', async () => {
    const answers = await Promise.all(Array.from({ length: 3 }, () => get(app, '/quota/alice')));
    return answers.every(({ status }) => status === 200);
  });
  expect([await dumpTables(app.ctx), app.ctx.events.readers]).toEqual([before, 0]);
});

test('a connection on which very many requests wait is ended, and others are served', async () => {
  const socket = await connect();
  const closed = whenClosed(socket);
  socket.resume();
  socket.write(ask('/quota/alice').repeat(500));
  await closed;
  expect((await get(app, '/quota/alice')).status).toBe(200);
});

test('tokens that nobody knows leave the database to who is known', async () => {
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
