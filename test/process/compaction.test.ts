/** Ended requests in their compact form: they answer as before, and are revived like other requests. */
import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import type { Context } from '../../src/context.js';
import { observeTransactions, transaction } from '../../src/database/transaction.js';
import { counterFaults } from '../../src/operations/doctor/counters.js';
import { countLookedAt, type Finding, findFaults } from '../../src/operations/doctor/findings.js';
import { finishRecalls } from '../../src/operations/recalls/ends.js';
import { compactRequests } from '../../src/operations/requests/compaction.js';
import { cancelRequest, expireRequests, releaseFiles } from '../../src/operations/requests/ends.js';
import { lockHolders, markHolds } from '../../src/operations/requests/holds.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { addSeconds } from '../../src/time.js';
import type { TestApp } from '../support/app.js';
import { claim, idOf, startByHand, startIdleApp, withEngine } from '../support/engine-by-hand.js';
import { readDisks, readRestored } from '../support/engine-watch.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { ask, askData, type Connection, PAGE_INFO } from '../support/graphql.js';
import { whileLocked } from '../support/locks.js';
import { made, release, retry, update } from '../support/mutations.js';
import { cleanUp, runCli } from '../support/process.js';
import { viewRequest, waitForState } from '../support/request-view.js';
import { get, put, readUsed } from '../support/rest.js';
import { CHANGES, type Changes, drain, openClient, PROGRESS, subscribe, take } from '../support/streams.js';
import { keepTables } from '../support/tables.js';
import { waitFor } from '../support/wait.js';
import { countRows } from '../support/writes.js';

let app: TestApp;
let restart: () => Promise<void>;
beforeAll(async () => {
  app = await startIdleApp();
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  restart = await keepTables(app.ctx);
});
beforeEach(() => restart());
afterAll(async () => {
  await cleanUp();
  await app.close();
});

const { signal } = new AbortController();
const DAY = 24 * 3600;
const later = (days: number): Context => ({ ...app.ctx, now: () => addSeconds(app.ctx.now(), days * DAY) });
const sql = async <Row extends object>(text: string, values: unknown[] = []) =>
  (await app.ctx.db.pool.query<Row>(text, values)).rows;

/** Runs the periodic job so many days later. */
const compactIn = (days: number) => compactRequests(later(days), signal);

/** Returns the form of a request, and how many rows and bundles its files take. */
async function formOf(id: number): Promise<[form: string, files: number, bundles: number]> {
  const [row] = await sql<{ form: string; files: number; bundles: number }>(
    `SELECT form, (SELECT count(*)::int FROM hold WHERE request_id = r.id) AS files,
       (SELECT count(*)::int FROM hold_bundle WHERE request_id = r.id) AS bundles FROM request r WHERE id = $1`,
    [id],
  );
  return [row?.form ?? '', row?.files ?? 0, row?.bundles ?? 0];
}

const countPaths = async (id: number) =>
  (
    await sql<{ rows: number; bundles: number }>(
      `SELECT (SELECT count(*)::int FROM awaited_path WHERE request_id = $1) AS rows,
         (SELECT count(*)::int FROM path_bundle WHERE request_id = $1) AS bundles`,
      [id],
    )
  )[0];

const revive = (id: number, quota = 'alice') => put(app, id, { quota, retention: '2099-01-01' });

/** Adds files, of which some are on disk. */
const addAll = (files: readonly string[], isOnDisk = (_n: number) => false) =>
  addFiles(
    app.ctx,
    files.map((path, n) => ({ path, stage: isOnDisk(n) ? 'ONDISK' : 'ONTAPE' })),
  );

/** A request for new files that has ended. */
async function makeEnded(files: readonly string[]): Promise<number> {
  await addAll(files);
  const id = await made(app, { quota: 'alice', files });
  await cancelRequest(app.ctx, id);
  return id;
}

const paths = (folder: string, count: number) =>
  Array.from({ length: count }, (_, n) => `${folder}/${String(n).padStart(5, '0')}`);

/** Fails files of all requests. */
async function fail(...files: string[]): Promise<void> {
  const ids = await Promise.all(files.map((file) => idOf(app, file)));
  await transaction(app.ctx.db.pool, 'finishRecalls', async (tx) => {
    await lockHolders(tx, ids);
    const failed = ids.map((fileId) => ({ fileId, failure: { errorClass: 'MEDIA', error: `torn at ${fileId}` } }));
    await markHolds(app.ctx, tx, failed);
  });
}

