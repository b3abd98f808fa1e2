/** Readers of long lists that are slow, or do not read at all, and everybody else. */
import { once } from 'node:events';
import http from 'node:http';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { ADVISORY_SPACE, advisoryKeys } from '../../src/database/locks.js';
import { startApp, startBeside, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { ask, askData, sendGraphql } from '../support/graphql.js';
import { whileLocked } from '../support/locks.js';
import { call, errorBody, get, makeRequest, post, put, read } from '../support/rest.js';
import { waitFor } from '../support/wait.js';

/** A list of 8 MB is more than the buffers of a connection take. */
const FILES = 4000;

const open: http.IncomingMessage[] = [];

let addresses = 9;

/** Begins to read the list of all files, from an address of its own unless one is given, and stands still. */
async function beginList({ url }: TestApp, localAddress = `127.0.0.${++addresses}`): Promise<http.IncomingMessage> {
  const request = http.get(`${url}/tape_control/api/v1/files`, { agent: false, localAddress });
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  response.pause();
  response.on('error', () => {}); // when it is dropped
  open.push(response);
  return response;
}

let app: TestApp;
let small: TestApp;
beforeAll(async () => {
  app = await startApp({ config: { readerSeconds: 3600 }, database: { longLists: 8, longListWaitMs: 100 } });
  await addQuota(app.ctx, 'alice', 1_000_000n);
  await app.ctx.db.pool.query(
    `INSERT INTO tape_file (path, size, stage) SELECT '/long/' || repeat('x', 1900) || n, 1, 'ONTAPE'::"Stage" FROM generate_series(1, $1::int) n
     UNION ALL SELECT '/short/' || n, 1, 'ONTAPE' FROM generate_series(1, 3) n`,
    [FILES],
  );
  small = await startBeside(app, { database: { poolSize: 9 } });
});
afterAll(async () => {
  for (const response of open) response.destroy();
  await small.close();
  await app.close();
});

test('however many readers of long lists stand still, what is short is answered, and one list too many is told to come again', async () => {
  const id = await makeRequest(app, { quota: 'alice', patterns: '/short/' });
  const { max = 0 } = app.ctx.db.streamPool.options;
  await Promise.all(Array.from({ length: max }, () => beginList(app)));
  const small = await Promise.all([
    read(app, `/requests/${id}`),
    read(app, '/requests'),
    read(app, '/quota/alice'),
    read(app, '/files?match=/short/'),
    read(app, '/files?match=/none/'),
  ]);
  expect(small.map(({ files }) => files)).toEqual([
    ['/short/1', '/short/2', '/short/3'],
    undefined,
    undefined,
    expect.objectContaining({ length: 3 }),
    [],
  ]);
  expect(small[3]?.count).toBe(3);
  const query = '{ estimateRequest(input: { quota: "alice", pattern: "/short/" }) { ... on Estimate { files } } }';
  expect(await askData(app, query)).toEqual({ estimateRequest: { files: 3 } });
  const refused = await get(app, '/files');
  expect([refused.status, refused.headers.get('retry-after'), refused.body]).toEqual([
    503,
    expect.stringMatching(/^\d+$/),
    errorBody('too many readers are at long lists: try again later'),
  ]);
  for (const response of open.splice(0)) response.destroy();
  expect((await read<{ count: number }>(app, '/files')).count).toBe(FILES + 3);
});

test('a list may be read for longer than a body may take to come', async () => {
  const late: (() => void)[] = [];
  const native = globalThis.setTimeout;
  const spy = vi.spyOn(globalThis, 'setTimeout').mockImplementation(((run: () => void, ms?: number, ...given: []) => {
    if (ms === 300_000) late.push(run);
    return native(run, ms, ...given);
  }) as typeof setTimeout);
  try {
    const list = await beginList(app);
    for (const run of late) run();
    expect(JSON.parse(await text(list))[0].count).toBe(FILES + 3);
  } finally {
    spy.mockRestore();
  }
});

test('one who stalls all lists that it gets leaves places for others, and is told that it has its share', async () => {
  const anonymous = { url: app.url };
  const lists = await Promise.all(Array.from({ length: 6 }, () => beginList(app, '127.0.0.1')));
  const refused = lists.filter(({ statusCode }) => statusCode === 429);
  expect(lists.map(({ statusCode }) => statusCode).sort()).toEqual([...Array(4).fill(200), ...Array(2).fill(429)]);
  const message = 'you are reading 4 long lists already: try again later';
  expect(refused.map(({ headers }) => headers['retry-after'])).toEqual(Array(2).fill('5'));
  expect(JSON.parse(await text(refused[0] as http.IncomingMessage))).toEqual(errorBody(message));
  const logged = (['warn', 'error'] as const).map((level) => vi.spyOn(app.ctx.log, level));
  const typed = await whileLocked(app, 'LOCK TABLE request IN ACCESS EXCLUSIVE MODE', () =>
    ask(anonymous, '{ requests { totalCount } }'),
  );
  expect(typed.errors).toMatchObject([{ message, extensions: { code: 'TOO_MANY_REQUESTS', retryAfterSeconds: 5 } }]);
  const texts = logged.flatMap((spy) => spy.mock.calls.map((given) => String(given[1])));
  expect(texts.filter((text) => text.includes('GraphQL'))).toEqual([]); // that is as it should be
  for (const spy of logged) spy.mockRestore();
  // a second one stalls what it gets, and so does a third
  for (const [address, places] of [
    ['127.0.0.2', 2],
    ['127.0.0.3', 1],
  ] as const) {
    const others = await Promise.all(Array.from({ length: places }, () => beginList(app, address)));
    expect(others.map(({ statusCode }) => statusCode)).toEqual(Array(places).fill(200));
  }
  const headers = { Authorization: `Bearer ${app.token}` };
  const { status, body } = await call(app, 'GET', '/files', { headers });
  expect([status, (body as [{ count: number }])[0].count]).toEqual([200, FILES + 3]);
  for (const response of open.splice(0)) response.destroy();
});

test('one who has many lists looked for leaves connections for all that is no list', async () => {
  const { lists } = await whileLocked(small, 'LOCK TABLE tape_file IN ACCESS EXCLUSIVE MODE', async (waiters) => {
    const lists = Array.from({ length: 12 }, () => get(small, '/files?match=/none/'));
    await waiters(1);
    expect((await get(small, '/quota/alice')).status).toBe(200);
    expect(small.ctx.db.pool.waitingCount).toBe(0);
    return { lists };
  });
  expect((await Promise.all(lists)).map(({ status }) => status)).toEqual(Array(12).fill(200));
});

test('one who makes and revives many requests during an import leaves connections for everybody else, and gets all of them', async () => {
  const ended = await makeRequest(small, { quota: 'alice', files: ['/a'] });
  await put(small, ended, { quota: 'alice', retention: '2020-01-01' });
  const { catalogue } = advisoryKeys;
  const { answers } = await whileLocked(
    small,
    `SELECT pg_advisory_xact_lock(${ADVISORY_SPACE}, ${catalogue})`,
    async (waiters) => {
      const revived = put(small, ended, { quota: 'alice', retention: '2999-01-01' });
      const made = Array.from({ length: 12 }, (_, n) => post(small, { quota: 'alice', files: [`/new/${n}`] }));
      await waiters(2);
      expect((await get(small, '/quota/alice')).status).toBe(200);
      expect(small.ctx.db.pool.waitingCount).toBe(0);
      return { answers: [revived, ...made] };
    },
  );
  expect((await Promise.all(answers)).map(({ status }) => status)).toEqual(Array(13).fill(200));
});

test('what takes long to be found is looked for on other connections than what is short', async () => {
  const three = await startBeside(app, { database: { poolSize: 3 } });
  try {
    let looking = -1; // the first has the lock
    three.ctx.db.pool.on('acquire', () => looking++);
    const { lists } = await whileLocked(three, 'LOCK TABLE tape_file IN ACCESS EXCLUSIVE MODE', async () => {
      const lists = [get(three, '/files?match=/short/1'), get(three, '/files?match=/none/')];
      await waitFor('both to look', async () => looking >= 2);
      expect((await get(three, '/quota/alice')).status).toBe(200);
      return { lists };
    });
    const answers = (await Promise.all(lists)).map(({ status, body }) => [status, body]);
    expect(answers).toEqual([
      [200, [expect.objectContaining({ count: 1 })]],
      [200, [expect.objectContaining({ count: 0 })]],
    ]);
  } finally {
    await three.close();
  }
});

test('a reader that takes nothing is dropped, and one that takes little gets all', async () => {
  const strict = await startBeside(app, { config: { readerSeconds: 0.5 } });
  try {
    const still = await beginList(strict);
    const slow = await beginList(strict);
    let whole = '';
    slow.on('readable', () => {});
    while (!slow.readableEnded) {
      const bytes = slow.read(Math.min(slow.readableLength, 128 * 1024)) as Buffer | null;
      whole += bytes?.toString() ?? '';
      if (slow.errored) throw slow.errored;
      await new Promise((resolve) => setTimeout(resolve, 20)); // what makes it slow: it takes longer than is allowed to stand still
    }
    expect((JSON.parse(whole) as [{ files: unknown[] }])[0].files).toHaveLength(FILES + 3);
    await waitFor('the other to be dropped', async () => {
      const { totalCount, idleCount } = strict.ctx.db.streamPool;
      return totalCount === idleCount;
    });
    still.resume();
    await waitFor('it to see that', async () => still.destroyed);
    expect(still.complete).toBe(false);
    expect((await call(strict, 'GET', '/files?match=/short/')).status).toBe(200);
  } finally {
    await strict.close();
  }
});

test('what an estimate, a count and a page search for long leaves the connections that all share, and ends with its reader', async () => {
  const small = await startBeside(app, { database: { poolSize: 3 } });
  try {
    let looking = -1; // the first has the lock
    small.ctx.db.streamPool.on('acquire', () => looking++);
    const { answers, left } = await whileLocked(small, 'LOCK TABLE tape_file IN ACCESS EXCLUSIVE MODE', async () => {
      const leaving = new AbortController();
      const answers = [
        ask(small, '{ estimateRequest(input: { quota: "alice", pattern: "/short/1" }) { ... on Estimate { files } } }'),
        ask(small, '{ tapeFiles(match: "/short/1") { totalCount } }'),
        ask(small, '{ tapeFiles(match: "/short/1") { edges { node { path } } } }'),
      ];
      const body = { query: '{ tapeFiles(match: "/left/") { totalCount } }' };
      const left = sendGraphql(small, body, { signal: leaving.signal }).catch((error: unknown) => error);
      await waitFor('all to look for long', async () => looking >= 3);
      expect((await get(small, '/quota/alice')).status).toBe(200);
      const blocked = async () =>
        (
          await small.ctx.db.pool.query(
            `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
          )
        ).rowCount;
      expect(await blocked()).toBe(4);
      leaving.abort();
      await waitFor('what nobody waits for to be given up', async () => (await blocked()) === 3);
      return { answers, left };
    });
    expect(await left).toBeInstanceOf(Error);
    expect((await Promise.all(answers)).map(({ data }) => data)).toEqual([
      { estimateRequest: { files: 1 } },
      { tapeFiles: { totalCount: 1 } },
      { tapeFiles: { edges: [{ node: { path: '/short/1' } }] } },
    ]);
  } finally {
    await small.close();
  }
});

/** Reads on without an end, a part at a time. @returns what ends when the answer does, with whether it came whole */
function readOn(response: http.IncomingMessage, part: { bytes: number; everyMs: number }): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setInterval(() => response.read(Math.min(part.bytes, response.readableLength)), part.everyMs);
    response
      .on('readable', () => {})
      .once('close', () => {
        clearInterval(timer);
        resolve(response.complete);
      });
  });
}

test('readers that take next to nothing lose their places to who waits for one, one after the other, and their snapshots end', async () => {
  const leastPace = { windowMs: 300, bytesPerSecond: 64 * 1024 };
  const paced = await startBeside(app, { database: { longLists: 4, leastPace } });
  try {
    const { max = 0 } = paced.ctx.db.streamPool.options;
    const fair = await beginList(paced);
    // for longer than another one has to wait for a place
    const whole = readOn(fair, { bytes: 64 * 1024, everyMs: 20 });
    const tricklers = await Promise.all(Array.from({ length: max - 1 }, () => beginList(paced)));
    const ends = tricklers.map((response) => readOn(response, { bytes: 100, everyMs: 20 }));
    const idle = () => paced.ctx.db.streamPool.idleCount;
    const next = async () => (await read<{ count: number }>(paced, '/files')).count;
    const isFirst = await Promise.race([next().then((count) => count === FILES + 3), whole.then(() => false)]);
    expect(isFirst).toBe(true);
    expect([await next(), await next()]).toEqual([FILES + 3, FILES + 3]);
    expect(await whole).toBe(true);
    expect(tricklers.filter(({ destroyed }) => destroyed).length).toBeLessThan(max - 1);
    for (const response of tricklers) response.destroy();
    expect(await Promise.all(ends)).not.toContain(true);
    await waitFor('all snapshots to end', async () => idle() === paced.ctx.db.streamPool.totalCount);
  } finally {
    await paced.close();
  }
});
