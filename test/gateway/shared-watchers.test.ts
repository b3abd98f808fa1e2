/** Many who watch the same: what they have in common is done once, what they must not share is not, and how slow one is concerns nobody else. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { sql } from '../../src/database/sql.js';
import { recordProgress } from '../../src/event-writes.js';
import { setMember } from '../../src/operations/access/members.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import type { Gateway } from '../support/http.js';
import { recordStatements } from '../support/statements.js';
import {
  drain,
  PROGRESS,
  type Progress,
  postOperation,
  readEvents,
  type Stream,
  take,
  waitForReaders,
} from '../support/streams.js';
import { transaction } from '../support/transaction.js';
import { waitFor, whenClosed } from '../support/wait.js';

let app: TestApp;
let id: number;
beforeAll(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'alice', 1_000_000n);
  await addQuota(app.ctx, 'bob', 1_000_000n);
});
beforeEach(async () => {
  await waitForReaders(app, 0);
  id = await createRequest(app.ctx, { quota: 'alice', files: ['/not/yet'] });
  await app.ctx.db.pool.query(`UPDATE request SET state = 'RESTORING', files_total = 1000000 WHERE id = ${id}`);
});
afterAll(() => app.close());

/** One more file is there. @returns how many are */
async function step(): Promise<number> {
  return await transaction(app.ctx.db.pool, async (tx) => {
    const [row] = await tx.query<{ count: number }>(
      sql`UPDATE request SET files_on_disk = files_on_disk + 1 WHERE id = ${id} RETURNING files_on_disk AS count`,
    );
    recordProgress(app.ctx, tx, [id]);
    return row?.count ?? 0;
  });
}

const watch = (gateway: Gateway, after?: string) =>
  postOperation<Progress>(gateway, { query: PROGRESS, variables: { id, ...(after && { after }) } });

async function counts(stream: Stream<Progress>, count: number): Promise<number[]> {
  return (await take(stream, count)).map(({ requestProgress }) => requestProgress.filesOnDisk);
}

/** Those who go on just now are one for the feed of events, whatever they have in common. */
async function closeAll(streams: readonly Stream<unknown>[]): Promise<void> {
  for (const stream of streams) stream.close();
  await waitForReaders(app, 0);
}

test('who watches the same with the same rights is told by one execution, whenever and from wherever it has come', async () => {
  const first = watch(app);
  const [start] = await take(first, 1);
  const others = [watch(app), watch(app)];
  for (const other of others) expect(await counts(other, 1)).toEqual([0]);
  await waitForReaders(app, 1);
  const returning = watch(app, start?.requestProgress.eventId);
  await waitFor('both to have come', async () => app.ctx.events.readers <= 2);
  for (const _ of [1, 2]) await step();
  const late = watch(app);
  expect(await counts(late, 1)).toEqual([2]);
  for (const each of [first, ...others, returning]) expect(await counts(each, 2)).toEqual([1, 2]);
  await waitForReaders(app, 1);
  await step();
  const all = [first, ...others, returning, late];
  const told = await Promise.all(all.map(async (each) => (await take(each, 1))[0]));
  expect(new Set(told.map((message) => JSON.stringify(message))).size).toBe(1);
  await closeAll(all);
});

test('who comes back is told all that it has missed, in order, while others go on', async () => {
  const first = watch(app);
  const [start] = await take(first, 1);
  for (let n = 1; n <= 30; n++) await step();
  const after = start?.requestProgress.eventId;
  const returning = Array.from({ length: 5 }, () => watch(app, after));
  await step();
  const expected = Array.from({ length: 31 }, (_, n) => n + 1);
  for (const each of [first, ...returning]) expect(await counts(each, 31)).toEqual(expected);
  await waitForReaders(app, 1);
  await closeAll([first, ...returning]);
});

test('a place that is none is refused also where others watch already', async () => {
  const first = watch(app);
  const [start] = await take(first, 1);
  const seen = start?.requestProgress.eventId;
  for (const after of [[seen], '', `${seen}.0`, true]) {
    const [refused] = await drain(postOperation<Progress>(app, { query: PROGRESS, variables: { id, after } }));
    expect(refused?.errors?.[0]?.message).toMatch(/"\$after"/);
  }
  await closeAll([first]);
});

