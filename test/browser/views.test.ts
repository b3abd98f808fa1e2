/** Each view of the dashboard as people meet it: of any width, in the dark, by keys alone, and read aloud. */
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { createRequest } from '../../src/operations/requests/create.js';
import { startApp, type TestApp } from '../support/app.js';
import { expectAccessible, expectToFit, openBrowser, openWindow } from '../support/chromium.js';
import { addFiles, addQuota } from '../support/factories.js';

let browser: Browser;
let app: TestApp;

beforeAll(async () => {
  browser = await openBrowser();
  app = await startApp();
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addQuota(app.ctx, 'bob', 10n ** 9n);
  const long = `/archive/${'a-very-long-name-of-a-folder/'.repeat(6)}file.nc`;
  await addFiles(app.ctx, [
    { path: long, size: 123_456_789n },
    { path: '/archive/one.nc', stage: 'ONDISK' },
    { path: '/archive/two.nc', volume: null, position: null },
  ]);
  await createRequest(app.ctx, { quota: 'alice', files: [long, '/archive/one.nc', '/archive/none.nc'], label: 'sums' });
}, 120_000);
afterEach(async () => {
  for (const context of browser.contexts()) await context.close();
});
afterAll(async () => {
  await browser?.close();
  await app?.close();
});

/** Where a view is, and what it shows when it is all there. */
const views: [place: string, shown: string][] = [
  ['#/', '3 files'],
  ['#/files?match=%2Farchive', 'all with "/archive" in their path'],
  ['#/requests', '1 request'],
  ['#/requests/1', 'Not in the request yet'],
  ['#/requests/99', 'There is no request 99 that you may see.'],
  ['#/quotas', 'alice'],
  ['#/quotas/alice', 'Its requests'],
  ['#/nothing', 'There is nothing at this address.'],
];

const looks = [
  { width: 360, height: 740, colorScheme: 'light' },
  { width: 1280, height: 800, colorScheme: 'dark' },
  { width: 2560, height: 1440, colorScheme: 'light' },
] as const;

test.each(views)('%s is accessible and fits at each width, in the light and in the dark', async (place, shown) => {
  for (const { colorScheme, ...viewport } of looks) {
    const window = await openWindow(browser, `${app.url}/${place}`, { viewport, colorScheme });
    await window.page.getByText(shown).first().waitFor();
    await expectAccessible(window);
    await expectToFit(window);
    expect(window.faults).toEqual([]);
    await window.context.close();
  }
});

test('the page of the REST contract is accessible and fits at each width, in the light and in the dark', async () => {
  for (const { colorScheme, ...viewport } of looks) {
    const window = await openWindow(browser, `${app.url}/openapi`, { viewport, colorScheme });
    await window.page.getByRole('heading', { name: 'PUT /requests/{id}' }).waitFor();
    await expectAccessible(window);
    await expectToFit(window);
    expect([window.faults, [...window.hosts]]).toEqual([[], [new URL(app.url).host]]);
    await window.context.close();
  }
});

test('GraphiQL opens with operations, and runs them', async () => {
  const { page, faults } = await openWindow(browser, `${app.url}/graphql`);
  await page.getByText('Tapegate restores files from tape.').waitFor();
  await page.getByRole('button', { name: 'Execute query (Ctrl-Enter)' }).click();
  await page.getByRole('menuitem', { name: 'Files', exact: true }).click();
  await page.getByText('"totalCount": 0').waitFor();
  expect(faults).toEqual([]);
});

test('the catalogue is clicked through, folder by folder, and back', async () => {
  const { page } = await openWindow(browser, `${app.url}/#/files`);
  await page
    .getByRole('navigation', { name: 'Folders in /', exact: true })
    .getByRole('button', { name: 'archive/' })
    .click();
  await expect.poll(() => page.getByRole('searchbox').inputValue()).toBe('/archive/');
  await page.getByText(/^\d+ files?$/).waitFor();
  await page.getByRole('button', { name: 'All files' }).click();
  await expect.poll(() => page.getByRole('searchbox').inputValue()).toBe('');
});

test('files are asked for by keys alone, and each step is told', async () => {
  const { page } = await openWindow(browser, `${app.url}/#/files`);
  await page.getByText('3 files').waitFor();
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
  await press('What would it take?');
  await page.getByRole('button', { name: 'Restore 1 file' }).waitFor();
  await press('Restore 1 file');
  await page.getByRole('heading', { name: 'Request 2 Complete' }).waitFor();
  expect(await page.title()).toBe('Request 2 · Tapegate');
});

test('what is read aloud says what can be seen', async () => {
  const { page } = await openWindow(browser, `${app.url}/#/requests`);
  await page.getByText('request', { exact: false }).first().waitFor();
  const card = page.getByRole('listitem').filter({ hasText: 'sums' });
  await card.waitFor();
  expect(await card.ariaSnapshot()).toMatch(
    /link "1 sums"[\s\S]*text: Queued[\s\S]*progressbar "Request 1: files that are there"[\s\S]*1 of 2 files/,
  );
  const nav = page.getByRole('navigation', { name: 'Views' });
  await expect(nav.getByRole('link', { name: 'Requests', exact: true }).getAttribute('aria-current')).resolves.toBe(
    'page',
  );
});