const NODE = `state size errorClass error recallState attempts nextTry file { path size stage spotName } `;
const FIELDS = `requestId state pattern label requestDate retention notifyOnFirstFile notifyOnLastFile maxFiles maxBytes
  tapestoreRequestStart tapestoreRequestEnd firstFilesOnDisk lastFilesOnDisk restoredBelow filesTotal filesOnDisk filesFailed
  bytesTotal bytesOnDisk filesUnknown filesRefused filesOverLimit filesAtPrimaryPlace filesReleased quota { user used }`;
const QUERY = `query ($id: Int!) { request(id: $id) { id ${FIELDS}
  first: holds(first: 3) { edges { cursor node { ${NODE} } } ${PAGE_INFO} }
  last: holds(last: 4) { edges { cursor node { ${NODE} } } ${PAGE_INFO} }
  failed: holds(states: [FAILED, RELEASED]) { edges { cursor node { ${NODE} } } ${PAGE_INFO} }
  awaited(first: 2) { edges { cursor node { path reason } } ${PAGE_INFO} }
  lastAwaited: awaited(last: 2) { edges { cursor node { path reason } } ${PAGE_INFO} }
} }`;

type Edge = Connection<unknown>['edges'][number];

/** Reads all edges of a list, page by page, from either end. */
async function readEdges(id: number, list: string, node: string, isBackward: boolean): Promise<Edge[]> {
  const edges: Edge[] = [];
  for (let cursor: string | null = null; ; ) {
    const args = isBackward ? 'last: 700, before: $cursor' : 'first: 700, after: $cursor';
    const query = `query ($id: Int!, $cursor: String) { request(id: $id) { list: ${list}(${args}) { edges { cursor node { ${node} } } ${PAGE_INFO} } } }`;
    const answer: { request: { list: Connection<unknown> } } = await askData(app, query, { id, cursor });
    const { edges: page, pageInfo } = answer.request.list;
    if (isBackward) edges.unshift(...page);
    else edges.push(...page);
    if (!(isBackward ? pageInfo.hasPreviousPage : pageInfo.hasNextPage)) return edges;
    cursor = isBackward ? pageInfo.startCursor : pageInfo.endCursor;
  }
}

/** Reads what queries return of a request. */
async function readQueries(id: number) {
  const whole = await ask(app, QUERY, { id });
  const node = (whole.data as { request: { id: string } }).request.id;
  return {
    rest: (await get(app, `/requests/${id}`)).text,
    quota: (await get(app, '/quota/alice')).text,
    whole,
    node: await ask(app, `query ($id: ID!) { node(id: $id) { ... on Request { ${FIELDS} } } }`, { id: node }),
    holds: await readEdges(id, 'holds', 'state size error file { path }', false),
    holdsBackward: await readEdges(id, 'holds', 'state size error file { path }', true),
    awaited: await readEdges(id, 'awaited', 'path reason', false),
    awaitedBackward: await readEdges(id, 'awaited', 'path reason', true),
    list: await ask(app, `{ requests(states: [EXPIRED, CANCELLED]) { totalCount edges { node { ${FIELDS} } } } }`),
  };
}

/** Reads what subscriptions, mutations and a command say of a request. */
async function readOthers(id: number) {
  const stages = subscribe<Changes>(openClient(app, false), { query: CHANGES, variables: { requestId: id } });
  const progress = await drain(subscribe(openClient(app, false), { query: PROGRESS, variables: { id } }));
  const others = {
    stages: (await take(stages, 2)).map(({ stageChanges }) => ({ ...stageChanges, at: '' })),
    progress: progress.map(({ data }) => ({ ...(data as { requestProgress: object }).requestProgress, at: '' })),
    released: await release(app, { id, match: '/' }),
    notReleased: await release(app, { id, paths: ['/nowhere'] }),
    retried: await retry(app, { id }),
    show: await runCli(['show', String(id)], { env: { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token } }),
  };
  stages.close();
  return others;
}

