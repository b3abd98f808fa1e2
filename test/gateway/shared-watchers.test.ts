/**
 * Many clients with the same subscription share reads. Each client sees only permitted events, and no client waits for
 * a slow client.
 */
import { once } from 'node:events';
import { connect } from 'node:net';
import { beforeEach, expect, test } from 'vitest';
import { sql } from '../../src/db/sql.js';
import { setQuotaMember } from '../../src/domain/access/members.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { recordProgress } from '../../src/events/event-writes.js';
import { startBeside } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import type { Gateway } from '../support/http.js';
import { recordStatements } from '../support/statements.js';
import {
  drain,
  PROGRESS,
  type Progress,
  postOperation,
  type Stream,
  take,
  waitForReaders,
} from '../support/streams.js';
import { transaction } from '../support/transaction.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

let id: number;
const app = useApp({}, async () => {
  for (const user of ['alice', 'bob']) await addQuota(app.ctx, user, 1_000_000n);
});
beforeEach(async () => {
  await waitForReaders(app, 0);
  id = await createRequest(app.ctx, { quota: 'alice', files: ['/not/yet'] });
  await app.ctx.db.pool.query(
    `UPDATE request SET state = 'RESTORING', files_total = 1000000, tapestore_request_start = clock_timestamp() AT TIME ZONE 'utc' WHERE id = ${id}`,
  );
});

/** Marks one more file of the request as on disk. @returns the number of files on disk */
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

async function closeAll(streams: readonly Stream<unknown>[]): Promise<void> {
  for (const stream of streams) stream.close();
  await waitForReaders(app, 0);
}

test('clients with the same subscription get the same events, whenever they come, and a client that reconnects misses none', async () => {
  const first = watch(app);
  const [start] = await take(first, 1);
  const others = [watch(app), watch(app)];
  for (const other of others) expect(await counts(other, 1)).toEqual([0]);
  for (let n = 1; n <= 30; n++) await step();
  const returning = watch(app, start?.requestProgress.eventId);
  await step();
  const expected = Array.from({ length: 31 }, (_, n) => n + 1);
  for (const each of [first, ...others, returning]) expect(await counts(each, 31)).toEqual(expected);
  const late = watch(app);
  expect(await counts(late, 1)).toEqual([31]);
  await step();
  const all = [first, ...others, returning, late];
  const last = await Promise.all(all.map(async (each) => (await take(each, 1))[0]));
  expect(new Set(last.map((message) => JSON.stringify(message))).size).toBe(1);
  await closeAll(all);
});

const WATCHERS = 40;

/** Opens many streams and runs `work`. @returns the number of statements that contain `part` */
async function countReads(part: string, work: (streams: Stream<Progress>[]) => Promise<unknown>): Promise<number> {
  const streams = Array.from({ length: WATCHERS }, () => watch(app));
  await Promise.all(streams.map((stream) => take(stream, 1)));
  await waitForReaders(app, WATCHERS);
  const statements = await recordStatements(() => work(streams), { isFeedToo: true });
  await closeAll(streams);
  return statements.filter(({ text }) => text.includes(part)).length;
}

test('clients of one request share the reads after a large batch of events of others', async () => {
  const reads = await countReads('WITH e AS MATERIALIZED', async (streams) => {
    await app.ctx.db.pool.query(
      `INSERT INTO event (at, request_ids, request_id) SELECT now() AT TIME ZONE 'utc', '{}', 0 FROM generate_series(1, 9000)`,
    );
    const count = await step();
    for (const each of streams) expect(await counts(each, 1)).toEqual([count]);
  });
  expect(reads).toBeGreaterThan(0);
  expect(reads).toBeLessThan(WATCHERS / 2);
});

