/** What a user may have at once: open requests, requests by a pattern, paths that the catalogue does not know. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { startGateway } from '../../src/app.js';
import type { Limits } from '../../src/config-limits.js';
import { counterFaults, mendCounts } from '../../src/operations/doctor/counters.js';
import { findFaults } from '../../src/operations/doctor/findings.js';
import { removeQuota } from '../../src/operations/quotas/remove.js';
import { joinAwaited } from '../../src/operations/requests/awaited.js';
import { compactRequests } from '../../src/operations/requests/compaction.js';
import { expireRequests } from '../../src/operations/requests/ends.js';
import { startApp, startBeside, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import type { Gateway } from '../support/http.js';
import { whileLocked } from '../support/locks.js';
import { cancel, create, made, release, retry, update } from '../support/mutations.js';
import { errorBody, makeRequest, post, put } from '../support/rest.js';
import { dumpTables, emptyTables } from '../support/tables.js';

let first: TestApp;
let app: TestApp;
beforeAll(async () => {
  first = await startApp();
});
afterEach(() => app.close());
afterAll(() => first.close());

async function start(limits: Partial<Limits>, options: { now?: () => string } = {}): Promise<void> {
  await emptyTables(first.ctx);
  app = await startBeside(first, { limits, ...options });
  await addQuota(app.ctx, 'alice', 1000n);
  await addQuota(app.ctx, 'bob', 1000n);
}

const later = '2999-01-01T00:00:00';
const paths = (name: string, count: number) => Array.from({ length: count }, (_, n) => `/new/${name}/${n}`);

/** The quota's own counts, which must be those that the doctor reckons. */
async function readCounts(user = 'alice'): Promise<[requests: number, paths: number, patterns: number]> {
  const found: string[] = [];
  for (const fault of counterFaults) {
    for await (const { kind, thing, expected, found: is } of findFaults(app.ctx, fault, { repair: false })) {
      found.push(`${kind} ${thing}: ${expected}, not ${is}`);
    }
  }
  expect(found).toEqual([]);
  const { rows } = await app.ctx.db.pool.query<{ o: number; a: number; s: number }>(
    'SELECT open_requests AS o, awaited_paths AS a, standing_patterns AS s FROM quota WHERE "user" = $1',
    [user],
  );
  const [row] = rows;
  return [row?.o ?? -1, row?.a ?? -1, row?.s ?? -1];
}

/** Each way to make a request, or to revive one: what it answers when it is refused. */
async function expectRefused(input: object, message: string, figures: object): Promise<void> {
  const { pattern, ...rest } = input as { pattern?: string };
  const before = await dumpTables(app.ctx);
  const answer = await post(app, pattern === undefined ? rest : { ...rest, patterns: pattern });
  expect([answer.status, answer.body]).toEqual([403, errorBody(message)]);
  const query = `mutation ($input: CreateRequestInput!) { result: createRequest(input: $input) {
    __typename ... on Failure { code message } ... on LimitReached { user limit allowed present added } } }`;
  expect(await askData(app, query, { input })).toEqual({
    result: { __typename: 'LimitReached', code: 'LIMIT_REACHED', message, user: 'alice', ...figures },
  });
  expect(await dumpTables(app.ctx)).toEqual(before);
}

test('a user has a bounded number of open requests; who ends one may make another, and others are not concerned', async () => {
  await start({ openRequests: 2 });
  const [first] = [
    await made(app, { quota: 'alice', files: ['/a'] }),
    await made(app, { quota: 'alice', pattern: '/b' }),
  ];
  const message = 'user "alice" would have 3 open requests, and may have 2 at once (OPEN_REQUESTS)';
  const figures = { limit: 'OPEN_REQUESTS', allowed: 2, present: 2, added: 1 };
  await expectRefused({ quota: 'alice', files: ['/c'] }, message, figures);
  await expectRefused({ quota: 'alice', pattern: '/c' }, message, figures);
  await made(app, { quota: 'bob', files: ['/c'] });
  await cancel(app, first);
  const other = await makeRequest(app, { quota: 'alice', files: ['/c'] });
  const before = await dumpTables(app.ctx);
  const revived = await put(app, first, { quota: 'alice', retention: later });
  expect([revived.status, revived.body]).toEqual([403, errorBody(message)]);
  expect(await update(app, { id: first, retention: later })).toMatchObject({ __typename: 'LimitReached', message });
  expect(await dumpTables(app.ctx)).toEqual(before);
  await put(app, other, { quota: 'alice', retention: '2020-01-01' });
  expect((await put(app, first, { quota: 'alice', retention: later })).status).toBe(200);
  expect(await readCounts()).toEqual([2, 1, 1]);
});