/** Makes ended requests of all kinds, with files in all states. */
async function makeKinds(): Promise<Record<string, number>> {
  const many = paths('/many', 1100);
  await addAll(many, (n) => n % 3 === 0);
  await addAll(paths('/some', 6), () => true);
  const list = { files: ['/some/00005', '/unknown/b', '/some/00001', '/many/00001', '/unknown/a'] };
  const large = await made(app, {
    quota: 'alice',
    files: [...many, ...paths('/unknown', 1100)],
    notifyOnLastFile: 'a@b',
  });
  const kinds = {
    large,
    pattern: await made(app, { quota: 'alice', pattern: '/many/000', notifyOnFirstFile: '', label: 'kept' }),
    list: await made(app, { quota: 'alice', ...list }),
    limited: await made(app, { quota: 'alice', pattern: '/some', maxFiles: 7 }),
  };
  await addAll(paths('/some/more', 4)); // one joins, the others are beyond the limit
  await fail('/many/00001', '/many/00999', '/some/more/00000');
  await releaseFiles(app.ctx, { id: large, match: '/many/0100' });
  await releaseFiles(app.ctx, { id: kinds.pattern, paths: ['/many/00007', '/many/00002'] });
  await cancelRequest(app.ctx, kinds.list);
  await put(app, kinds.limited, { quota: 'alice', retention: '2020-01-01' });
  await expireRequests(later(6));
  return kinds;
}

test('a compact request answers as it did before, field by field', async () => {
  const kinds = Object.entries(await makeKinds());
  const large = kinds[0]?.[1] ?? 0;
  const before = new Map<string, unknown>();
  for (const [kind, id] of kinds) {
    const answers = await readQueries(id);
    expect([answers.whole.errors, answers.node.errors]).toEqual([undefined, undefined]);
    before.set(kind, answers);
  }
  const others = await readOthers(large);
  expect(others.show.code).toBe(0);
  expect(before.get('large')).toMatchObject({ holds: { length: 1100 }, awaitedBackward: { length: 1100 } });
  await compactIn(36);
  for (const [kind, id] of kinds) {
    const bundles = kind === 'large' ? 2 : 1;
    expect([kind, await formOf(id), (await countPaths(id))?.rows]).toEqual([kind, ['COMPACT', 0, bundles], 0]);
    expect(await readQueries(id)).toEqual(before.get(kind));
  }
  expect(await readOthers(large)).toEqual(others);
});

test('a request becomes compact 30 days after its end', async () => {
  const cancelled = await makeEnded(['/days/1']);
  const expired = await made(app, { quota: 'alice', files: ['/days/1'] });
  await sql(`UPDATE request SET retention = $2::timestamp + interval '5 days' WHERE id = $1`, [expired, app.ctx.now()]);
  await expireRequests(later(6));
  const forms = async () => [(await formOf(cancelled))[0], (await formOf(expired))[0]];
  await compactIn(29);
  expect(await forms()).toEqual(['ROWS', 'ROWS']);
  await compactIn(31);
  expect(await forms()).toEqual(['COMPACT', 'ROWS']);
  await compactIn(36);
  expect(await forms()).toEqual(['COMPACT', 'COMPACT']);
});

test('a compact request is revived like another one, whatever became of its files meanwhile', async () => {
  await addAll(paths('/twin', 8), (n) => n < 3);
  const files = [...paths('/twin', 8), '/twin/unknown', '/twin/later'];
  const input = { quota: 'alice', files, maxFiles: 9 };
  const [compact, plain] = [await made(app, input), await made(app, input)];
  await fail('/twin/00004', '/twin/00005');
  for (const id of [compact, plain]) {
    await releaseFiles(app.ctx, { id, paths: ['/twin/00006'] });
    await cancelRequest(app.ctx, id);
  }
  await sql(`UPDATE request SET retention = retention + interval '99 days' WHERE id = $1`, [plain]); // as if it had ended much later
  await compactIn(31);
  expect([(await formOf(compact))[0], (await formOf(plain))[0]]).toEqual(['COMPACT', 'ROWS']);
  await addFiles(app.ctx, [
    { path: '/twin/00001', size: 1234n, stage: 'ONTAPE', checksum: 'md5:00000000000000000000000000000001' },
    { path: '/twin/00005', size: 5n, position: 77n },
    { path: '/twin/later' },
  ]);
  const charged: bigint[] = [];
  const clock = vi.spyOn(app.ctx, 'now').mockReturnValue(app.ctx.now()); // both at one moment
  for (const id of [plain, compact]) {
    const before = BigInt(String(await readUsed(app, 'alice')));
    expect((await revive(id)).status).toBe(200);
    charged.push(BigInt(String(await readUsed(app, 'alice'))) - before);
  }
  clock.mockRestore();
  expect(charged[0]).toBe(charged[1]);
  expect(await formOf(compact)).toEqual(['ROWS', expect.any(Number), 0]);
  expect((await countPaths(compact))?.bundles).toBe(0);
  const strip = (text: string) => text.replace(/"id":\d+|"request_date":"[^"]*"/g, '');
  expect(strip((await get(app, `/requests/${compact}`)).text)).toBe(strip((await get(app, `/requests/${plain}`)).text));
  expect(await viewRequest(app, compact)).toEqual(await viewRequest(app, plain));
  expect((await viewRequest(app, compact)).awaited).toEqual([{ path: '/twin/unknown', reason: 'UNKNOWN' }]);
  const rows = (id: number) =>
    sql('SELECT file_id, ordinal, size, state, error_class, error FROM hold WHERE request_id = $1 ORDER BY ordinal', [
      id,
    ]);
  expect(await rows(compact)).toEqual(await rows(plain));
});