test('callers of different rights never share, those of the same do, and who may not see a request is told so while others watch it', async () => {
  await setMember(app.ctx, { quota: 'alice', kind: 'USER', name: 'carol', isManager: false });
  const token = async (name: string, role: 'USER' | 'VIEWER' | 'OPERATOR' | 'SERVICE', more = {}) =>
    (await createToken(app.ctx, { name, role, ...more })).secret;
  const kinds: Record<string, string[]> = {
    open: [''],
    'the user': [await token('alice', 'USER'), await token('alice', 'USER')],
    'the user, reading only': [await token('alice', 'USER', { isReadOnly: true })],
    'a member': [await token('carol', 'USER')],
    'a service': [await token('portal', 'SERVICE', { quotas: ['alice'] })],
    viewers: [await token('viewer', 'VIEWER'), await token('watcher', 'VIEWER')],
    operators: [await token('operator-1', 'OPERATOR'), await token('operator-2', 'OPERATOR')],
  };
  const as = (secret: string | undefined): Gateway => ({ url: app.url, ...(secret && { token: secret }) });
  const names = Object.keys(kinds);
  for (const [n, name] of names.entries()) {
    for (const other of names.slice(n)) {
      const [one, two] = [kinds[name]?.[0], kinds[other]?.at(-1)];
      const pair = [watch(as(one)), watch(as(two))];
      for (const each of pair) await take(each, 1);
      const readers = other === name ? 1 : 2;
      await waitForReaders(app, readers);
      const count = await step();
      for (const each of pair) expect(await counts(each, 1)).toEqual([count]);
      expect([name, other, app.ctx.events.readers]).toEqual([name, other, readers]);
      await closeAll(pair);
    }
  }
  const seen = watch(as(kinds['the user']?.[0]));
  await take(seen, 1);
  const stranger = watch(as(await token('bob', 'USER')));
  const message = `there is no request with id ${id}`;
  expect((await stranger.next()).value).toMatchObject({ errors: [{ message }] });
  await closeAll([seen]);
});

test('documents, operations and variables that differ are told apart', async () => {
  const query = `subscription A($id: Int!, $with: Boolean!) { requestProgress(id: $id) { filesOnDisk state @include(if: $with) } }
    subscription B($id: Int!) { requestProgress(id: $id) { filesTotal } }`;
  const open = (operationName: string, variables: object) =>
    postOperation(app, { query, operationName, variables: { id, ...variables } } as { query: string });
  const streams = [open('A', { with: true }), open('A', { with: false }), open('B', {})];
  const expected = [{ filesOnDisk: 0, state: 'RESTORING' }, { filesOnDisk: 0 }, { filesTotal: 1_000_000 }];
  for (const [n, each] of streams.entries()) expect(await take(each, 1)).toEqual([{ requestProgress: expected[n] }]);
  await waitForReaders(app, 3);
  await closeAll(streams);
});

const target = () =>
  `/graphql?query=${encodeURIComponent(`subscription { requestProgress(id: ${id}) { filesOnDisk label: state } }`)}`;

/** What a raw connection has brought so far. */
async function openRaw(head: string): Promise<{ socket: Socket; text: () => string }> {
  const socket = connect(Number(new URL(app.url).port), '127.0.0.1');
  let text = '';
  socket.setEncoding('utf8').on('data', (part) => {
    text += part;
  });
  await once(socket, 'connect');
  socket.write(head);
  return { socket, text: () => text };
}

const headOf = (version: string) =>
  `GET ${target()} HTTP/${version}\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n`;

