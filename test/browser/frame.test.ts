/** The frame of the dashboard: colours, keyboard, unknown addresses, and the tour of the demo archive. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { expectAccessible, useBrowser } from '../support/chromium.js';
import { addFiles, addQuota } from '../support/factories.js';

const open = useBrowser();
let app: TestApp;

beforeAll(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addFiles(app.ctx, [{ path: '/demo/ocean/one.nc' }]);
});
afterAll(async () => await app?.close());

test('the chosen colours stay after a reload, and a menu works with the keyboard', async () => {
  const { page, faults } = await open(`${app.url}/#/quotas`);
  const theme = () => page.evaluate<string | undefined>('document.documentElement.dataset.theme');
  await page.getByRole('button', { name: 'Theme' }).press('Enter');
  await page.getByRole('menuitemradio', { name: 'Dark' }).press('Enter');
  expect(await theme()).toBe('dark');
  await page.reload();
  await page.getByRole('button', { name: 'Theme' }).waitFor();
  expect(await theme()).toBe('dark');
  expect(faults).toEqual([]);
});

test('the help lists the keys of the view, and closes with Escape', async () => {
  const window = await open(`${app.url}/#/requests`);
  const { page } = window;
  await page.getByRole('searchbox').waitFor();
  await page.keyboard.press('?');
  const help = page.getByRole('dialog', { name: 'Keyboard shortcuts' });
  await help.getByText('Search').waitFor();
  await expectAccessible(window);
  await page.keyboard.press('Escape');
  await help.waitFor({ state: 'detached' });
  await page.keyboard.press('/');
  await page.keyboard.type('ocean');
  await expect.poll(() => page.getByRole('searchbox').inputValue()).toBe('ocean');
});

test('an unknown address offers a way on', async () => {
  const { page } = await open(`${app.url}/#/nothing`);
  await page.getByRole('heading', { name: 'This page does not exist.' }).waitFor();
  await page.getByRole('main').getByRole('link', { name: 'requests' }).click();
  await page.getByRole('heading', { name: 'Requests', exact: true }).waitFor();
});

test('the demo archive has a tour, which stays closed once the user has closed it', async () => {
  const window = await open(`${app.url}/`);
  const { page } = window;
  const tour = page.getByRole('complementary', { name: 'Tour' });
  await tour.getByText('1 of 3').waitFor();
  await expectAccessible(window);
  await tour.getByRole('button', { name: 'Next' }).click();
  await tour.getByRole('heading', { name: 'Watch the request' }).waitFor();
  await tour.getByRole('button', { name: 'Next' }).click();
  await tour.getByRole('button', { name: 'Finish' }).click();
  await page.reload();
  await page.getByRole('heading', { name: 'Files' }).waitFor();
  expect(await tour.count()).toBe(0);
});

test('an archive of the site has no tour', async () => {
  await addFiles(app.ctx, [{ path: '/archive/one.nc' }]);
  const { page } = await open(`${app.url}/`);
  await page.getByText('archive').first().waitFor();
  expect(await page.getByRole('complementary', { name: 'Tour' }).count()).toBe(0);
});