test('a compact request that does not fit into its quota is not revived', async () => {
  await addFiles(app.ctx, [{ path: '/refused/1' }]);
  await addQuota(app.ctx, 'bob', 1000n);
  const id = await made(app, { quota: 'bob', files: ['/refused/1', '/refused/unknown'] });
  await cancelRequest(app.ctx, id);
  await compactIn(31);
  await made(app, { quota: 'bob', pattern: '/refused' });
  const before = (await get(app, `/requests/${id}`)).text;
  expect((await revive(id, 'bob')).status).toBe(403);
  expect(await formOf(id)).toEqual(['COMPACT', 0, 1]);
  expect((await get(app, `/requests/${id}`)).text).toBe(before);
});

test('label, addresses and limits of a compact request can be changed', async () => {
  const id = await makeEnded(['/changed/1']);
  await compactIn(31);
  const changed = await update(app, { id, label: 'new', maxFiles: 3, notifyOnFirstFile: 'x@y' });
  expect(changed).toMatchObject({ __typename: 'Request', state: 'CANCELLED', maxFiles: 3, filesTotal: 1 });
  await cancelRequest(app.ctx, id);
  expect(await formOf(id)).toEqual(['COMPACT', 0, 1]);
  expect((await viewRequest(app, id)).holds).toMatchObject([{ path: '/changed/1' }]);
});

test('an email of a compact request loses its text once it is sent, and is not sent again when the request is revived', async () => {
  await addFiles(app.ctx, [{ path: '/mail/1', stage: 'ONDISK' }]);
  const id = await made(app, { quota: 'alice', files: ['/mail/1'], notifyOnFirstFile: '', notifyOnLastFile: '' });
  await sql(`UPDATE notification SET state = 'SENT' WHERE kind = 'FIRST_FILE'`);
  await cancelRequest(app.ctx, id);
  await compactIn(31);
  const readEmails = () =>
    sql<{ kind: string; state: string; isEmpty: boolean }>(
      `SELECT kind, state, body = '' AS "isEmpty" FROM notification ORDER BY kind`,
    );
  expect(await readEmails()).toEqual([
    { kind: 'FIRST_FILE', state: 'SENT', isEmpty: true },
    { kind: 'LAST_FILE', state: 'PENDING', isEmpty: false },
  ]);
  await sql(`UPDATE notification SET state = 'REJECTED' WHERE kind = 'LAST_FILE'`);
  await compactIn(31);
  const sent = [
    { kind: 'FIRST_FILE', state: 'SENT', isEmpty: true },
    { kind: 'LAST_FILE', state: 'REJECTED', isEmpty: true },
  ];
  expect(await readEmails()).toEqual(sent);
  expect((await revive(id)).status).toBe(200);
  expect((await viewRequest(app, id)).state).toBe('COMPLETED');
  expect(await readEmails()).toEqual(sent);
});

/** Makes an ended request of more files than a step takes. */
async function makeLarge(): Promise<number> {
  await sql(
    `INSERT INTO tape_file (path, size, stage) SELECT '/large/' || n, 1, 'ONTAPE' FROM generate_series(1, 12000) n`,
  );
  const id = await made(app, { quota: 'alice', files: ['/large/5', '/large/unknown'], label: 'large' });
  await sql(
    `INSERT INTO hold (request_id, file_id, ordinal, size) SELECT $1, id, 10 + row_number() OVER (ORDER BY id), 1 FROM tape_file
     WHERE path LIKE '/large/%' AND path <> '/large/5'`,
    [id],
  );
  await sql('UPDATE request SET files_total = 12000, bytes_total = 12000 WHERE id = $1', [id]);
  await sql(`UPDATE quota SET used = used + 11999 WHERE "user" = 'alice'`);
  await cancelRequest(app.ctx, id);
  return id;
}

