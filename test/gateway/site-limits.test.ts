/** Limits that a site sets for requests, on each protocol. */
import { afterEach, expect, test } from 'vitest';
import type { Limits } from '../../src/config/config.js';
import { setQuota } from '../../src/domain/quotas/quotas.js';
import { joinUnresolved } from '../../src/domain/requests/joins.js';
import { startBeside, type TestApp } from '../support/app.js';
import { expectError } from '../support/contract.js';
import { addPaths } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { cancel, create, made, update } from '../support/mutations.js';
import { viewRequest } from '../support/request-view.js';
import { makeRequest, post, put, readRequest } from '../support/rest.js';
import { dumpTables, emptyTables } from '../support/tables.js';
import { useApp } from '../support/use-app.js';

const first = useApp();
let app: TestApp;
afterEach(() => app.close());

async function start(limits: Partial<Limits>): Promise<void> {
  await emptyTables(first.ctx);
  app = await startBeside(first, { limits });
  await setQuota(app.ctx, { user: 'alice', size: 10_000n, email: 'alice@site.org' });
}

test('the number of paths and the length of a pattern are limited', async () => {
  await start({ requestPaths: 3, patternLength: 4 });
  const files = ['/a', '/b', '/c', '/d'];
  const many = 'must name at most 3 paths, not 4';
  const short = 'must have at least 4 characters, not 3';
  await expectError(post(app, { quota: 'alice', files }), 400, `files ${many}`);
  await expectError(post(app, { quota: 'alice', patterns: '/\u{1F600}a' }), 400, `patterns ${short}`);
  for (const given of [files, ['no path', ...files.slice(1)]]) {
    const input = { quota: 'alice', files: given };
    expect(await create(app, input)).toMatchObject({ field: 'files', message: `files ${many}` });
    const estimate = `query ($input: CreateRequestInput!) { result: estimateRequest(input: $input) { estimate { fileCount } errors { message } } }`;
    expect(await askData(app, estimate, { input })).toEqual({
      result: { estimate: null, errors: [{ message: `files ${many}` }] },
    });
  }
  expect(await create(app, { quota: 'alice', pattern: '/ab' })).toMatchObject({ message: `pattern ${short}` });
  await makeRequest(app, { quota: 'alice', files: [...files.slice(1), '/d'] });
  await makeRequest(app, { quota: 'alice', patterns: '/abc' });
});

test('the number of files of a request is limited, with a list and with a pattern, and files that appear later wait', async () => {
  await start({ requestFiles: 2 });
  await addPaths(app.ctx, '/all/a', '/all/b', '/all/c');
  const before = await dumpTables(app.ctx);
  const message = 'files must not exceed 2 in one request (TAPEGATE_REQUEST_FILES): the request would contain 3 files';
  const files = ['/all/a', '/all/b', '/all/c', '/all/never'];
  for (const [input, contract] of [
    [{ files }, { files }] as const,
    [{ pattern: '/all/' }, { patterns: '/all/' }] as const,
  ]) {
    await expectError(post(app, { quota: 'alice', ...contract }), 400, message);
    expect(await create(app, { quota: 'alice', ...input, maxFiles: 10 })).toMatchObject({ field: 'files', message });
    const estimate = `query ($input: CreateRequestInput!) { result: estimateRequest(input: $input) { estimate { fileCount } errors { message } } }`;
    expect(await askData(app, estimate, { input: { quota: 'alice', ...input } })).toEqual({
      result: { estimate: null, errors: [{ message }] },
    });
  }
  expect(await dumpTables(app.ctx)).toEqual(before);
  // files that appear later join up to the limit; further files are reported as excluded
  const id = await made(app, { quota: 'alice', pattern: '/all/later', maxFiles: 10 });
  const narrow = await made(app, { quota: 'alice', pattern: '/all/later', maxFiles: 1 });
  await addPaths(app.ctx, '/all/later1', '/all/later2', '/all/later3');
  await joinUnresolved(app.ctx);
  const look = async (request: number) => {
    const { files, unresolved } = await viewRequest(app, request);
    return [files.map(({ path }) => path), unresolved.map(({ path, reason }) => `${path} ${reason}`)];
  };
  expect(await look(id)).toEqual([['/all/later1', '/all/later2'], ['/all/later3 LIMIT']]);
  expect(await look(narrow)).toEqual([['/all/later1'], ['/all/later2 LIMIT', '/all/later3 LIMIT']]);
  app.ctx.config.limits.requestFiles = 3;
  await joinUnresolved(app.ctx);
  expect(await look(id)).toEqual([['/all/later1', '/all/later2', '/all/later3'], []]);
  // a live request beyond a lowered limit stays live, but cannot be revived
  app.ctx.config.limits.requestFiles = 2;
  await joinUnresolved(app.ctx);
  expect(await update(app, { requestId: id, label: 'mine' })).toMatchObject({ __typename: 'Request', filesTotal: 3 });
  await cancel(app, id);
  expect(await update(app, { requestId: id, retention: '2999-01-01T00:00:00' })).toMatchObject({
    field: 'files',
    message,
  });
});

test.each([
  ['quota', ['alice@site.org', 'Alice@Site.org', ''], ['eve@site.org', 'alice@site.org.evil.org'], ''],
  [
    ['site.org', 'other.org'],
    ['eve@SITE.org', 'bob@other.org', ''],
    ['eve@sub.site.org', 'e@nosite.org'],
    ', or be in one of the domains site.org, other.org',
  ],
] as const)('email addresses must be allowed by TAPEGATE_MAIL_TO: %s', async (mailTo, allowed, refused, others) => {
  await start({ mailTo });
  const id = await makeRequest(app, { quota: 'alice', patterns: '/a/' });
  const says = (address: string) => `must be the quota's own address${others}, not "${address}"`;
  for (const address of refused) {
    const bad = `notify_on_first_file ${says(address)}`;
    await expectError(post(app, { quota: 'alice', patterns: '/a/', notify_on_first_file: address }), 400, bad);
    await expectError(put(app, id, { quota: 'alice', notify_on_first_file: address }), 400, bad);
    const message = `notifyOnLastFile ${says(address)}`;
    const input = { quota: 'alice', pattern: '/a/', notifyOnLastFile: address };
    expect(await create(app, input)).toMatchObject({ message });
    expect(await update(app, { requestId: id, notifyOnLastFile: address })).toMatchObject({ message });
  }
  for (const address of allowed) {
    expect((await put(app, id, { quota: 'alice', notify_on_last_file: address })).status).toBe(200);
    expect((await readRequest(app, id)).notify_on_last_file).toBe(address || 'alice@site.org');
  }
});
