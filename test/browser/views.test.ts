/** Each view of the dashboard is accessible, fits each width, works with the keyboard alone, and updates live. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createToken } from '../../src/domain/access/tokens.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { startApp, type TestApp } from '../support/app.js';
import { expectAccessible, expectToFit, signIn, useBrowser, type Window } from '../support/chromium.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { resume } from '../support/suspend.js';
import { createGate } from '../support/wait.js';

const open = useBrowser();
const mounts = createGate();
let app: TestApp;
let viewer: string;

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
  viewer = (await createToken(app.ctx, { name: 'watcher', role: 'VIEWER' })).secret;
});
afterAll(async () => {
  mounts.open();
  await app?.close();
});

const openAs = async (token: string, view: string): Promise<Window> => {
  const window = await open(`${app.url}/#/sign-in`);
  await signIn(window, token);
  await window.page.goto(`${app.url}/${view}`);
  return window;
};

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

const operatorViews: View[] = [
  ['#/plan', 'SITE02'],
  ['#/curves', 'Charts'],
  ['#/volumes', 'SITE01'],
  ['#/disks', /restore/],
  ['#/libraries', 'Libraries'],
  ['#/suspensions', 'Out of service'],
  ['#/users', 'alice'],
  ['#/failures', 'Tape copies that could not be verified'],
  ['#/processes', 'Gateways and engines'],
  ['#/audit', 'createToken'],
];

/** Checks the page in a narrow and in a wide window, in both colour schemes. */
async function expectEachLook(window: Window): Promise<void> {
  const { page, faults } = window;
  for (const [width, colorScheme] of [[360, 'light'] as const, [1280, 'dark'] as const]) {
    await page.setViewportSize({ width, height: 740 });
    await page.emulateMedia({ colorScheme });
    await expectAccessible(window);
    await expectToFit(window);
  }
  await page.setViewportSize({ width: 2560, height: 1440 });
  await expectToFit(window);
  expect(faults).toEqual([]);
}

test.each([
  { who: 'users', views: userViews, open: () => open(`${app.url}/#/`) },
  { who: 'operators', views: operatorViews, open: () => openAs(app.token, '#/plan') },
])('each view of $who is accessible and fits at each width, light and dark', async ({ views, open }) => {
  const window = await open();
  for (const [address, text] of views) {
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

test('a volume that an operator suspends, with a reason, and resumes elsewhere changes in all windows that show it', async () => {
  const operator = await openAs(app.token, '#/volumes');
  const watching = await openAs(viewer, '#/suspensions');
  const auditing = await openAs(app.token, '#/audit');
  await auditing.page.getByText('createToken').first().waitFor();
  const suspend = operator.page.getByRole('button', { name: 'Suspend SITE02' });
  await suspend.click();
  await operator.page.getByLabel('Reason for taking SITE02 out of service').fill('its label came off');
  await suspend.click();
  for (const { page } of [watching, operator]) await page.getByText('its label came off').waitFor();
  await auditing.page.getByRole('cell', { name: 'suspend', exact: true }).waitFor();
  await resume(app, 'VOLUME', 'SITE02');
  for (const { page } of [watching, operator]) {
    await page.getByText('its label came off').waitFor({ state: 'detached' });
  }
  for (const { faults } of [operator, watching, auditing]) expect(faults).toEqual([]);
});

test('a viewer sees the volumes, but no controls and no audit', async () => {
  const { page } = await openAs(viewer, '#/volumes');
  await page.getByText('SITE01').waitFor();
  expect(await page.getByRole('button', { name: /suspend|drain|resume/i }).count()).toBe(0);
  expect(await page.getByRole('link', { name: 'Audit' }).count()).toBe(0);
});