const faults = async (repair: boolean) => {
  const findings: Finding[] = [];
  for (const fault of counterFaults)
    for await (const finding of findFaults(app.ctx, fault, { repair })) findings.push(finding);
  return findings;
};

/** Stops the job after its first step, as a kill between two steps does. */
async function compactOneStep(): Promise<void> {
  const stopping = new AbortController();
  const end = observeTransactions({ onBegin: () => stopping.abort(), onStatement: () => {} });
  await compactRequests(later(31), stopping.signal);
  end();
}

test('a large request that is half compact answers as before, and is revived or becomes compact', async () => {
  const id = await makeLarge();
  const answer = async () => [(await get(app, `/requests/${id}`)).text, (await viewRequest(app, id)).holds.length];
  const before = await answer();
  await compactOneStep();
  expect(await formOf(id)).toEqual(['MIXED', 2000, 10]);
  expect(await answer()).toEqual(before);
  expect(await faults(false)).toEqual([]);
  expect((await revive(id)).status).toBe(200);
  expect(await formOf(id)).toEqual(['ROWS', 12000, 0]);
  expect(await faults(false)).toEqual([]);

  await cancelRequest(app.ctx, id);
  await compactOneStep();
  await compactIn(31);
  expect(await formOf(id)).toEqual(['COMPACT', 0, 12]);
  expect((await answer())[1]).toBe(100);
  expect(await faults(false)).toEqual([]);
});

test('a step that is killed changes nothing', async () => {
  const id = await makeEnded(['/killed/1', '/killed/2']);
  await whileLocked(app, 'LOCK TABLE hold_bundle IN SHARE MODE', async (waiters) => {
    const pass = Promise.allSettled([compactIn(31)]);
    await waiters(1);
    await sql(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    );
    expect((await pass)[0]?.status).toBe('rejected');
  });
  expect(await formOf(id)).toEqual(['ROWS', 2, 0]);
  await compactIn(31);
  expect(await formOf(id)).toEqual(['COMPACT', 0, 1]);
});

test('engines take different requests, and leave a locked request to the next job', async () => {
  await addFiles(app.ctx, [{ path: '/both/1' }]);
  const ids: number[] = [];
  for (let n = 0; n < 20; n++) {
    ids.push(await made(app, { quota: 'alice', pattern: '/both' }));
    await cancelRequest(app.ctx, ids[n] ?? 0);
  }
  const compact = async () =>
    (await sql<{ id: number }>(`SELECT id FROM request WHERE form = 'COMPACT' ORDER BY id`)).map((row) => row.id);
  await whileLocked(app, `SELECT FROM request WHERE id = ${ids[0]} FOR UPDATE`, async () => {
    await Promise.all([compactIn(31), compactIn(31), compactIn(31)]);
    expect(await compact()).toEqual(ids.slice(1));
  });
  await compactIn(31);
  expect(await compact()).toEqual(ids);
  expect(await sql('SELECT count(*)::int AS n FROM hold_bundle')).toEqual([{ n: 20 }]);
});

test('a request that is revived while it becomes compact has all its files', async () => {
  const id = await makeEnded(['/revived/1', '/revived/2']);
  // the revival waits for the step, which waits
  const revived = await whileLocked(app, 'LOCK TABLE hold_bundle IN SHARE MODE', async (waiters) => {
    const pass = compactIn(31);
    await waiters(1);
    const revival = revive(id);
    await waiters(2);
    return { pass, revival };
  });
  await revived.pass;
  expect((await revived.revival).status).toBe(200);
  expect(await formOf(id)).toEqual(['ROWS', 2, 0]);
  expect(await faults(false)).toEqual([]);
});

