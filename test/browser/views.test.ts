/** Each view of the dashboard is accessible, fits each width, works with the keyboard alone, and updates live. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createRequest } from '../../src/domain/requests/create.js';
import { startApp, type TestApp } from '../support/app.js';
import { expectEachLook, useBrowser } from '../support/chromium.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { createGate } from '../support/wait.js';

const open = useBrowser();
const mounts = createGate();
let app: TestApp;

beforeAll(async () => {
  const library = createMemoryLibrary();
  library.onMount = async () => await mounts.opened;
  app = await startApp({ library, config: { drives: 1 } });
  for (const user of ['alice', 'bob']) await addQuota(app.ctx, user, 10n ** 9n);
  const long = `/archive/${'a-very-long-name-of-a-folder/'.repeat(6)}file.nc`;
  await addFiles(app.ctx, [
    { path: long, size: 123_456_789n },
    { path: '/archive/one.nc', stage: 'ONDISK' },
    { path: '/archive/two.nc', volume: null, position: null },
  ]);
  const volumes = ['SITE00', 'SITE01', 'SITE02'];
  await addTaped(
    app.ctx,
    library,
    volumes.map((volume) => ({ path: `/site/${volume}`, volume, size: 1000 })),
  );
  await createRequest(app.ctx, { quota: 'alice', files: [long, '/archive/one.nc', '/archive/none.nc'], label: 'sums' });
  await createRequest(app.ctx, { quota: 'alice', pattern: '/site/' });
});
afterAll(async () => {
  mounts.open();
  await app?.close();
});

/** A view, and a text that the complete view shows. */
type View = [address: string, text: string | RegExp];

const userViews: View[] = [
  ['#/', '6 files'],
  ['#/files?match=%2Farchive', 'all files with "/archive" in their path'],
  ['#/requests', '2 requests'],
  ['#/requests/1', 'Paths not yet in the request'],
  ['#/requests/99', 'Request 99 does not exist, or you are not allowed to see it.'],
  ['#/quotas', 'alice'],
  ['#/quotas/alice', 'Requests of this quota'],
  ['#/nothing', 'This page does not exist.'],
];

test('each view of users is accessible and fits at each width, light and dark', async () => {
  const window = await open(`${app.url}/#/`);
  for (const [address, text] of userViews) {
    await window.page.goto(`${app.url}/${address}`);
    await window.page.getByRole('main').getByText(text).first().waitFor();
    await expectEachLook(window);
  }
});

test('signing in with a token that an open gateway does not know is rejected', async () => {
  const { page } = await open(`${app.url}/#/sign-in`);
  await page.getByLabel('Token').fill('other');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('alert').getByText('This token is not valid.').waitFor();
  expect(page.url()).toBe(`${app.url}/#/sign-in`);
});

test('GraphiQL opens with operations, and runs them', async () => {
  const { page, faults } = await open(`${app.url}/graphql`);
  await page.getByText('Tapegate restores files from tape.').waitFor();
  await page.getByRole('button', { name: 'Execute query (Ctrl-Enter)' }).click();
  await page.getByRole('menuitem', { name: 'Files', exact: true }).click();
  await page.getByText('"totalCount": 0').waitFor();
  expect(faults).toEqual([]);
});

test('the catalogue can be browsed by directory', async () => {
  const { page } = await open(`${app.url}/#/files`);
  const folders = page.getByRole('navigation', { name: 'Folders in /', exact: true });
  await folders.getByRole('button', { name: 'archive/' }).click();
  await expect.poll(() => page.getByRole('searchbox').inputValue()).toBe('/archive/');
  await page.getByText(/^\d+ files?$/).waitFor();
  await page.getByRole('button', { name: 'All files' }).click();
  await expect.poll(() => page.getByRole('searchbox').inputValue()).toBe('');
});

test('Back returns from a directory, from a search of any length, and from the files', async () => {
  const { page } = await open(`${app.url}/#/requests`);
  await page.getByRole('link', { name: 'Files', exact: true }).click();
  await page.getByRole('button', { name: 'archive/' }).click();
  const searched = () => expect.poll(() => page.getByRole('searchbox').inputValue());
  await searched().toBe('/archive/');
  for (const text of ['one', 'one.', 'one.n']) {
    await page.getByRole('searchbox').fill(text);
    await page.waitForURL(`${app.url}/#/files?match=${text}`);
  }
  await page.goBack();
  await searched().toBe('/archive/');
  await page.goBack();
  await searched().toBe('');
  await page.goBack();
  await page.getByRole('heading', { name: 'Requests' }).waitFor();
});

test('a request can be made with the keyboard alone', async () => {
  const { page } = await open(`${app.url}/#/files`);
  await page.getByText('6 files').waitFor();
  const focused = async () => await page.evaluate('document.activeElement.textContent || document.activeElement.type');
  await page.keyboard.press('Tab');
  expect(await focused()).toBe('Skip to the content');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Tab');
  await page.keyboard.type('/archive/one');
  await page.getByText('1 file', { exact: true }).waitFor();
  const press = async (name: string) => {
    for (let n = 0; n < 20 && (await focused()) !== name; n++) await page.keyboard.press('Tab');
    expect(await focused()).toBe(name);
    await page.keyboard.press('Enter');
  };
  await press('Estimate');
  await page.getByRole('button', { name: 'Restore 1 file' }).waitFor();
  await press('Restore 1 file');
  await page.getByRole('heading', { name: /^Request \d+ Complete$/ }).waitFor();
  expect(await page.title()).toMatch(/^Request \d+ · Tapegate$/);
});

test('a screen reader reads the state, the progress and the current view', async () => {
  const { page } = await open(`${app.url}/#/requests`);
  const row = page.getByRole('row').filter({ hasText: 'sums' });
  await row.waitFor();
  expect(await row.ariaSnapshot()).toMatch(
    /link "1 sums"[\s\S]*cell "(Queued|Restoring)"[\s\S]*progressbar "Request 1: files on disk"[\s\S]*1 of 3 files.*; 1 unresolved path/,
  );
  const link = page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: 'Requests', exact: true });
  expect(await link.getAttribute('aria-current')).toBe('page');
});
