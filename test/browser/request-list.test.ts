/** The list of requests and the pages of quotas in the dashboard. */
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { setQuotaMember } from '../../src/domain/access/members.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { cancelRequest } from '../../src/domain/requests/ends.js';
import { updateRequest } from '../../src/domain/requests/update.js';
import { startApp, type TestApp } from '../support/app.js';
import { expectAccessible, expectToFit, useBrowser } from '../support/chromium.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { createGate, waitFor } from '../support/wait.js';

const narrow = { width: 360, height: 740 };
const openWindow = useBrowser();
let app: TestApp;
/** Blocks the read of the second file on tape. */
const gate = createGate();

beforeAll(async () => {
  const library = createMemoryLibrary();
  library.onRead = async (_volume, position) => {
    if (position === 2n) await gate.opened;
  };
  app = await startApp({ library });
  await addTaped(
    app.ctx,
    library,
    [1n, 2n].map((position) => ({ path: `/tape/${position}`, position, size: 1000 })),
  );
  for (const user of ['alice', 'bob']) await addQuota(app.ctx, user, 10n ** 9n);
  await addFiles(
    app.ctx,
    ['/ice/1', '/ice/2', '/ice/3', '/wind/1'].map((path) => ({ path, stage: 'ONDISK' as const, size: 1000n })),
  );
});
afterAll(async () => {
  gate.open();
  await app?.close();
});

const ask = async (label: string, files: string[], quota = 'alice') =>
  await createRequest(app.ctx, { quota, files, label });
const openView = (view: string, viewport = { width: 1280, height: 800 }) =>
  openWindow(`${app.url}/#/${view}`, { viewport });
const rowOf = (page: Page, text: string) => page.getByRole('row').filter({ hasText: text });
const press = async (page: Page, name: string) => await page.getByRole('button', { name, exact: true }).click();
const tab = (page: Page, name: string) => page.getByRole('navigation', { name: 'States of requests' }).getByText(name);
const labelsOf = async (page: Page) => await page.getByRole('rowheader').locator('bdi').allTextContents();
const stateOf = async (id: number) => (await app.ctx.db.prisma.request.findUniqueOrThrow({ where: { id } })).state;
const waitForLabels = (page: Page, labels: readonly string[]) =>
  waitFor(`the list ${labels}`, async () => (await labelsOf(page)).join() === labels.join());

test('a list says how many names of a request are not found, and that a request without files contains none', async () => {
  await ask('not all', ['/ice/1', '/ice/none', '/ice/nothing']);
  await ask('nothing', ['/none']);
  const window = await openView('requests', narrow);
  const { page, faults } = window;
  const row = rowOf(page, 'not all');
  await row.getByText('Finished, some files not found').waitFor();
  await row.getByText('1 of 3 files').waitFor();
  await row.getByText('2 unresolved paths').waitFor();
  await rowOf(page, 'nothing').getByText('The request contains no files').waitFor();
  await expectAccessible(window);
  await expectToFit(window);
  expect(faults).toEqual([]);
});

test('the state, the search, the quota and the order are in the address, and tabs count live', async () => {
  const few = await ask('tab few', ['/ice/1']);
  await ask('tab many', ['/ice/1', '/ice/2', '/ice/3']);
  await ask('tab two', ['/ice/1', '/ice/2'], 'bob');
  const { page, faults } = await openView('requests');
  await rowOf(page, 'tab two').waitFor();
  await page.keyboard.press('/');
  await page.keyboard.type('tab');
  await waitForLabels(page, ['tab two', 'tab many', 'tab few']);
  await page.getByRole('button', { name: 'Size' }).click();
  await waitForLabels(page, ['tab many', 'tab two', 'tab few']);
  await page.getByLabel('Order').selectOption('Oldest first');
  await waitForLabels(page, ['tab few', 'tab many', 'tab two']);
  await page.goBack();
  await waitForLabels(page, ['tab many', 'tab two', 'tab few']);
  await page.getByLabel('Quota').selectOption('alice');
  await waitForLabels(page, ['tab many', 'tab few']);
  await tab(page, 'Live 2').waitFor();
  await tab(page, 'Cancelled 0').waitFor();
  await cancelRequest(app.ctx, few);
  await tab(page, 'Live 1').waitFor();
  await tab(page, 'Cancelled 1').click();
  await waitForLabels(page, ['tab few']);
  await rowOf(page, 'tab few').getByText('ended just now').waitFor();
  const copy = await openWindow(page.url());
  await waitForLabels(copy.page, ['tab few']);
  expect(await copy.page.getByRole('searchbox').inputValue()).toBe('tab');
  await tab(page, 'Queued 0').click();
  await page.getByText('No request matches.').waitFor();
  await page.getByRole('link', { name: 'Search in all states' }).click();
  await waitForLabels(page, ['tab many', 'tab few']);
  expect(faults).toEqual([]);
});

test('the list shows the progress of a request and when its files arrive, without a reload', async () => {
  const { page, faults } = await openView('requests?match=from+tape');
  await page.getByText('No request matches.').waitFor();
  await ask('from tape', ['/tape/1', '/tape/2']);
  const row = rowOf(page, 'from tape');
  for (const text of ['Restoring', '50%', '1 of 2 files']) await row.getByText(text).waitFor();
  await row.getByText(/^about \d+ s left \(\d+ s to \d+ s; without measurements\)$/).waitFor();
  gate.open();
  for (const text of ['Complete', '100%', '2 of 2 files', 'expires in 5 days']) await row.getByText(text).waitFor();
  expect(faults).toEqual([]);
});