test('a restore reads no more rows of request files for 300 compact requests than for none', async () => {
  await addAll(['/cost/1', '/cost/2', '/cost/3']);
  const restore = async (file: string) => {
    await made(app, { quota: 'alice', files: [file] });
    const lease = await claim(app);
    const work = await countRows(async () => {
      const [started] = await startByHand(app, lease, [file]);
      const copy = { ino: 1n, mtimeNs: 1n, ctimeNs: 1n, checksum: null };
      await finishRecalls(app.ctx, lease, [{ kind: 'restored', fileId: started?.fileId ?? 0n, ...copy }]);
    });
    expect(work.map(({ transaction }) => transaction)).toEqual(['startRecalls', 'finishRecalls']);
    return work.map(({ read }) => read.hold ?? 0);
  };
  const end300 = async (file: string) => {
    const id = await made(app, { quota: 'alice', files: [file] });
    await cancelRequest(app.ctx, id);
    await sql(`INSERT INTO request (quota_id, label, request_date, retention, state, files_total, bytes_total)
      SELECT quota_id, label || n, request_date, retention, state, 1, 1000 FROM request, generate_series(2, 300) n WHERE id = ${id}`);
    await sql(`INSERT INTO hold (request_id, file_id, ordinal, size)
      SELECT r.id, h.file_id, 1, 1000 FROM request r, hold h WHERE h.request_id = ${id} AND r.id > ${id}`);
  };
  // a small table is read whole, so a few more or less is the planner's choice
  for (const read of await restore('/cost/1')) expect(read).toBeLessThan(30);
  await end300('/cost/2');
  await compactIn(31);
  for (const read of await restore('/cost/2')) expect(read).toBeLessThan(30);
  await end300('/cost/3');
  for (const read of await restore('/cost/3')) expect(read).toBeGreaterThan(300); // those that are not compact yet
});

test('copies of a compact request that could not be removed before are removed later', async () => {
  const backend = createMemoryBackend();
  await addTaped(app.ctx, backend, [{ path: '/copy/1' }, { path: '/copy/2' }]);
  const id = await made(app, { quota: 'alice', files: ['/copy/1', '/copy/2'] });
  await withEngine(app, backend, () => waitForState(app, id, 'COMPLETED'));
  await cancelRequest(app.ctx, id);
  await compactIn(31); // as if its disk had been away for a month
  expect([(await formOf(id))[0], readRestored(app, '/copy/1') !== undefined]).toEqual(['COMPACT', true]);
  await withEngine(app, backend, () =>
    waitFor('the copies to be gone', async () => {
      const [request] = await sql<{ isReleased: boolean }>(
        'SELECT is_released AS "isReleased" FROM request WHERE id = $1',
        [id],
      );
      return request?.isReleased && readRestored(app, '/copy/1') === undefined && (await readDisks(app)).used === 0n;
    }),
  );
  expect((await formOf(id))[0]).toBe('COMPACT');
});

test('the doctor compares compact requests with their bundles, and repairs lose no bundle', async () => {
  const { large, pattern, list } = (await makeKinds()) as Record<'large' | 'pattern' | 'list', number>;
  const before = await countLookedAt(app.ctx);
  expect(await faults(false)).toEqual([]);
  await compactIn(36);
  expect(await faults(false)).toEqual([]);
  expect(await countLookedAt(app.ctx)).toEqual(before);

  const [counts] = await sql<{ n: number }>('SELECT files_failed AS n FROM request WHERE id = $1', [large]);
  await sql('UPDATE request SET files_failed = 0, bytes_total = bytes_total + 1 WHERE id = $1', [large]);
  await sql(`UPDATE request SET form = 'ROWS' WHERE id = $1`, [pattern]);
  await sql(`INSERT INTO awaited_path (request_id, path, ordinal) VALUES ($1, '/left', 99)`, [list]);
  const found = await faults(false);
  expect(found.map(({ kind, thing, expected, found: value }) => [kind, thing, expected, value])).toEqual([
    ['request-form', `request ${pattern}`, 'its files in rows', 'bundles'],
    ['request-form', `request ${list}`, 'its files in bundles', 'rows'],
    [
      'request-counts',
      `request ${large}`,
      expect.stringMatching(`, ${counts?.n} failed, 1090000 bytes,`),
      expect.stringMatching(', 0 failed, 1090001 bytes,'),
    ],
  ]);
  expect((await faults(true)).every(({ isRepaired }) => isRepaired)).toBe(true);
  expect(await faults(false)).toEqual([]);
  await compactIn(36);
  for (const id of [large, pattern, list])
    expect([(await formOf(id))[0], (await countPaths(id))?.rows]).toEqual(['COMPACT', 0]);
  expect((await viewRequest(app, pattern)).holds).toHaveLength(100);
  expect((await viewRequest(app, list)).awaited.map(({ path }) => path)).toEqual(['/unknown/b', '/unknown/a', '/left']);
});
