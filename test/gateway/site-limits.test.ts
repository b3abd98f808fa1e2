/** What a site may say of requests, whoever makes them and however. */
import { afterEach, expect, test } from 'vitest';
import type { Limits } from '../../src/config-limits.js';
import { setQuota } from '../../src/operations/quotas/quotas.js';
import { startApp, type TestApp } from '../support/app.js';
import { create, update } from '../support/mutations.js';
import { errorBody, makeRequest, post, put, readRequest } from '../support/rest.js';

let app: TestApp;
afterEach(() => app.close());

async function start(limits: Partial<Limits>): Promise<void> {
  app = await startApp({ limits });
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