test('selected requests are cancelled together after a confirmation', async () => {
  const ids = [await ask('bulk 1', ['/ice/1']), await ask('bulk 2', ['/ice/1']), await ask('bulk 3', ['/ice/1'])];
  const kept = await ask('bulk 4', ['/ice/1']);
  const window = await openView('requests?match=bulk');
  const { page, faults } = window;
  await page.getByLabel(`Select request ${ids[0]}: bulk 1`).click();
  await page.getByLabel(`Select request ${ids[2]}: bulk 3`).click({ modifiers: ['Shift'] });
  await page.getByText('3 requests selected').waitFor();
  await page.reload();
  await page.getByText('3 requests selected').waitFor();
  await press(page, 'Cancel requests');
  await page
    .getByRole('dialog')
    .getByText(`Requests: ${ids.join(', ')}`)
    .waitFor();
  await expectAccessible(window);
  await press(page, 'Keep requests');
  expect(await Promise.all(ids.map(stateOf))).toEqual(['COMPLETED', 'COMPLETED', 'COMPLETED']);
  await press(page, 'Cancel requests');
  await press(page, 'Cancel 3 requests');
  await page.getByText('3 requests cancelled.').first().waitFor();
  await waitForLabels(page, ['bulk 4']);
  expect(await Promise.all([...ids, kept].map(stateOf))).toEqual(['CANCELLED', 'CANCELLED', 'CANCELLED', 'COMPLETED']);
  expect(await page.getByText('selected').count()).toBe(0);
  expect(faults).toEqual([]);
});

test('an extension of several requests lists those that could not be extended, and keeps them selected', async () => {
  const id = await ask('longer', ['/ice/1']);
  const none = 2_000_000_000;
  const window = await openView(`requests?match=longer&selected=${id},${none}`, narrow);
  const { page, faults } = window;
  await page.getByText('2 requests selected').waitFor();
  await press(page, 'Extend');
  await page.getByLabel('Keep the files until').fill('2001-01-01');
  const extend = page.getByRole('button', { name: 'Extend 2 requests' });
  expect(await extend.getAttribute('aria-disabled')).toBe('true');
  await page.getByLabel('Keep the files until').fill('2099-01-01');
  await expectAccessible(window);
  await expectToFit(window);
  await extend.click();
  await page.getByText(`1 of 2 requests extended. Failed: request ${none}: `).first().waitFor();
  await page.getByText('1 request selected').waitFor();
  const { retention } = await app.ctx.db.prisma.request.findUniqueOrThrow({ where: { id } });
  expect(retention).toBe('2099-01-01T23:59:59');
  await press(page, 'Clear selection');
  await expect.poll(() => page.url()).toBe(`${app.url}/#/requests?match=longer`);
  expect(faults).toEqual([]);
});

test('the keys j, k, x and Enter move through the list, select a request and open it', async () => {
  const [first, second] = [await ask('key 1', ['/ice/1']), await ask('key 2', ['/ice/1'])];
  const { page } = await openView('requests?match=key');
  await waitForLabels(page, ['key 2', 'key 1']);
  for (const key of ['j', 'x', 'j', 'X']) await page.keyboard.press(key);
  await page.getByText('2 requests selected').waitFor();
  await expect.poll(() => page.url()).toContain(`selected=${first}%2C${second}`);
  await page.keyboard.press('k');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: `Request ${second}` }).waitFor();
});

test('a quota shows its largest requests, what expires next, its users and its members', async () => {
  await addQuota(app.ctx, 'group', 10_000n);
  await setQuotaMember(app.ctx, { quota: 'group', kind: 'GROUP', name: 'ocean', isManager: true });
  const small = await ask('small', ['/ice/1'], 'group');
  const large = await ask('large', ['/ice/1', '/ice/2', '/ice/3'], 'group');
  await updateRequest(app.ctx, { id: small, retention: '2098-01-01' });
  await updateRequest(app.ctx, { id: large, retention: '2099-01-01' });
  const window = await openView('quotas');
  const { page, faults } = window;
  await rowOf(page, 'group').getByText('40%').waitFor();
  await expectAccessible(window);
  await page.getByRole('link', { name: 'group' }).click();
  await page.getByText('4.00 kB of 10.0 kB used').waitFor();
  const textsOf = async (label: string) =>
    (await page.getByRole('region', { name: label }).getByRole('row').allInnerTexts())
      .slice(1)
      .map((text) => text.replaceAll(/\s+/g, ' '));
  expect(await textsOf('Expires next')).toEqual([
    expect.stringMatching(new RegExp(`^${small} small in .* 1.00 kB 7.00 kB$`)),
    expect.stringMatching(new RegExp(`^${large} large in .* 3.00 kB 10.0 kB$`)),
  ]);
  expect(await textsOf('Largest requests')).toEqual([
    `${large} large Complete 3 files 3.00 kB`,
    `${small} small Complete 1 file 1.00 kB`,
  ]);
  expect(await textsOf('Largest users')).toEqual(['without a name 2 requests 4 files 4.00 kB']);
  expect(await textsOf('Members')).toEqual(['ocean group manages the quota']);
  await expectAccessible(window);
  await ask('new', ['/wind/1'], 'group');
  await page.getByText('5.00 kB of 10.0 kB used').waitFor();
  await page.getByRole('link', { name: 'Requests of this quota' }).click();
  await waitForLabels(page, ['new', 'large', 'small']);
  expect(faults).toEqual([]);
});
