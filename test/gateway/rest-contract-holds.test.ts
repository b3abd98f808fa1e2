/** What GraphQL alone can change of a request, as REST shows it. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { made, release } from '../support/mutations.js';
import { makeRequest, readRequest, readUsed } from '../support/rest.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
  for (const user of ['alice', 'bob']) await addQuota(app.ctx, user, 10_000n);
});
afterAll(() => app.close());

test('R140 a file or path that was released is not in the files of its request, and not charged', async () => {
  await addFiles(app.ctx, [
    { path: '/r/a', size: 1n },
    { path: '/r/b', size: 10n },
    { path: '/r/c', size: 100n },
  ]);
  const listed = await makeRequest(app, { quota: 'alice', files: ['/r/x', '/r/c', '/r/b', '/r/a', '/r/y'] });
  const matched = await makeRequest(app, { quota: 'alice', patterns: '/r/' });
  await release(app, { id: listed, paths: ['/r/b', '/r/x'] });
  await release(app, { id: matched, match: 'c' });
  expect((await readRequest(app, listed)).files).toEqual(['/r/c', '/r/a', '/r/y']);
  expect((await readRequest(app, matched)).files).toEqual(['/r/a', '/r/b']);
  expect(await readUsed(app, 'alice')).toBe(101 + 11);
});

test('R141 a file that appears beyond the limits of its request is listed and not charged', async () => {
  const id = await made(app, { quota: 'bob', pattern: '/l/', maxFiles: 1 });
  await addFiles(app.ctx, [
    { path: '/l/a', size: 1n },
    { path: '/l/b', size: 10n },
  ]);
  expect((await readRequest(app, id)).files).toEqual(['/l/a', '/l/b']);
  expect(await readUsed(app, 'bob')).toBe(1);
});
