/** Many clients with the same subscription: one execution serves all of them, each sees only what it may, and none waits for a slow one. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { beforeEach, expect, test } from 'vitest';
import { sql } from '../../src/database/sql.js';
import { recordProgress } from '../../src/event-writes.js';
import { setMember } from '../../src/operations/access/members.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { addQuota } from '../support/factories.js';
import type { Gateway } from '../support/http.js';
import { PROGRESS, type Progress, postOperation, type Stream, take, waitForReaders } from '../support/streams.js';
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
  await app.ctx.db.pool.query(`UPDATE request SET state = 'RESTORING', files_total = 1000000 WHERE id = ${id}`);
});

/** Puts one more file on disk. @returns how many there are */
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

test('clients with the same rights share one execution, whenever they come, and a client that reconnects misses no event', async () => {
  const first = watch(app);
  const [start] = await take(first, 1);
  const others = [watch(app), watch(app)];
  for (const other of others) expect(await counts(other, 1)).toEqual([0]);
  await waitForReaders(app, 1);
  for (let n = 1; n <= 30; n++) await step();
  const returning = watch(app, start?.requestProgress.eventId);
  await step();
  const expected = Array.from({ length: 31 }, (_, n) => n + 1);
  for (const each of [first, ...others, returning]) expect(await counts(each, 31)).toEqual(expected);
  const late = watch(app);
  expect(await counts(late, 1)).toEqual([31]);
  await waitForReaders(app, 1);
  await step();
  const all = [first, ...others, returning, late];
  const last = await Promise.all(all.map(async (each) => (await take(each, 1))[0]));
  expect(new Set(last.map((message) => JSON.stringify(message))).size).toBe(1);
  await closeAll(all);
});

test('only callers with the same rights share an execution, and a caller without access is refused while others watch', async () => {
  await setMember(app.ctx, { quota: 'alice', kind: 'USER', name: 'carol', isManager: false });
  const tokenOf = async (name: string, role: 'USER' | 'VIEWER' | 'OPERATOR' | 'SERVICE', more = {}) =>
    (await createToken(app.ctx, { name, role, ...more })).secret;
  const as = (secret: string): Gateway => ({ url: app.url, ...(secret && { token: secret }) });
  const callers = [
    '',
    await tokenOf('alice', 'USER'),
    await tokenOf('alice', 'USER', { isReadOnly: true }),
    await tokenOf('carol', 'USER'),
    await tokenOf('portal', 'SERVICE', { quotas: ['alice'] }),
    await tokenOf('viewer', 'VIEWER'),
    await tokenOf('operator-1', 'OPERATOR'),
  ];
  const distinct = callers.map((secret) => watch(as(secret)));
  for (const each of distinct) await take(each, 1);
  await waitForReaders(app, callers.length);
  const same = [
    await tokenOf('alice', 'USER'),
    await tokenOf('watcher', 'VIEWER'),
    await tokenOf('operator-2', 'OPERATOR'),
  ].map((secret) => watch(as(secret)));
  for (const each of same) await take(each, 1);
  await waitForReaders(app, callers.length);
  const count = await step();
  for (const each of [...distinct, ...same]) expect(await counts(each, 1)).toEqual([count]);
  const stranger = watch(as(await tokenOf('bob', 'USER')));
  const message = `there is no request with id ${id}`;
  expect((await stranger.next()).value).toMatchObject({ errors: [{ message }] });
  await closeAll([...distinct, ...same]);
});

test('subscriptions with other documents, operation names or variables share nothing', async () => {
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

test('a client that stops reading gets the latest state when it reads again, and no other client waits for it', async () => {
  const label = 'x'.repeat(64);
  const wide = Array.from({ length: 180 }, (_, n) => `${label}${n}: state`).join(' ');
  const query = `subscription { requestProgress(id: ${id}) { filesOnDisk ${wide} } }`;
  const body = JSON.stringify({ query });
  const head =
    'POST /graphql HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nContent-Type: application/json';
  const slow = connect(Number(new URL(app.url).port), '127.0.0.1');
  let text = '';
  slow.setEncoding('utf8').on('data', (part) => {
    text += part;
  });
  await once(slow, 'connect');
  slow.write(`${head}\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  await waitForReaders(app, 1);
  slow.pause();
  const quick = postOperation<Progress>(app, { query });
  await take(quick, 1);
  const steps = 400; // of 17 kB each, more than the buffers of a connection
  for (let n = 1; n <= steps; n++) {
    await step();
    expect(await counts(quick, 1)).toEqual([n]);
  }
  slow.resume();
  await waitFor('the latest state', async () => text.includes(`"filesOnDisk":${steps},`));
  const seen = [...text.matchAll(/"filesOnDisk":(\d+),/g)].map(([, count]) => Number(count));
  expect(seen).toEqual([...new Set(seen)].sort((a, b) => a - b));
  expect(seen.length).toBeLessThan(steps);
  slow.destroy();
  await closeAll([quick]);
});
