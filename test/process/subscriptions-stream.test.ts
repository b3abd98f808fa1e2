/** Subscriptions under load, across lost connections, and when the gateway stops. */
import { once } from 'node:events';
import http from 'node:http';
import { expect, test } from 'vitest';
import { moveFiles } from '../../src/domain/catalogue/moves.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { startApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import {
  CHANGES,
  type Changes,
  drain,
  openClient,
  postOperation,
  readEvents,
  type Stream,
  subscribe,
  take,
  transports,
  waitForReaders,
} from '../support/streams.js';
import { transaction } from '../support/transaction.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const app = useApp();

const newestId = async () => Number(await app.ctx.events.newestId());

/** Adds files and returns their ids, in order. */
async function addPaths(paths: string[]): Promise<bigint[]> {
  await addFiles(
    app.ctx,
    paths.map((path) => ({ path })),
  );
  const { rows } = await app.ctx.db.pool.query<{ id: bigint }>(
    'SELECT id FROM tape_file WHERE path = ANY($1) ORDER BY array_position($1, path)',
    [paths],
  );
  return rows.map((row) => row.id);
}

const START = { from: 'ONTAPE', to: 'RESTORING' } as const;
const GIVE_UP = { from: 'RESTORING', to: 'ONTAPE' } as const;

async function move(ids: readonly bigint[], step: typeof START | typeof GIVE_UP): Promise<void> {
  await transaction(app.ctx.db.pool, (tx) => moveFiles(app.ctx, tx, ids, step));
}

const shown = (results: Changes[]) => results.map(({ stageChanges: { path, to } }) => `${path} ${to}`);

test('on a single connection, an operation that is cancelled or fails does not end the others', async () => {
  const [one = 0n, two = 0n] = await addPaths(['/single/1', '/single/2']);
  const before = app.ctx.events.readers;
  const client = openClient(app, true);
  const after = await newestId();
  const watch = (match: string) => subscribe<Changes>(client, { query: CHANGES, variables: { match, after } });
  const [first, second, both] = [watch('/single/1'), watch('/single/2'), watch('/single/')];
  const taken = Promise.all([take(second, 1), take(both, 2)]);
  const cancelled = first.next().catch(() => undefined);
  await waitForReaders(app, before + 3);
  first.close();
  await waitForReaders(app, before + 2);
  await cancelled;
  const unknown = subscribe(client, { query: CHANGES, variables: { requestId: 2_147_483_647 } });
  expect(await drain(unknown)).toMatchObject([
    { errors: [{ message: 'there is no request 2147483647, or you are not allowed to see it' }] },
  ]);
  await move([one, two], START);
  const [ofSecond, ofBoth] = await taken;
  expect(shown(ofSecond)).toEqual(['/single/2 RESTORING']);
  expect(shown(ofBoth)).toEqual(['/single/1 RESTORING', '/single/2 RESTORING']);
  const query = subscribe<{ tapeFile: object }>(client, { query: '{ tapeFile(path: "/single/1") { stage } }' });
  expect(await drain(query)).toEqual([{ data: { tapeFile: { stage: 'RESTORING' } } }]);
  client.dispose();
  await waitForReaders(app, before);
});

test('concurrent writers lose no event for a reader', async () => {
  const paths = Array.from({ length: 10 }, (_, n) => `/writers/${n}`);
  const ids = await addPaths(paths);
  const rounds = 6;
  const after = await newestId();
  const streams = transports.map(([, open]) =>
    open<Changes>(app, { query: CHANGES, variables: { match: '/writers/', after } }),
  );
  const reading = Promise.all(streams.map((stream) => take(stream, paths.length * rounds)));
  await Promise.all(
    ids.map(async (id) => {
      for (let round = 0; round < rounds; round++) {
        await transaction(app.ctx.db.pool, async (tx) => {
          await moveFiles(app.ctx, tx, [id], round % 2 === 0 ? START : GIVE_UP);
          // events are written before the commit, which each writer delays by a random time
          tx.beforeCommit('late', async () => void (await tx.query('SELECT pg_sleep(random() * 0.004)')));
        });
      }
    }),
  );
  const expected = Array.from({ length: rounds }, (_, n) => (n % 2 === 0 ? 'RESTORING' : 'ONTAPE'));
  for (const results of await reading) {
    const eventIds = results.map(({ stageChanges }) => Number(stageChanges.eventId));
    expect(eventIds).toEqual([...eventIds].sort((a, b) => a - b));
    for (const path of paths) {
      const stages = results.filter((result) => result.stageChanges.path === path).map((r) => r.stageChanges.to);
      expect({ path, stages }).toEqual({ path, stages: expected });
    }
  }
  for (const stream of streams) stream.close();
});

test('the changes continue exactly from the current stages during writes', async () => {
  const paths = ['/chain/1', '/chain/2', '/chain/3'];
  const ids = await addPaths(paths);
  let isOver = false;
  const writing = (async () => {
    for (let n = 0; !isOver; n++) await move(ids, n % 2 === 0 ? START : GIVE_UP);
  })();
  for (let n = 0; n < 4; n++) {
    for (const [, open] of transports) {
      const stream = open<Changes>(app, { query: CHANGES, variables: { match: '/chain/' } });
      const results = await take(stream, 12);
      stream.close();
      for (const path of paths) {
        const chain = results.map((result) => result.stageChanges).filter((change) => change.path === path);
        expect(chain.length).toBeGreaterThan(1);
        expect(chain.map(({ from }) => from)).toEqual([null, ...chain.slice(0, -1).map(({ to }) => to)]);
      }
    }
  }
  isOver = true;
  await writing;
});

