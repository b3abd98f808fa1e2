/** Folders of the catalogue, as GraphQL tells them to whoever clicks through it. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { setPathRule } from '../../src/operations/access/path-rules.js';
import { createToken } from '../../src/operations/access/tokens.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';

let app: TestApp;
let token: string;

beforeAll(async () => {
  app = await startApp({ config: { access: { auth: new Set(['token']) } } });
  await addQuota(app.ctx, 'alice', 1_000_000n);
  const paths = [
    '/ocean/2023/a.nc',
    '/ocean/2024/a.nc',
    '/ocean/2024/b/c.nc',
    '/ocean/2024.txt',
    '/ocean 2/x',
    '/secret/y',
  ];
  await addFiles(
    app.ctx,
    paths.map((path) => ({ path })),
  );
  await addFiles(
    app.ctx,
    Array.from({ length: 1001 }, (_, n) => ({ path: `/many/${n}/file` })),
  );
  await setPathRule(app.ctx, { prefix: '/secret/', action: 'LIST', kind: 'USER', name: 'bob' });
  token = (await createToken(app.ctx, { name: 'alice', role: 'USER' })).secret;
});
afterAll(() => app.close());

interface Folder {
  path: string;
  hasMore: boolean;
  entries: { path: string; isFolder: boolean; size: string | null }[];
}

const look = async (path: string) => {
  const query = 'query ($path: String!) { folder(path: $path) { path hasMore entries { path isFolder size } } }';
  return (await askData<{ folder: Folder }>({ url: app.url, token }, query, { path })).folder;
};
const namesIn = async (path: string) =>
  (await look(path)).entries.map((entry) => `${entry.path}${entry.isFolder ? '/' : ''}`);

test('a folder has its files and its folders by name, of what the caller may list', async () => {
  expect(await namesIn('/')).toEqual(['/many/', '/ocean/', '/ocean 2/']);
  expect(await namesIn('/ocean')).toEqual(['/ocean/2023/', '/ocean/2024/', '/ocean/2024.txt']);
  expect(await look('/ocean/2024/')).toEqual({
    path: '/ocean/2024',
    hasMore: false,
    entries: [
      { path: '/ocean/2024/a.nc', isFolder: false, size: '1000' },
      { path: '/ocean/2024/b', isFolder: true, size: null },
    ],
  });
});

test('one of which nobody knows, and one that the caller may not list, are empty alike', async () => {
  expect(await look('/nothing')).toEqual({ path: '/nothing', hasMore: false, entries: [] });
  expect(await look('/secret')).toEqual({ path: '/secret', hasMore: false, entries: [] });
});

test('a folder of more than a thousand says that there are more', async () => {
  const { entries, hasMore } = await look('/many');
  expect([entries.length, hasMore]).toEqual([1000, true]);
});
