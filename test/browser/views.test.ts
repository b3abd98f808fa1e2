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
  ['#/files/archive', 'one.nc'],
  ['#/files?q=archive', '/archive/two.nc'],
  ['#/requests', '2 requests'],
  ['#/requests/1', /1 name not found/],
  ['#/requests/1?tab=details', 'Paths not yet in the request'],
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
  await expect.poll(() => page.url()).toBe(`${app.url}/#/sign-in`);
});

test('GraphiQL opens with operations, and runs them', async () => {
  const { page, faults } = await open(`${app.url}/graphql`);
  await page.getByText('Tapegate restores files from tape.').waitFor();
  await page.getByRole('button', { name: 'Execute query (Ctrl-Enter)' }).click();
  await page.getByRole('menuitem', { name: 'Files', exact: true }).click();
  await page.getByText('"totalCount": 0').waitFor();
  expect(faults).toEqual([]);
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
