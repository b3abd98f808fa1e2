/** Sizes as large as the catalogue takes them, such as a mark for "unknown": their sums are beyond 64 bits. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { examine } from '../../src/engine/doctor/doctor.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { readStage } from '../support/engine-watch.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { cleanUp, runCli } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { errorBody, makeRequest, post, readUsed } from '../support/rest.js';
import { suspend } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

const MAX = 2n ** 63n - 1n;
const backend = createMemoryBackend();
let app: TestApp;

beforeAll(async () => {
  app = await startApp({ backend });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addQuota(app.ctx, 'greedy', MAX);
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

const addHuge = (folder: string, volume: string, count = 2) =>
  addFiles(
    app.ctx,
    Array.from({ length: count }, (_, n) => ({ path: `${folder}/${n}`, size: MAX, volume, position: BigInt(n + 1) })),
  );

test('a file is restored from a volume whose files have sizes beyond 64 bits together', async () => {
  await addHuge('/huge', 'HUGE');
  await addTaped(app.ctx, backend, [{ path: '/good/1', volume: 'HUGE', position: 9n }]);
  const id = await makeRequest(app, { quota: 'alice', files: ['/good/1'] });
  await waitForState(app, id, 'COMPLETED');
  const { stdout, code } = await runCli(['volume', 'list', '--json'], { env: { DATABASE_URL: app.databaseUrl } });
  expect(code).toBe(0);
  expect(stdout).toContain(`"files":3,"bytes":${2n * MAX + 1000n}`);
});

test('a request whose files are beyond 64 bits together is refused with the figures', async () => {
  await addHuge('/sum', 'SUM', 3);
  await makeRequest(app, { quota: 'greedy', files: ['/good/1'] });
  const used = await readUsed(app, 'greedy');
  for (const wish of [{ patterns: '/sum/' }, { files: ['/sum/0', '/sum/1'] }, { files: ['/sum/0'] }]) {
    const { status, body } = await post(app, { quota: 'greedy', ...wish });
    const requested = MAX * ('patterns' in wish ? 3n : BigInt(wish.files.length));
    const available = MAX - BigInt(String(used));
    const message = `the quota of user "greedy" has no room for the files: ${requested} bytes are requested, and ${available} of its ${MAX} bytes are available`;
    expect({ status, body }).toEqual({ status: 403, body: errorBody(message) });
  }
  const query =
    'query ($input: CreateRequestInput!) { estimateRequest(input: $input) { ... on Estimate { bytes hasRoom } } }';
  const input = { quota: 'greedy', pattern: '/sum/' };
  expect(await askData(app, query, { input })).toEqual({
    estimateRequest: { bytes: String(3n * MAX), hasRoom: false },
  });
});

test('a file of such a size that a request waits for keeps no other file from joining', async () => {
  await addQuota(app.ctx, 'bob', 2500n);
  await addQuota(app.ctx, 'carl', 2500n);
  const [greedy, bob] = [
    await makeRequest(app, { quota: 'bob', patterns: '/late/huge' }),
    await makeRequest(app, { quota: 'carl', patterns: '/late/small' }),
  ];
  await makeRequest(app, { quota: 'bob', files: ['/good/1'] });
  const held = await makeRequest(app, { quota: 'carl', files: ['/good/1'] });
  await addHuge('/late/huge', 'LATE', 1);
  await addTaped(app.ctx, backend, [{ path: '/late/small', volume: 'SMALL', size: 2000 }]);
  expect(await awaitedOf(greedy)).toEqual(['/late/huge/0 QUOTA_FULL']);
  expect(await awaitedOf(bob)).toEqual(['/late/small QUOTA_FULL']);
  await askData(app, `mutation { cancelRequest(id: ${held}) { __typename } }`);
  await waitFor('the small file to be restored', async () => (await readStage(app, '/late/small')) === 'R');
  expect(await awaitedOf(greedy)).toEqual(['/late/huge/0 QUOTA_FULL']);
});

test('an import by which the files that a user holds would be beyond 64 bits is refused with the user and the figures', async () => {
  await addQuota(app.ctx, 'grows', MAX);
  await addFiles(
    app.ctx,
    [1n, 2n].map((n) => ({ path: `/grows/${n}`, size: 10n, volume: 'GROWS', position: n })),
  );
  await suspend(app, { kind: 'VOLUME', name: 'GROWS', mode: 'HELD', reason: 'away' });
  const id = await makeRequest(app, { quota: 'grows', patterns: '/grows/' });
  const importSize = (size: bigint) =>
    runCli(['import', '-'], {
      env: { DATABASE_URL: app.databaseUrl },
      stdin: `path,size\n/grows/1,${size}\n/grows/2,${size}\n`,
    });
  const told = `the files that user "grows" holds would be ${2n * MAX} bytes together, and are 20 now: at most ${MAX} can be charged`;
  expect(await importSize(MAX)).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(`nothing was imported:\n  ${told}\n`),
  });
  expect(await readUsed(app, 'grows')).toBe(20);
  expect(await importSize(MAX / 2n)).toMatchObject({ code: 0 });
  expect(BigInt(String(await readUsed(app, 'grows')))).toBe(MAX - 1n);
  await askData(app, `mutation { cancelRequest(id: ${id}) { __typename } }`);
});

test('the plan, what waits and the doctor bear a queue of such sizes', async () => {
  const users = Array.from({ length: 20 }, (_, n) => `user${n}`);
  await addHuge('/queue', 'QUEUE', users.length);
  for (const [n, user] of users.entries()) {
    await addQuota(app.ctx, user, MAX);
    await makeRequest(app, { quota: user, files: [`/queue/${n}`] });
  }
  const { plan } = await askData<{ plan: { queue: { edges: { node: object }[] } } }>(
    app,
    '{ plan { queue { edges { node { bytes start end volume } } } } }',
  );
  expect(plan.queue.edges.map(({ node }) => node)).toEqual([
    { volume: 'QUEUE', bytes: String(20n * MAX), start: expect.any(String), end: '9999-12-31T23:59:59Z' },
  ]);
  const query = 'query ($id: Int!) { request(id: $id) { waiting { bytes end { latest } } } }';
  const id = await makeRequest(app, { quota: 'user0', files: ['/queue/unknown'] });
  expect(await askData(app, query, { id: id - 1 })).toEqual({
    request: { waiting: { bytes: String(MAX), end: null } },
  });
  await suspend(app, { kind: 'VOLUME', name: 'QUEUE', mode: 'HELD', reason: 'away' });
  expect(JSON.stringify(await askData(app, '{ plan { bytesWaiting queue { edges { node { bytes } } } } }'))).toContain(
    String(20n * MAX),
  );
  const findings: unknown[] = [];
  await examine(app.ctx, { repair: false, checksums: false }, (finding) => findings.push(finding));
  expect(findings).toEqual([]);
});

async function awaitedOf(id: number): Promise<string[]> {
  const query = `{ request(id: ${id}) { awaited(first: 10) { edges { node { path reason } } } } }`;
  const { request } = await askData<{ request: { awaited: { edges: { node: { path: string; reason: string } }[] } } }>(
    app,
    query,
  );
  return request.awaited.edges.map(({ node }) => `${node.path} ${node.reason}`);
}
