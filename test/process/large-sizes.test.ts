/** Sizes up to the maximum of the catalogue, such as a mark for "unknown". Sums of such sizes exceed 64 bits. */

import { beforeAll, expect, test } from 'vitest';
import { describeFullQuota } from '../../src/core/errors.js';
import { readStage } from '../support/engine-watch.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { findFaults } from '../support/faults.js';
import { askData, type Edges } from '../support/graphql.js';
import { useMemorySite } from '../support/memory-site.js';
import { cancel } from '../support/mutations.js';
import { runCli } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { errorBody, makeRequest, post, readUsed } from '../support/rest.js';
import { suspend } from '../support/suspend.js';
import { waitFor } from '../support/wait.js';

const MAX = 2n ** 63n - 1n;
const { app, library, ask } = useMemorySite({ engine: { repairMs: 300 } });

beforeAll(async () => {
  await addQuota(app.ctx, 'greedy', MAX);
});

async function unresolvedOf(id: number): Promise<string[]> {
  const query = `{ request(requestId: ${id}) { unresolved(first: 10) { edges { node { path reason } } } } }`;
  type Awaited = { request: { unresolved: Edges<{ path: string; reason: string }> } };
  const { request } = await askData<Awaited>(app, query);
  return request.unresolved.edges.map(({ node }) => `${node.path} ${node.reason}`);
}

const addHuge = (directory: string, volume: string, count = 2) =>
  addFiles(
    app.ctx,
    Array.from({ length: count }, (_, n) => ({
      path: `${directory}/${n}`,
      size: MAX,
      volume,
      position: BigInt(n + 1),
    })),
  );

test('a file is restored from a volume whose sizes add up beyond 64 bits', async () => {
  await addHuge('/huge', 'HUGE');
  await addTaped(app.ctx, library, [{ path: '/good/1', volume: 'HUGE', position: 9n }]);
  await waitForState(app, await ask('/good/1'), 'COMPLETED');
  const { stdout, code } = await runCli(['volume', 'list', '--json'], { env: { DATABASE_URL: app.databaseUrl } });
  expect(code).toBe(0);
  expect(stdout).toContain(`"fileCount":3,"bytes":${2n * MAX + 1000n}`);
});

test('a request whose sizes add up beyond 64 bits is rejected with the figures', async () => {
  await addHuge('/sum', 'SUM', 3);
  await makeRequest(app, { quota: 'greedy', files: ['/good/1'] });
  const used = await readUsed(app, 'greedy');
  for (const wish of [{ patterns: '/sum/' }, { files: ['/sum/0', '/sum/1'] }, { files: ['/sum/0'] }]) {
    const { status, body } = await post(app, { quota: 'greedy', ...wish });
    const requested = MAX * ('patterns' in wish ? 3n : BigInt(wish.files.length));
    const message = describeFullQuota({ user: 'greedy', size: MAX, used: BigInt(String(used)), requested });
    expect({ status, body }).toEqual({ status: 403, body: errorBody(message) });
  }
  const query = 'query ($input: CreateRequestInput!) { estimateRequest(input: $input) { estimate { bytes hasRoom } } }';
  const input = { quota: 'greedy', pattern: '/sum/' };
  expect(await askData(app, query, { input })).toEqual({
    estimateRequest: { estimate: { bytes: String(3n * MAX), hasRoom: false } },
  });
});

test('a huge file that does not fit into a quota keeps no other file from joining', async () => {
  await addQuota(app.ctx, 'bob', 2500n);
  await addQuota(app.ctx, 'carl', 2500n);
  const huge = await makeRequest(app, { quota: 'bob', patterns: '/late/huge' });
  const small = await makeRequest(app, { quota: 'carl', patterns: '/late/small' });
  await makeRequest(app, { quota: 'bob', files: ['/good/1'] });
  const held = await makeRequest(app, { quota: 'carl', files: ['/good/1'] });
  await addHuge('/late/huge', 'LATE', 1);
  await addTaped(app.ctx, library, [{ path: '/late/small', volume: 'SMALL', size: 2000 }]);
  expect(await unresolvedOf(huge)).toEqual(['/late/huge/0 QUOTA_FULL']);
  expect(await unresolvedOf(small)).toEqual(['/late/small QUOTA_FULL']);
  await cancel(app, held);
  await waitFor('the small file to be restored', async () => (await readStage(app, '/late/small')) === 'R');
  expect(await unresolvedOf(huge)).toEqual(['/late/huge/0 QUOTA_FULL']);
});

test('an import that would charge a user beyond 64 bits is rejected with the user and the figures', async () => {
  await addQuota(app.ctx, 'grows', MAX);
  await addFiles(
    app.ctx,
    [1n, 2n].map((n) => ({ path: `/grows/${n}`, size: 10n, volume: 'GROWS', position: n })),
  );
  await suspend(app, { kind: 'VOLUME', name: 'GROWS', mode: 'IMMEDIATE', reason: 'away' });
  const id = await makeRequest(app, { quota: 'grows', patterns: '/grows/' });
  const importSize = (size: bigint) =>
    runCli(['import', '-'], {
      env: { DATABASE_URL: app.databaseUrl },
      stdin: `path,size\n/grows/1,${size}\n/grows/2,${size}\n`,
    });
  const told = `the import would increase the total size of the files requested by user "grows" from 20 to ${2n * MAX} bytes; the maximum is ${MAX} bytes`;
  expect(await importSize(MAX)).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(`nothing was imported:\n  ${told}\n`),
  });
  expect(await readUsed(app, 'grows')).toBe(20);
  expect(await importSize(MAX / 2n)).toMatchObject({ code: 0 });
  expect(BigInt(String(await readUsed(app, 'grows')))).toBe(MAX - 1n);
  await cancel(app, id);
});

test('the plan, a waiting request and the doctor work with a queue of such sizes', async () => {
  const users = Array.from({ length: 10 }, (_, n) => `user${n}`);
  await addHuge('/queue', 'QUEUE', users.length);
  for (const [n, user] of users.entries()) {
    await addQuota(app.ctx, user, MAX);
    await makeRequest(app, { quota: user, files: [`/queue/${n}`] });
  }
  const { plan } = await askData<{ plan: { queue: Edges<object> } }>(
    app,
    '{ plan { queue { edges { node { bytes startsAt endsAt volumeName } } } } }',
  );
  expect(plan.queue.edges.map(({ node }) => node)).toEqual([
    { volumeName: 'QUEUE', bytes: String(10n * MAX), startsAt: expect.any(String), endsAt: '9999-12-31T23:59:59Z' },
  ]);
  const query = 'query ($id: Int!) { request(requestId: $id) { waiting { bytes end { latest } } } }';
  const id = await makeRequest(app, { quota: 'user0', files: ['/queue/unknown'] });
  expect(await askData(app, query, { id: id - 1 })).toEqual({
    request: { waiting: { bytes: String(MAX), end: null } },
  });
  await suspend(app, { kind: 'VOLUME', name: 'QUEUE', mode: 'IMMEDIATE', reason: 'away' });
  expect(JSON.stringify(await askData(app, '{ plan { bytesWaiting queue { edges { node { bytes } } } } }'))).toContain(
    String(10n * MAX),
  );
  expect(await findFaults(app)).toEqual([]);
});