test('a lost LISTEN connection loses no event', async () => {
  const [id = 0n] = await addPaths(['/listen/1']);
  const after = await newestId();
  const [, , [, open]] = transports as [unknown, unknown, (typeof transports)[0]];
  const stream = open<Changes>(app, { query: CHANGES, variables: { match: '/listen/', after } });
  const listeners = `FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tapegate events'`;
  for (const step of [START, GIVE_UP, START]) {
    const listening = await waitFor('the feed to listen', async () => {
      const { rows } = await app.ctx.db.pool.query<{ pid: number }>(`SELECT pid ${listeners}`);
      return rows[0]?.pid;
    });
    await app.ctx.db.pool.query('SELECT pg_terminate_backend($1)', [listening]);
    await move([id], step);
    expect(shown(await take(stream, 1))).toEqual([`/listen/1 ${step.to}`]);
  }
  stream.close();
});

test('readers that pause lose no event', async () => {
  // more than the socket buffers can take
  const padding = `${'x'.repeat(250)}/`.repeat(14);
  const paths = Array.from({ length: 1500 }, (_, n) => `/still/${padding}${n}`);
  const ids = await addPaths(paths);
  const before = app.ctx.events.readers;
  const after = await newestId();
  const readers = await Promise.all(
    ['/graphql', '/graphql/stream'].map(async (endpoint) => {
      const request = http.request(`${app.url}${endpoint}`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', Accept: 'text/event-stream' },
      });
      request.end(JSON.stringify({ query: CHANGES, variables: { match: '/still/', after } }));
      const [response] = (await once(request, 'response')) as [http.IncomingMessage];
      response.pause();
      return response;
    }),
  );
  const [, [, open]] = transports as [unknown, (typeof transports)[0]];
  const quick = open<Changes>(app, { query: CHANGES, variables: { match: `/${paths.length - 1}`, after } });
  await waitForReaders(app, before + readers.length + 1);
  await move(ids, START);
  await move(ids, GIVE_UP);
  await take(quick, 2); // once the last two events have arrived here, the other streams could have all events
  quick.close();
  const found = await Promise.all(
    readers.map(async (response) => {
      const results = await take(streamOf(response), 2 * paths.length);
      response.destroy();
      return results.map(({ stageChanges: { eventId, path, to } }) => `${eventId} ${path} ${to}`);
    }),
  );
  const { rows } = await app.ctx.db.pool.query<{ line: string }>(
    `SELECT e.number || ' ' || f.path || ' ' || e.to_stage AS line
     FROM numbered_event e JOIN tape_file f ON f.id = e.file_id WHERE e.number > $1 ORDER BY e.number`,
    [after],
  );
  const expected = rows.map((row) => row.line);
  expect(expected).toHaveLength(2 * paths.length);
  for (const lines of found) expect(lines.findIndex((line, n) => line !== expected[n])).toBe(-1);
  await waitForReaders(app, before);
});

function streamOf(response: http.IncomingMessage): Stream<Changes> {
  const headers = { 'content-type': String(response.headers['content-type']) };
  const events = readEvents<Changes>(Promise.resolve(new Response(response as unknown as ReadableStream, { headers })));
  return { next: () => events.next(), close: () => response.destroy() };
}

test('a gateway that stops breaks all streams off, and completes none', async () => {
  const other = await startApp();
  await addQuota(other.ctx, 'zoe', 1000n);
  await addFiles(other.ctx, [{ path: '/end/1' }]);
  const id = await createRequest(other.ctx, { quota: 'zoe', pattern: '/end/' });
  const streams = transports.flatMap(([, open]) => [
    open<unknown>(other, {
      query: 'subscription ($id: Int!) { requestProgress(requestId: $id) { state } }',
      variables: { id },
    }),
    open<unknown>(other, { query: CHANGES, variables: { match: '/end/' } }),
  ]);
  for (const stream of streams) await take(stream, 1);
  const ended = Promise.allSettled(streams.map(drain));
  await other.close();
  expect((await ended).map(({ status }) => status)).toEqual(streams.map(() => 'rejected'));
});

test('event ids beyond 2^53 are exact, and accepted as a literal and a string', async () => {
  const big = 9_007_199_254_740_993n; // 2^53 + 1, which no double represents
  const other = await startApp();
  await other.ctx.db.pool.query(`ALTER SEQUENCE event_id_seq RESTART WITH ${big}`);
  await addQuota(other.ctx, 'yan', 10_000n);
  await addFiles(other.ctx, [{ path: '/exact/1', stage: 'ONDISK' }]);
  const id = await createRequest(other.ctx, { quota: 'yan', pattern: '/exact/' });
  await askData(other, `mutation { updateRequest(input: { requestId: ${id}, label: "x" }) { errors { message } } }`);
  await askData(other, `mutation { cancelRequest(input: { requestId: ${id} }) { errors { message } } }`);
  const read = async (query: string, variables = {}) => {
    const events = postOperation<{ requestProgress: { eventId: string } }>(other, { query, variables });
    return (await drain(events)).map(({ data }) => data?.requestProgress.eventId);
  };
  const [first, last] = [String(big + 1n), String(big + 2n)];
  const literal = `subscription { requestProgress(requestId: ${id}, after: ${big}) { eventId } }`;
  expect(await read(literal)).toEqual([first, last]);
  const query = `subscription ($after: BigInt) { requestProgress(requestId: ${id}, after: $after) { eventId } }`;
  expect(await read(query, { after: first })).toEqual([last]);
  expect(await read(query)).toEqual([last]);
  await other.close();
});
