/** What one chooses and wishes for in the dashboard before a request is made, and where it is found when it has ended. */
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { expectAccessible, expectToFit, openBrowser, openWindow } from '../support/chromium.js';
import { addFiles, addQuota } from '../support/factories.js';

let browser: Browser;
let app: TestApp;

beforeAll(async () => {
  browser = await openBrowser();
  app = await startApp();
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addFiles(app.ctx, [{ path: '/ice/north.nc' }, { path: '/ice/south.nc' }, { path: '/wind/north.nc' }]);
}, 120_000);
afterEach(async () => {
  for (const context of browser.contexts()) await context.close();
});
afterAll(async () => {
  await browser?.close();
  await app?.close();
});

const narrow = { viewport: { width: 360, height: 740 } };

test('what is chosen is shown whatever is looked for next, and is left again one by one or altogether', async () => {
  const window = await openWindow(browser, `${app.url}/#/files?match=/ice`, narrow);
  const { page, faults } = window;
  await page.getByLabel('Choose /ice/north.nc').check();
  await page.getByLabel('Choose /ice/south.nc').check();
  await page.getByLabel('Part of a path').fill('/wind');
  await page.getByText('1 file', { exact: true }).waitFor();
  await page.getByText('2 files chosen: which').click();
  await page.getByRole('listitem').filter({ hasText: '/ice/south.nc' }).waitFor();
  await expectAccessible(window);
  await expectToFit(window);
  await page.getByRole('button', { name: 'Leave /ice/south.nc' }).click();
  await page.getByRole('heading', { name: 'Ask for 1 chosen file' }).waitFor();
  await page.getByRole('button', { name: 'Choose none' }).click();
  await page.getByRole('heading', { name: 'Ask for all with "/wind" in their path' }).waitFor();
  expect(await page.getByText('chosen').count()).toBe(0);
  expect(faults).toEqual([]);
});

test('a request keeps its files as long as was wished, mails whom one names, and is found among the ended ones later', async () => {
  const window = await openWindow(browser, `${app.url}/#/files?match=/ice`, narrow);
  const { page, faults } = window;
  await page.getByRole('button', { name: 'What would it take?' }).click();
  const restore = page.getByRole('button', { name: 'Restore 2 files' });
  await page.getByLabel('Label').fill('for the atlas');
  await page.getByLabel('Days kept').fill('a week');
  await page.getByText('A number up to 3650').waitFor();
  expect(await restore.isDisabled()).toBe(true);
  await page.getByLabel('Days kept').fill('12');
  await page.getByLabel('Mail when it is done').check();
  await page.getByLabel('To', { exact: true }).fill('atlas@example.org');
  await expectAccessible(window);
  await expectToFit(window);
  await restore.click();
  await page.getByText('for the atlas').waitFor();
  for (const shown of ['All files with "/ice" in their path', '(in 12 days)', 'atlas@example.org']) {
    await page.getByText(shown).waitFor();
  }
  await page.getByRole('button', { name: 'Cancel the request' }).click();
  await page.getByRole('button', { name: 'Yes, cancel it' }).click();
  await page.getByRole('heading', { name: 'Cancelled' }).waitFor();
  await page.getByRole('link', { name: 'Requests', exact: true }).click();
  await page.getByText('0 requests').waitFor();
  await page.getByLabel('With those that have ended').check();
  const card = page.getByRole('listitem').filter({ hasText: 'for the atlas' });
  await card.getByText('ended just now').waitFor();
  await card.getByText('Cancelled').waitFor();
  await expectAccessible(window);
  expect(faults).toEqual([]);
});

test('mail goes to the address of the quota unless another one is named', async () => {
  const { page } = await openWindow(browser, `${app.url}/#/files?match=/wind`);
  await page.getByRole('button', { name: 'What would it take?' }).click();
  await page.getByLabel('Mail when it is done').check();
  await page.getByRole('button', { name: 'Restore 1 file' }).click();
  await page.getByText('alice@example.org').waitFor();
});

test('the curve of a quota has its place in its thirty days, with their ends, and a table', async () => {
  await app.ctx.db.pool.query(
    `INSERT INTO quota_history (quota_id, at, used, size)
     SELECT id, date_trunc('hour', now() AT TIME ZONE 'UTC') - interval '15 days', 500000, size FROM quota WHERE "user" = 'alice'`,
  );
  const window = await openWindow(browser, `${app.url}/#/quotas/alice`, narrow);
  const { page } = window;
  const line = page.locator('.curve polyline');
  await line.waitFor();
  const [first = '', ...rest] = ((await line.getAttribute('points')) ?? '').split(' ');
  expect(Number(first.split(',')[0]) / 600).toBeCloseTo(0.5, 2);
  expect(Number(rest.at(-1)?.split(',')[0])).toBe(600);
  const day = (ago: number) =>
    new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeZone: 'Europe/London' }).format(
      Date.now() - ago * 86_400_000,
    );
  await page.locator('.ends').getByText(day(30)).waitFor();
  await page.locator('.ends').getByText(day(0)).waitFor();
  await page.getByText('The same as a table').click();
  await page.getByRole('cell', { name: '500 kB' }).waitFor();
  await expectAccessible(window);
  await expectToFit(window);
});