test('a user has a bounded number of requests by a pattern, and any of lists beside them', async () => {
  await start({ standingPatterns: 1 });
  const id = await made(app, { quota: 'alice', pattern: '/a/' });
  const message = 'user "alice" would have 2 requests by a pattern, and may have 1 at once (STANDING_PATTERNS)';
  const figures = { limit: 'STANDING_PATTERNS', allowed: 1, present: 1, added: 1 };
  await expectRefused({ quota: 'alice', pattern: '/b/' }, message, figures);
  const listed = await made(app, { quota: 'alice', files: ['/b/1'] });
  await cancel(app, listed);
  expect(await update(app, { id: listed, retention: later })).toMatchObject({ __typename: 'Request' });
  await cancel(app, id);
  await made(app, { quota: 'alice', pattern: '/b/' });
  expect(await update(app, { id, retention: later })).toMatchObject({ __typename: 'LimitReached', message });
  expect(await readCounts()).toEqual([2, 1, 1]);
});

test('however many lists of unknown paths a user posts, no more than the limit is stored', async () => {
  await start({ awaitedPaths: 1500 });
  await addFiles(app.ctx, [{ path: '/known/1', size: 1n }]);
  const answers: (number | string)[] = [];
  for (let n = 0; n < 3; n++) {
    const { status, text } = await post(app, { quota: 'alice', files: paths(`flood${n}`, 1000) });
    answers.push(status === 200 ? status : text);
  }
  const refusal = JSON.stringify(
    errorBody(
      'user "alice" would have 2000 paths that the catalogue does not know, and may have 1500 at once (AWAITED_PATHS)',
    ),
  );
  expect(answers).toEqual([200, refusal, refusal]);
  const { rows } = await app.ctx.db.pool.query('SELECT count(*)::int AS stored FROM awaited_path');
  expect(rows).toEqual([{ stored: 1000 }]);
  // what the catalogue knows is no path that is waited for, and to the last one it fits
  await makeRequest(app, { quota: 'alice', files: ['/known/1', ...paths('rest', 500)] });
  const message =
    'user "alice" would have 1501 paths that the catalogue does not know, and may have 1500 at once (AWAITED_PATHS)';
  const figures = { limit: 'AWAITED_PATHS', allowed: 1500, present: 1500, added: 1 };
  await expectRefused({ quota: 'alice', files: ['/known/1', '/new/one'] }, message, figures);
  await makeRequest(app, { quota: 'alice', files: ['/known/1'] });
  expect(await readCounts()).toEqual([3, 1500, 0]);
});

test('the counts are true whatever becomes of requests', async () => {
  let now = '2026-11-20T10:00:00';
  await start({ awaitedPaths: 5 }, { now: () => now });
  await addFiles(app.ctx, [{ path: '/c/known', size: 10n, stage: 'ONDISK' }]);
  const listed = await made(app, { quota: 'alice', files: ['/c/known', '/c/1', '/c/2', '/c/3', '/c/4'] });
  const pattern = await made(app, { quota: 'alice', pattern: '/c/' });
  expect(await readCounts()).toEqual([2, 4, 1]);
  // 1 joins both; of 2, which does not fit into the quota any more, the reason is another one
  await addFiles(app.ctx, [
    { path: '/c/1', size: 400n, stage: 'ONDISK' },
    { path: '/c/2', size: 400n, stage: 'ONDISK' },
  ]);
  expect(await readCounts()).toEqual([2, 2, 1]);
  await release(app, { id: listed, paths: ['/c/2', '/c/3', '/c/known'] });
  expect(await readCounts()).toEqual([2, 1, 1]);
  await retry(app, { id: listed });
  await update(app, { id: pattern, maxFiles: 1 });
  await joinAwaited(app.ctx);
  expect(await readCounts()).toEqual([2, 1, 1]);
  await cancel(app, listed);
  await cancel(app, listed);
  expect(await readCounts()).toEqual([1, 0, 1]);
  now = '2026-11-26T10:00:00';
  await expireRequests(app.ctx);
  expect(await readCounts()).toEqual([0, 0, 0]);
  await compactRequests({ ...app.ctx, config: { ...app.ctx.config, requestDays: 0 } }, new AbortController().signal);
  expect(await readCounts()).toEqual([0, 0, 0]);
  // what was waited for when it ended is known by now, and no path that counts
  await made(app, { quota: 'alice', files: paths('full', 5) });
  await addFiles(app.ctx, [{ path: '/c/4', size: 1n, stage: 'ONDISK' }]);
  expect(await update(app, { id: listed, retention: later })).toMatchObject({ __typename: 'Request' });
  expect(await update(app, { id: pattern, retention: later, maxFiles: null })).toMatchObject({ __typename: 'Request' });
  expect(await readCounts()).toEqual([3, 5, 1]);
  now = '2999-01-02T00:00:00';
  // over, and nobody has noticed: still counted, and revived without being counted twice
  expect(await update(app, { id: pattern, retention: '2999-02-01T00:00:00' })).toMatchObject({ __typename: 'Request' });
  expect(await readCounts()).toEqual([1, 0, 1]);
});

