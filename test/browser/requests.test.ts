/**
 * Requests in the dashboard: users choose files, make a request, and follow and change the request in several windows.
 */
import { existsSync } from 'node:fs';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { TapeError } from '../../src/core/errors.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { cancelRequest, expireRequests } from '../../src/domain/requests/ends.js';
import { startApp, type TestApp } from '../support/app.js';
import { expectAccessible, expectToFit, useBrowser, type Window } from '../support/chromium.js';
import { createClock } from '../support/clock.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { createGate, waitFor } from '../support/wait.js';

const BROKEN = '/sets/broken/2024/sst_monthly_mean_of_the_northern_atlantic_ocean.nc';
const WHY = `the drive gave up at block 4711 of volume V00001: ${'unreadable_'.repeat(12)} after three passes`;
const narrow = { width: 360, height: 740 };

const openWindow = useBrowser();
let app: TestApp;
/** Whether reads of the broken files fail. */
let isBroken = true;
/** Gates that block reads of the late files, by position on tape. */
const gates = new Map([
  [11n, createGate()],
  [12n, createGate()],
]);
const clock = createClock();

beforeAll(async () => {
  const library = createMemoryLibrary();
  library.onRead = async (_volume, position) => {
    if ((position === 1n || position >= 10n) && isBroken) throw new TapeError('PERMANENT', WHY);
    await gates.get(position)?.opened;
  };
  app = await startApp({ library, now: clock.now });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addTaped(app.ctx, library, [
    { path: BROKEN, size: 1000 },
    { path: '/sets/whole/a.nc', size: 1000 },
    { path: '/sets/whole/b.nc', size: 1000 },
    ...['0', '1', '2'].map((n) => ({ path: `/late/${n}.nc`, position: BigInt(`1${n}`), size: 1000 })),
  ]);
  const onDisk = ['/ice/north.nc', '/ice/south.nc', '/wind/north.nc'];
  await addFiles(
    app.ctx,
    onDisk.map((path) => ({ path, stage: 'ONDISK' as const })),
  );
});
afterAll(async () => {
  for (const gate of gates.values()) gate.open();
  await app?.close();
});

const ask = async (input: { pattern?: string; files?: string[]; label?: string }) =>
  await createRequest(app.ctx, { quota: 'alice', ...input });
const openView = (view: string, viewport = { width: 1280, height: 800 }) =>
  openWindow(`${app.url}/#/${view}`, { viewport });
const open = (id: number, viewport?: typeof narrow) => openView(`requests/${id}`, viewport);
const press = async (page: Page, name: string) => await page.getByRole('button', { name, exact: true }).click();
const openTab = async (page: Page, name: string) => await page.getByRole('tab', { name }).click();
const choose = async (page: Page, name: string) => {
  await press(page, 'More actions');
  await page.getByRole('menuitem', { name }).click();
};
const confirm = async (page: Page, name: string) =>
  await page.getByRole('dialog').getByRole('button', { name, exact: true }).click();
const waitForHeading = async (page: Page, state: string) =>
  await page.getByRole('heading', { name: new RegExp(`^Request \\d+ ${state}$`) }).waitFor();
/** Waits until the text has left the page. */
const waitUntilGone = async (page: Page, text: string) => await page.getByText(text).waitFor({ state: 'detached' });

test('the view of a request says how many of its names are not found', async () => {
  const id = await ask({ files: ['/ice/north.nc', '/ice/none', '/ice/nothing'], label: 'not all' });
  const { page } = await open(id);
  await waitForHeading(page, 'Finished, some files not found');
  await page.getByText(/^1 of 3 files, .*; 2 names not found$/).waitFor();
});

test('the curve of a quota spans thirty days, shows their dates, and is available as a table', async () => {
  await app.ctx.db.pool.query(
    `INSERT INTO quota_history (quota_id, at, used, size)
     SELECT id, date_trunc('hour', now() AT TIME ZONE 'UTC') - interval '15 days', 500000, size FROM quota WHERE "user" = 'alice'`,
  );
  const window = await openView('quotas/alice', narrow);
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
  await page.getByText('Show as a table').click();
  await page.getByRole('cell', { name: '500 kB' }).waitFor();
  await expectAccessible(window);
  await expectToFit(window);
});

test('files are released after a confirmation, and leave the disk', async () => {
  const id = await ask({ pattern: '/sets/whole/' });
  const window = await open(id);
  const { page, faults } = window;
  await waitForHeading(page, 'Complete');
  const kept = `${app.restoreDir}/sets/whole/a.nc`;
  await page.getByText(kept).waitFor();
  await choose(page, 'Release all files');
  const question = `Release all files of request ${id}?`;
  await page.getByRole('dialog', { name: question }).waitFor();
  await expectAccessible(window);
  expect(existsSync(kept)).toBe(true);
  await page.keyboard.press('Enter'); // the button that closes the dialog has the focus
  await waitUntilGone(page, question);
  expect(existsSync(kept)).toBe(true);
  await choose(page, 'Release all files');
  await confirm(page, 'Release all files');
  await page.getByText('Released all files.', { exact: true }).waitFor();
  await page.getByText('The request contains no files: 2 files released').waitFor();
  await waitForHeading(page, 'No files');
  await waitFor('the file to leave the disk', async () => !existsSync(kept));
  expect(faults).toEqual([]);
  await cancelRequest(app.ctx, id);
});