test('a reader that stands still is told the latest state when it reads again, and nobody waits for it', async () => {
  const label = 'x'.repeat(64);
  const wide = Array.from({ length: 180 }, (_, n) => `${label}${n}: state`).join(' ');
  const query = `subscription { requestProgress(id: ${id}) { filesOnDisk ${wide} } }`;
  const slow = connect({ port: Number(new URL(app.url).port), host: '127.0.0.1' });
  await once(slow, 'connect');
  const body = JSON.stringify({ query });
  slow.write(
    `POST /graphql HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
  await waitForReaders(app, 1);
  slow.pause();
  const quick = postOperation<Progress>(app, { query });
  await take(quick, 1);
  const steps = 400; // of some 17 kB, more than the buffers of a connection take
  for (let n = 1; n <= steps; n++) {
    await step();
    expect(await counts(quick, 1)).toEqual([n]);
  }
  let text = '';
  slow.setEncoding('utf8').on('data', (part) => {
    text += part;
  });
  slow.resume();
  await waitFor('the latest state', async () => text.includes(`"filesOnDisk":${steps},`));
  const seen = [...text.matchAll(/"filesOnDisk":(\d+),/g)].map(([, count]) => Number(count));
  expect(seen).toEqual([...new Set(seen)].sort((a, b) => a - b));
  expect(seen.length).toBeLessThan(steps);
  slow.destroy();
  await closeAll([quick]);
});

test('behind a stream nothing is answered, and nothing but the stream is written to its connection', async () => {
  const { socket, text } = await openRaw(headOf('1.1'));
  await waitFor('the present state', async () => text().includes('"filesOnDisk":0'));
  socket.write('GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await step();
  await waitFor('the next state', async () => text().includes('"filesOnDisk":1'));
  expect(text().match(/HTTP\/1.1/g)).toHaveLength(1);
  socket.write('this is no HTTP\r\n\r\n');
  await whenClosed(socket);
  expect(text().match(/HTTP\/1.1/g)).toHaveLength(1);
  await waitForReaders(app, 0);
});

test('a stream has the headers that all answers have, and is whole for a client of HTTP/1.0 as well', async () => {
  const stream = await fetch(`${app.url}${target()}`, { headers: { Accept: 'text/event-stream' } });
  const other = await fetch(`${app.url}/graphql?query={__typename}`);
  await other.text();
  const own = ['content-type', 'content-length', 'transfer-encoding', 'connection', 'keep-alive', 'date', 'vary'];
  expect(stream.headers.get('cache-control')).toBe('no-cache');
  expect(stream.headers.get('x-request-id')).toMatch(/^[\w-]{36}$/);
  own.push('cache-control', 'x-request-id');
  for (const [name, value] of other.headers) {
    if (!own.includes(name) && !name.startsWith('ratelimit'))
      expect([name, stream.headers.get(name)]).toEqual([name, value]);
  }
  const old = await openRaw(headOf('1.0'));
  await waitFor('the present state', async () => old.text().includes('"filesOnDisk":0'));
  expect(old.text()).not.toMatch(/transfer-encoding/i);
  expect(old.text()).toMatch(/\r\n\r\n:\n\nevent: next\nid: \d+\ndata: \{"data"/);
  await app.ctx.db.pool.query(`UPDATE request SET state = 'COMPLETED' WHERE id = ${id}`);
  await step();
  const results: unknown[] = [];
  for await (const result of readEvents(Promise.resolve(stream))) results.push(result);
  expect(results).toHaveLength(2);
  await whenClosed(old.socket);
  expect(old.text()).toMatch(/event: complete\ndata:\n\n$/);
});

test('who comes with many lets others in before the last of them, and all together cost less than a statement each', async () => {
  const many = 200;
  const order: string[] = [];
  const port = Number(new URL(app.url).port);
  const open = async (localAddress: string) => {
    const socket = connect({ port, host: '127.0.0.1', localAddress });
    socket.write('GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await once(socket, 'data'); // it has been let in, and what it says now is there at once
    socket.once('data', () => order.push(localAddress));
    return socket;
  };
  const sockets = await Promise.all([...Array.from({ length: many }, () => open('127.0.0.1')), open('127.0.0.2')]);
  const statements = await recordStatements(
    async () => {
      for (const socket of sockets) socket.write(headOf('1.1'));
      await waitFor('all to be in', async () => order.length === many + 1);
    },
    { isFeedToo: true },
  );
  expect(order.indexOf('127.0.0.2')).toBeLessThan(many / 2);
  expect(statements.length).toBeLessThan(many);
  await step();
  await waitForReaders(app, 1);
  for (const socket of sockets) socket.destroy();
  await waitForReaders(app, 0);
});