test('clients of one request share the read of its final state', async () => {
  const reads = await countReads('tapestore_request_start AS start', async (streams) => {
    await transaction(app.ctx.db.pool, async (tx) => {
      await tx.query(sql`UPDATE request SET state = 'COMPLETED' WHERE id = ${id}`);
      recordProgress(app.ctx, tx, [id]);
    });
    for (const each of streams)
      expect(await drain(each)).toMatchObject([{ data: { requestProgress: { state: 'COMPLETED' } } }]);
  });
  expect(reads).toBeGreaterThan(0);
  expect(reads).toBeLessThan(WATCHERS / 2);
});

test('a caller shares no read with callers of other rights', async () => {
  await setQuotaMember(app.ctx, { quota: 'alice', kind: 'USER', name: 'carol', isManager: false });
  const tokenOf = async (name: string, role: 'USER' | 'VIEWER' | 'OPERATOR' | 'SERVICE', more = {}) =>
    (await createToken(app.ctx, { name, role, ...more })).secret;
  const as = (secret: string): Gateway => ({ url: app.url, ...(secret && { token: secret }) });
  const tokens = [
    '',
    await tokenOf('alice', 'USER'),
    await tokenOf('alice', 'USER', { isReadOnly: true }),
    await tokenOf('carol', 'USER'),
    await tokenOf('portal', 'SERVICE', { quotas: ['alice'] }),
    await tokenOf('viewer', 'VIEWER'),
    await tokenOf('operator-1', 'OPERATOR'),
  ];
  const stranger = await tokenOf('bob', 'USER');
  const message = `there is no request ${id}, or you are not allowed to see it`;
  // open all streams at once, so that they could share a read
  const streams = tokens.flatMap((secret) => [watch(as(secret)), watch(as(secret))]);
  const strangers = tokens.map(() => watch(as(stranger)));
  for (const each of strangers) expect((await each.next()).value).toMatchObject({ errors: [{ message }] });
  for (const each of streams) await take(each, 1);
  const count = await step();
  for (const each of streams) expect(await counts(each, 1)).toEqual([count]);
  await closeAll(streams);
});

/** Subscribes to events of 17 kB, and stops reading once the stream has begun. */
async function watchAndStop(gateway: Gateway) {
  const label = 'x'.repeat(64);
  const wide = Array.from({ length: 180 }, (_, n) => `${label}${n}: state`).join(' ');
  const query = `subscription { requestProgress(requestId: ${id}) { filesOnDisk ${wide} } }`;
  const body = JSON.stringify({ query });
  const head =
    'POST /graphql HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nContent-Type: application/json';
  const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1');
  const received = { text: '' };
  socket.setEncoding('utf8').on('data', (part) => {
    received.text += part;
  });
  await once(socket, 'connect');
  socket.write(`${head}\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  await waitFor('the stream to begin', async () => received.text.includes('event: next'));
  socket.pause();
  return { socket, received, query };
}

/** Number of steps whose events exceed the buffers of a connection. */
const STEPS = 400;

test('a client that stops reading gets every state when it reads again, and no other client waits for it', async () => {
  const { socket, received, query } = await watchAndStop(app);
  const quick = postOperation<Progress>(app, { query });
  await take(quick, 1);
  for (let n = 1; n <= STEPS; n++) {
    await step();
    expect(await counts(quick, 1)).toEqual([n]);
  }
  socket.resume();
  await waitFor('the latest state', async () => received.text.includes(`"filesOnDisk":${STEPS},`));
  const seen = [...received.text.matchAll(/"filesOnDisk":(\d+),/g)].map(([, count]) => Number(count));
  expect(seen).toEqual(Array.from({ length: STEPS + 1 }, (_, n) => n));
  socket.destroy();
  await closeAll([quick]);
});

test('a client of a stream that reads nothing for `readerSeconds` is disconnected', async () => {
  const strict = await startBeside(app, { config: { readerSeconds: 1 } });
  try {
    const { socket } = await watchAndStop(strict);
    for (let n = 1; n <= STEPS; n++) await step();
    await waitForReaders(strict, 0);
    socket.on('error', () => {}).resume();
    await waitFor('it to see that', async () => socket.closed);
  } finally {
    await strict.close();
  }
});