test('a retry, an extension and a cancellation in one window show in all windows without a reload', async () => {
  isBroken = true;
  const id = await ask({ pattern: '/sets/', label: 'all of it' });
  const [doing, watching] = [await open(id), await open(id)];
  const list = await openView('requests');
  const windows = [doing, watching];
  for (const { page } of windows) {
    await waitForHeading(page, 'Finished with failures');
    await openTab(page, 'Details');
    await page.getByText('All files with "/sets/" in their path').waitFor();
    await openTab(page, 'Files');
    expect(await page.getByRole('progressbar').getAttribute('value')).toBe('66');
    await page.getByText('2 of 3 files, 2.00 kB of 3.00 kB, 1 file failed').waitFor();
  }
  isBroken = false;
  await press(doing.page, 'Retry failed files');
  for (const { page } of windows) {
    await waitForHeading(page, 'Complete');
    await page.getByText('3 of 3 files').waitFor();
    await waitUntilGone(page, '1 file failed');
    await page.getByText(`${app.restoreDir}${BROKEN}`).waitFor();
    await page.getByText('in 5 days').waitFor();
  }
  await press(watching.page, 'Extend');
  await confirm(watching.page, 'Extend');
  for (const { page } of windows) await page.getByText(/in 3[56] days/).waitFor();
  await choose(doing.page, 'Cancel request');
  await confirm(doing.page, 'Cancel request');
  for (const { page } of windows) {
    await waitForHeading(page, 'Cancelled');
    await page.getByText('3 of 3 files were restored').waitFor();
    await openTab(page, 'Details');
    await page.getByText('(just now)').first().waitFor();
    for (const gone of ['Expires', 'Folder on disk']) expect(await page.getByText(gone).count()).toBe(0);
    await press(page, 'More actions');
    expect(await page.getByRole('menuitem').allTextContents()).toEqual(['Copy link']);
    await page.keyboard.press('Escape');
  }
  await waitUntilGone(list.page, 'all of it');
  for (const { faults } of [...windows, list]) expect(faults).toEqual([]);
});

test('a retried request shows its progress file by file in all windows', async () => {
  isBroken = true;
  const id = await ask({ pattern: '/late/' });
  const windows = [await open(id), await open(id)];
  for (const { page } of windows) await page.getByText('0 of 3 files, 0 bytes of 3.00 kB, 3 files failed').waitFor();
  isBroken = false;
  await press((windows[0] as Window).page, 'Retry failed files');
  for (const [number, gate] of [
    [1, gates.get(11n)],
    [2, gates.get(12n)],
    [3, undefined],
  ] as const) {
    for (const { page } of windows) await page.getByText(`${number} of 3 files, ${number}.00 kB of 3.00 kB`).waitFor();
    gate?.open();
  }
  for (const { page } of windows) await waitForHeading(page, 'Complete');
});

test('an expired request offers to restore it again, and does so', async () => {
  const id = await ask({ pattern: '/sets/whole/' });
  const { page } = await open(id);
  await waitForHeading(page, 'Complete');
  await openTab(page, 'Details');
  await page.getByText('Folder on disk').waitFor();
  clock.advance(6 * 86_400);
  await expireRequests(app.ctx);
  await waitForHeading(page, 'Expired');
  await waitUntilGone(page, 'Folder on disk');
  const buttons = await page.getByRole('main').getByRole('button').allTextContents();
  expect(buttons).toEqual(['Restore again', '']);
  await press(page, 'Restore again');
  await confirm(page, 'Restore again');
  await waitForHeading(page, 'Complete');
  await openTab(page, 'Files');
  await page.getByText(`${app.restoreDir}/sets/whole/a.nc`).waitFor();
});

test('a narrow window shows the path of a failed file and the whole error', async () => {
  isBroken = true;
  const window = await open(await ask({ files: [BROKEN] }), { width: 360, height: 740 });
  const { page } = window;
  await page.locator('summary').click();
  await page.getByText(WHY).waitFor();
  await expectAccessible(window);
  await expectToFit(window);
  const widths = await page.evaluate(`(() => {
    const box = document.querySelector('.wide');
    return [box.scrollWidth - box.clientWidth, document.querySelector('th code').getBoundingClientRect().width];
  })()`);
  const [hidden, path] = widths as [number, number];
  expect(hidden).toBe(0);
  expect(path).toBeGreaterThan(250);
});

test('the view of a request and the file search explain that nothing matched', async () => {
  const id = await ask({ pattern: '/SETS/*' });
  const { page } = await open(id);
  const told = 'no file in the catalogue has a path that contains "/SETS/*" (case-sensitive; * ? [ ] are literal)';
  await page.getByText(`No match: ${told}`).waitFor();
  await waitForHeading(page, 'No files');
  expect(await page.getByRole('progressbar').count()).toBe(0);
  await page.goto(`${app.url}/#/files?match=${encodeURIComponent('/SETS/*')}`);
  await page.getByText(told, { exact: false }).waitFor();
});