test('requests that are over and not ended yet are in nobody’s way', async () => {
  let now = '2026-11-20T10:00:00';
  await start({ openRequests: 1 }, { now: () => now });
  await made(app, { quota: 'alice', files: ['/a'] });
  now = '2026-11-26T10:00:00';
  await made(app, { quota: 'alice', files: ['/b'] });
  expect(await readCounts()).toEqual([1, 1, 0]);
});

/** Of many at once, half by REST and half by GraphQL, those that were taken; all others are refused for the limit. */
async function countTaken(
  gateways: readonly Gateway[],
  inputs: readonly { pattern?: string; files?: string[] }[],
): Promise<number> {
  const ends = await Promise.all(
    inputs.map(async ({ pattern, files }, n) => {
      const gateway = gateways[n % gateways.length] as Gateway;
      if (n % 4 < 2) return (await create(gateway, { quota: 'alice', pattern, files })).__typename;
      const { status, text } = await post(gateway, { quota: 'alice', patterns: pattern, files });
      return status === 200 ? 'Request' : status === 403 && / at once \(/.test(text) ? 'LimitReached' : text;
    }),
  );
  expect(ends.filter((end) => end !== 'Request' && end !== 'LimitReached')).toEqual([]);
  return ends.filter((end) => end === 'Request').length;
}

test('of many at once, at two gateways, exactly as many as there is room for get through', async () => {
  await start({ openRequests: 12, standingPatterns: 5, awaitedPaths: 15 });
  const second = await startGateway(app.ctx);
  const gateways = [app, { ...app, url: second.url }];
  try {
    const patterns = Array.from({ length: 16 }, (_, n) => ({ pattern: `/p${n}` }));
    expect(await countTaken(gateways, patterns)).toBe(5);
    // 15 paths, two by two
    const lists = Array.from({ length: 16 }, (_, n) => ({ files: [`/l${n}/1`, `/l${n}/2`] }));
    expect(await countTaken(gateways, lists)).toBe(7);
    expect(await readCounts()).toEqual([12, 14, 5]);
    const { rows } = await app.ctx.db.pool.query<{ id: number }>(`UPDATE request SET id = id RETURNING id`);
    await Promise.all(rows.map(({ id }) => cancel(app, id)));
    expect(await readCounts()).toEqual([0, 0, 0]);
    // some made and the others revived
    const [revived, taken] = await Promise.all([
      Promise.all(rows.map(({ id }) => update(app, { id, retention: later }))),
      countTaken(
        gateways,
        Array.from({ length: 12 }, (_, n) => ({ files: [`/m${n}`] })),
      ),
    ]);
    const [open] = await readCounts();
    expect([revived.filter((end) => end.__typename === 'Request').length + taken, open]).toEqual([12, 12]);
  } finally {
    await second.close();
  }
});

test('what a program from before has not counted is counted anew by an engine', async () => {
  await start({});
  await made(app, { quota: 'alice', files: ['/a', '/b'] });
  await made(app, { quota: 'bob', pattern: '/a' });
  const counted = [await readCounts('alice'), await readCounts('bob')];
  await app.ctx.db.pool.query('UPDATE quota SET open_requests = -1, awaited_paths = id, standing_patterns = 7');
  expect(await mendCounts(app.ctx)).toBe(2);
  expect([await readCounts('alice'), await readCounts('bob')]).toEqual(counted);
  expect(await mendCounts(app.ctx)).toBe(0);
});

test('who is counted wrongly is counted anew before anything is refused', async () => {
  await start({ openRequests: 2, standingPatterns: 1, awaitedPaths: 9 });
  const miscount = (columns: string) => app.ctx.db.pool.query(`UPDATE quota SET ${columns} WHERE "user" = 'alice'`);
  await miscount('standing_patterns = 1');
  const pattern = await made(app, { quota: 'alice', pattern: '/a' });
  expect(await readCounts()).toEqual([1, 0, 1]);
  await cancel(app, pattern);
  // each time: a program from before may go on
  await miscount('open_requests = 2');
  expect(await update(app, { id: pattern, retention: later })).toMatchObject({ __typename: 'Request' });
  await miscount('awaited_paths = 9');
  await made(app, { quota: 'alice', files: ['/b'] });
  expect(await readCounts()).toEqual([2, 1, 1]);
});

test('of many at once who are counted wrongly nobody is refused', async () => {
  await start({ standingPatterns: 20 });
  for (const round of ['first', 'second']) {
    await app.ctx.db.pool.query(`UPDATE quota SET standing_patterns = 100 WHERE "user" = 'alice'`);
    const ends = await whileLocked(app, `SELECT FROM quota FOR UPDATE`, async (waiters) => {
      const asked = Promise.all(
        Array.from({ length: 6 }, (_, n) => post(app, { quota: 'alice', patterns: `/${round}/${n}` })),
      );
      await waiters(1); // one counts anew
      return { asked };
    });
    expect((await ends.asked).map(({ status }) => status)).toEqual(Array(6).fill(200));
  }
  expect(await readCounts()).toEqual([12, 0, 12]);
});

test('who is counted rightly and refused is not looked at again for a minute', async () => {
  let now = '2026-11-20T10:00:00';
  await start({ openRequests: 1 }, { now: () => now });
  const { __typename } = await create(app, { quota: 'alice', files: ['/a'] });
  const message = 'user "alice" would have 2 open requests, and may have 1 at once (OPEN_REQUESTS)';
  const refused = { __typename: 'LimitReached', message };
  const again = () => create(app, { quota: 'alice', files: ['/b'] });
  expect([__typename, await again()]).toEqual(['Request', expect.objectContaining(refused)]);
  await app.ctx.db.pool.query(`UPDATE quota SET open_requests = 1; UPDATE request SET state = 'CANCELLED'`);
  expect(await again()).toMatchObject(refused);
  now = '2026-11-20T10:01:00';
  expect(await again()).toMatchObject({ __typename: 'Request' });
});

test('a quota that was removed and is there again has the counts of what lives', async () => {
  await start({ openRequests: 1 });
  await cancel(app, await made(app, { quota: 'alice', files: ['/a'] }));
  await removeQuota(app.ctx, 'alice');
  await addQuota(app.ctx, 'alice', 1n);
  await made(app, { quota: 'alice', files: ['/b'] });
  expect(await readCounts()).toEqual([1, 1, 0]);
});

test('of many patterns each takes what it is in, and nothing else, however many files come at once', async () => {
  await start({});
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  const names = Array.from({ length: 1300 }, (_, n) => `/m/${String(n).padStart(4, '0')}/file.nc`);
  // what would be found where one path ends and the next one begins is in no path
  const none = ['.nc\n/m/', '.nc/m/', '/m/1300', 'FILE', '%', '_'];
  const some = ['/0000/', '/1299/', '/05', 'e.nc', '/m/0499/file.nc', '/m/0500/file.nc'];
  const ids = new Map<string, number>();
  for (const pattern of [...none, ...some]) ids.set(pattern, await made(app, { quota: 'alice', pattern }));
  await addFiles(
    app.ctx,
    names.map((path) => ({ path, size: 1n, stage: 'ONDISK' as const })),
  );
  await addFiles(app.ctx, [{ path: '/m/one/file.nc', size: 1n, stage: 'ONDISK' }]);
  const all = [...names, '/m/one/file.nc'];
  for (const [pattern, id] of ids) {
    const { rows } = await app.ctx.db.pool.query<{ path: string }>(
      'SELECT f.path FROM hold h JOIN tape_file f ON f.id = h.file_id WHERE h.request_id = $1 ORDER BY h.ordinal',
      [id],
    );
    expect([pattern, rows.map(({ path }) => path)]).toEqual([pattern, all.filter((path) => path.includes(pattern))]);
  }
});
