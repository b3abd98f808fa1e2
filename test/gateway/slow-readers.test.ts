/** Clients that read long lists slowly or not at all, and their effect on other callers. */
import { once } from 'node:events';
import http from 'node:http';
import { text } from 'node:stream/consumers';
import { afterEach, expect, test } from 'vitest';
import { startBeside, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { ask, askData, sendGraphql } from '../support/graphql.js';
import { whileLocked } from '../support/locks.js';
import { errorBody, get, makeRequest, read } from '../support/rest.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

/** Number of files in the catalogue. A list of all files has 8 MB, more than the buffers of a connection. */
const FILES = 4000;

const open: http.IncomingMessage[] = [];

let addresses = 9;

/** Starts to read the list of all files, and stops reading. Uses a new client address by default. */
async function beginList({ url }: TestApp, localAddress = `127.0.0.${++addresses}`): Promise<http.IncomingMessage> {
  const request = http.get(`${url}/tape_control/api/v1/files`, { agent: false, localAddress });
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  response.pause();
  response.on('error', () => {}); // the gateway drops the connection
  open.push(response);
  return response;
}

const app = useApp({ config: { readerSeconds: 3600 }, database: { longLists: 8, longListWaitMs: 100 } }, async () => {
  await addQuota(app.ctx, 'alice', 1_000_000n);
  await app.ctx.db.pool.query(
    `INSERT INTO tape_file (path, size, stage) SELECT '/long/' || repeat('x', 1900) || n, 1, 'ONTAPE'::"Stage" FROM generate_series(1, $1::int) n
     UNION ALL SELECT '/short/' || n, 1, 'ONTAPE' FROM generate_series(1, 3) n`,
    [FILES],
  );
});

/** Waits until no connection for long lists is in use. */
const waitForIdle = ({ ctx }: TestApp) =>
  waitFor('the lists to end', async () => ctx.db.streamPool.totalCount === ctx.db.streamPool.idleCount);

afterEach(async () => {
  for (const response of open.splice(0)) response.destroy();
  await waitForIdle(app);
});

test('while readers of long lists are stalled, short lists are served, and one more long list returns 503 until they are gone', async () => {
  const id = await makeRequest(app, { quota: 'alice', patterns: '/short/' });
  const { max = 0 } = app.ctx.db.streamPool.options;
  await Promise.all(Array.from({ length: max }, () => beginList(app)));
  const short = await Promise.all([
    read(app, `/requests/${id}`),
    read(app, '/requests'),
    read(app, '/quota/alice'),
    read(app, '/files?match=/short/'),
    read(app, '/files?match=/none/'),
  ]);
  expect(short.map(({ files }) => files)).toEqual([
    ['/short/1', '/short/2', '/short/3'],
    undefined,
    undefined,
    expect.objectContaining({ length: 3 }),
    [],
  ]);
  expect(short[3]?.count).toBe(3);
  const query = '{ estimateRequest(input: { quota: "alice", pattern: "/short/" }) { estimate { fileCount } } }';
  expect(await askData(app, query)).toEqual({ estimateRequest: { estimate: { fileCount: 3 } } });
  const refused = await get(app, '/files');
  expect([refused.status, refused.headers.get('retry-after'), refused.body]).toEqual([
    503,
    expect.stringMatching(/^\d+$/),
    errorBody('too many concurrent long lists: try again later'),
  ]);
  for (const response of open) response.destroy();
  await waitFor('a list to be served', async () => (await beginList(app)).statusCode === 200);
});

test('a caller who stalls long lists gets no more than four, and others still get theirs', async () => {
  const lists = await Promise.all(Array.from({ length: 6 }, () => beginList(app, '127.0.0.1')));
  expect(lists.map(({ statusCode }) => statusCode).sort()).toEqual([...Array(4).fill(200), ...Array(2).fill(429)]);
  const [refused] = lists.filter(({ statusCode }) => statusCode === 429);
  const message = 'you already have 4 long lists in progress: try again later';
  expect(refused?.headers['retry-after']).toBe('5');
  expect(JSON.parse(await text(refused as http.IncomingMessage))).toEqual(errorBody(message));
  const { errors } = await whileLocked(app, 'LOCK TABLE request IN ACCESS EXCLUSIVE MODE', () =>
    ask({ url: app.url }, '{ requests { totalCount } }'),
  );
  expect(errors).toMatchObject([{ message, extensions: { code: 'TOO_MANY_REQUESTS', retryAfterSeconds: 5 } }]);
  expect((await beginList(app)).statusCode).toBe(200);
});

test('a client that reads nothing is disconnected, and a slow one gets the whole list, however long it takes', async () => {
  const strict = await startBeside(app, { config: { readerSeconds: 2 } });
  try {
    const still = await beginList(strict);
    const slow = await beginList(strict);
    let whole = '';
    slow.on('readable', () => {});
    while (!slow.readableEnded) {
      const bytes = slow.read(Math.min(slow.readableLength, 256 * 1024)) as Buffer | null;
      whole += bytes?.toString() ?? '';
      if (slow.errored) throw slow.errored;
      await new Promise((resolve) => setTimeout(resolve, 80)); // in total longer than a client may stop reading
    }
    expect((JSON.parse(whole) as [{ files: unknown[] }])[0].files).toHaveLength(FILES + 3);
    await waitForIdle(strict); // the gateway has disconnected the client that reads nothing
    still.resume();
    await waitFor('it to see that', async () => still.destroyed);
    expect(still.complete).toBe(false);
  } finally {
    await strict.close();
  }
});

/** Queries that search for one file. */
const SEARCHES = [
  '{ estimateRequest(input: { quota: "alice", pattern: "/short/1" }) { estimate { fileCount } } }',
  '{ tapeFiles(match: "/short/1") { totalCount } }',
  '{ tapeFiles(match: "/short/1") { edges { node { path } } } }',
];

test('a slow list, estimate, count or page leaves connections for short calls, and its query ends when its caller disconnects', async () => {
  const small = await startBeside(app, { database: { poolSize: 3 } });
  const countBlocked = async () => {
    const blocked = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
    return (await small.ctx.db.pool.query(blocked)).rowCount;
  };
  const lock = 'LOCK TABLE tape_file IN ACCESS EXCLUSIVE MODE';
  try {
    let looking = -1; // the first acquired connection holds the lock
    small.ctx.db.streamPool.on('acquire', () => looking++);
    const { answers, left, list } = await whileLocked(small, lock, async () => {
      const leaving = new AbortController();
      const answers = SEARCHES.map((query) => ask(small, query));
      const list = get(small, '/files?match=/none/');
      const body = { query: '{ tapeFiles(match: "/left/") { totalCount } }' };
      const left = sendGraphql(small, body, { signal: leaving.signal }).catch((error: unknown) => error);
      await waitFor('all searches to be slow', async () => looking >= 4);
      expect((await get(small, '/quota/alice')).status).toBe(200);
      await waitFor('all searches to wait for the lock', async () => (await countBlocked()) === 5);
      leaving.abort();
      await waitFor('the query of the disconnected caller to end', async () => (await countBlocked()) === 4);
      return { answers, left, list };
    });
    expect(await left).toBeInstanceOf(Error);
    expect((await list).text).toBe('[{"count":0,"files":[]}]');
    expect((await Promise.all(answers)).map(({ data }) => data)).toEqual([
      { estimateRequest: { estimate: { fileCount: 1 } } },
      { tapeFiles: { totalCount: 1 } },
      { tapeFiles: { edges: [{ node: { path: '/short/1' } }] } },
    ]);
  } finally {
    await small.close();
  }
});
