/** What a site may say of requests, whoever makes them and however. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { Limits } from '../../src/config-limits.js';
import { setQuota } from '../../src/operations/quotas/quotas.js';
import { joinAwaited } from '../../src/operations/requests/awaited.js';
import { startApp, startBeside, type TestApp } from '../support/app.js';
import { addFiles } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { cancel, create, made, update } from '../support/mutations.js';
import { viewRequest } from '../support/request-view.js';
import { errorBody, makeRequest, post, put, readRequest } from '../support/rest.js';
import { dumpTables, emptyTables } from '../support/tables.js';

let first: TestApp;
let app: TestApp;
beforeAll(async () => {
  first = await startApp();
});
afterEach(() => app.close());
afterAll(() => first.close());

async function start(limits: Partial<Limits>): Promise<void> {
  await emptyTables(first.ctx);
  app = await startBeside(first, { limits });
  await setQuota(app.ctx, { user: 'alice', size: 1000n, email: 'alice@site.org' });
}

test('a request names a bounded number of paths, and its pattern has its least length', async () => {
  await start({ requestPaths: 3, patternLength: 4 });
  const files = ['/a', '/b', '/c', '/d'];
  const many = 'must name at most 3 paths, not 4';
  const short = 'must have at least 4 characters, not 3';
  expect((await post(app, { quota: 'alice', files })).body).toEqual(errorBody(`files ${many}`));
  expect((await post(app, { quota: 'alice', patterns: '/\u{1F600}a' })).body).toEqual(errorBody(`patterns ${short}`));
  expect(await create(app, { quota: 'alice', files })).toMatchObject({ field: 'files', message: `files ${many}` });
  expect(await create(app, { quota: 'alice', pattern: '/ab' })).toMatchObject({ message: `pattern ${short}` });
  await makeRequest(app, { quota: 'alice', files: [...files.slice(1), '/d'] });
  await makeRequest(app, { quota: 'alice', patterns: '/abc' });
});

test('a request has a bounded number of files in all, however it names them and whatever its own limit is', async () => {
  await start({ requestFiles: 2 });
  const add = (...names: string[]) =>
    addFiles(
      app.ctx,
      names.map((name) => ({ path: `/all/${name}`, size: 1n, stage: 'ONDISK' })),
    );
  await add('a', 'b', 'c');
  const before = await dumpTables(app.ctx);
  const message = 'files of a request may be 2 (REQUEST_FILES), and it takes 3';
  const files = ['/all/a', '/all/b', '/all/c', '/all/never'];
  for (const [input, contract] of [
    [{ files }, { files }],
    [{ pattern: '/all/' }, { patterns: '/all/' }],
  ]) {
    const posted = await post(app, { quota: 'alice', ...contract });
    expect([posted.status, posted.body]).toEqual([400, errorBody(message)]);
    expect(await create(app, { quota: 'alice', ...input, maxFiles: 10 })).toMatchObject({ field: 'files', message });
    const estimate = `query ($input: CreateRequestInput!) { result: estimateRequest(input: $input) { ... on Failure { message } } }`;
    expect(await askData(app, estimate, { input: { quota: 'alice', ...input } })).toEqual({ result: { message } });
  }
  expect(await dumpTables(app.ctx)).toEqual(before);
  // what appears later joins up to the limit, and the rest stays out visibly
  const id = await made(app, { quota: 'alice', pattern: '/all/later', maxFiles: 10 });
  const narrow = await made(app, { quota: 'alice', pattern: '/all/later', maxFiles: 1 });
  await add('later1', 'later2', 'later3');
  await joinAwaited(app.ctx);
  const look = async (request: number) => {
    const { holds, awaited } = await viewRequest(app, request);
    return [holds.map(({ path }) => path), awaited.map(({ path, reason }) => `${path} ${reason}`)];
  };
  expect(await look(id)).toEqual([['/all/later1', '/all/later2'], ['/all/later3 LIMIT']]);
  expect(await look(narrow)).toEqual([['/all/later1'], ['/all/later2 LIMIT', '/all/later3 LIMIT']]);
  app.ctx.config.limits.requestFiles = 3;
  await joinAwaited(app.ctx);
  expect(await look(id)).toEqual([['/all/later1', '/all/later2', '/all/later3'], []]);
  // what is beyond it by now lives on, and is not revived
  app.ctx.config.limits.requestFiles = 2;
  await joinAwaited(app.ctx);
  expect(await update(app, { id, label: 'mine' })).toMatchObject({ __typename: 'Request', filesTotal: 3 });
  await cancel(app, id);
  expect(await update(app, { id, retention: '2999-01-01T00:00:00' })).toMatchObject({ field: 'files', message });
});

test.each([
  ['quota', ['alice@site.org', 'Alice@Site.org', ''], ['eve@site.org', 'alice@site.org.evil.org', 'eve@evil.org'], ''],
  [
    ['site.org', 'other.org'],
    ['eve@SITE.org', 'bob@other.org', ''],
    ['eve@evil.org', 'eve@sub.site.org', 'e@nosite.org'],
    ', or one of site.org, other.org',
  ],
] as const)('mail goes only where MAIL_TO says: %s', async (mailTo, allowed, refused, others) => {
  await start({ mailTo });
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  const says = (address: string) => `must be the address of the quota itself${others}, not "${address}"`;
  for (const address of refused) {
    for (const [field, name] of [
      ['notify_on_first_file', 'notifyOnFirstFile'],
      ['notify_on_last_file', 'notifyOnLastFile'],
    ] as const) {
      const bad = [400, errorBody(`${field} ${says(address)}`)];
      const posted = await post(app, { quota: 'alice', patterns: '/a/', [field]: address });
      const changed = await put(app, id, { quota: 'alice', [field]: address });
      expect([posted.status, posted.body]).toEqual(bad);
      expect([changed.status, changed.body]).toEqual(bad);
      const message = `${name} ${says(address)}`;
      expect(await create(app, { quota: 'alice', pattern: '/a/', [name]: address })).toMatchObject({ message });
      expect(await update(app, { id, [name]: address })).toMatchObject({ message });
    }
  }
  for (const address of allowed) {
    expect((await put(app, id, { quota: 'alice', notify_on_last_file: address })).status).toBe(200);
    expect((await readRequest(app, id)).notify_on_last_file).toBe(address || 'alice@site.org');
  }
});

test('mail goes anywhere unless the site says otherwise', async () => {
  await start({});
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/', notify_on_first_file: 'eve@evil.org' });
  expect((await readRequest(app, id)).notify_on_first_file).toBe('eve@evil.org');
});
