/** The view of a request, in a real browser: what is done there is done, and each browser that shows the request tells what became of it. */
import { existsSync } from 'node:fs';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { TapeError } from '../../src/errors.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { cancelRequest, expireRequests } from '../../src/operations/requests/ends.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { expectAccessible, expectToFit, openBrowser, openWindow, type Window } from '../support/chromium.js';
import { createClock } from '../support/clock.js';
import { addQuota, addTaped } from '../support/factories.js';
import { createGate, waitFor } from '../support/wait.js';

const BROKEN = '/sets/broken/2024/sst_monthly_mean_of_the_northern_atlantic_ocean.nc';
const WHY = `the drive gave up at block 4711 of volume V00001: ${'unreadable_'.repeat(12)} after three passes`;

let browser: Browser;
let app: TestApp;
/** Whether what is broken cannot be read. */
let isBroken = true;
/** Opened, the late files behind it can be read once they are whole. */
const gates = new Map([
  [11n, createGate()],
  [12n, createGate()],
]);
const clock = createClock();

beforeAll(async () => {
  browser = await openBrowser();
  const backend = createMemoryBackend();
  backend.onRead = async (_volume, position, bytes) => {
    if ((position === 1n || position >= 10n) && isBroken) throw new TapeError('PERMANENT', WHY);
    await gates.get(position)?.opened;
    return bytes;
  };
  app = await startApp({ backend, now: clock.now });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addTaped(app.ctx, backend, [
    { path: BROKEN, size: 1000 },
    { path: '/sets/whole/a.nc', size: 1000 },
    { path: '/sets/whole/b.nc', size: 1000 },
    ...['0', '1', '2'].map((n) => ({ path: `/late/${n}.nc`, position: BigInt(`1${n}`), size: 1000 })),
  ]);
}, 120_000);
afterEach(async () => {
  for (const context of browser.contexts()) await context.close();
});
afterAll(async () => {
  for (const gate of gates.values()) gate.open();
  await browser?.close();
  await app?.close();
});

const ask = async (input: { pattern?: string; files?: string[]; label?: string }) =>
  await createRequest(app.ctx, { quota: 'alice', ...input });
const open = async (id: number, viewport = { width: 1280, height: 800 }) =>
  await openWindow(browser, `${app.url}/#/requests/${id}`, { viewport });
const press = async (page: Page, name: string) => await page.getByRole('button', { name, exact: true }).click();
const headed = async (page: Page, state: string) =>
  await page.getByRole('heading', { name: new RegExp(`^Request \\d+ ${state}$`) }).waitFor();

test('the files of a request are let go once that is confirmed, and leave the disk', async () => {
  const id = await ask({ pattern: '/sets/whole/' });
  const window = await open(id);
  const { page, faults } = window;
  await headed(page, 'Complete');
  const kept = `${app.restoreDir}/sets/whole/a.nc`;
  await page.getByText(kept).waitFor();
  await press(page, 'Let its files go');
  await page.getByText('Let all of its files go?').waitFor();
  await expectAccessible(window);
  expect(existsSync(kept)).toBe(true);
  await page.keyboard.press('Enter'); // the focus is at "No"
  await page.getByText('Let all of its files go?').waitFor({ state: 'detached' });
  await press(page, 'Let its files go');
  await press(page, 'Yes, let them go');
  await page.getByText('No file is left in it: 2 files let go').waitFor();
  await headed(page, 'No files');
  await waitFor('the file to leave the disk', async () => !existsSync(kept));
  expect(faults).toEqual([]);
  await cancelRequest(app.ctx, id);
});

test('what is retried, kept longer and cancelled in one browser is told by each, without a reload', async () => {
  isBroken = true;
  const id = await ask({ pattern: '/sets/', label: 'all of it' });
  const [doing, watching] = [await open(id), await open(id)];
  const list = await openWindow(browser, `${app.url}/#/requests`);
  const windows = [doing, watching];
  for (const { page } of windows) {
    await headed(page, 'Ended, with failures');
    await page.getByText('All files with "/sets/" in their path').waitFor();
    expect(await page.getByRole('progressbar').getAttribute('value')).toBe('66');
    await page.getByText('2 of 3 files, 2.00 kB of 3.00 kB, 1 file failed').waitFor();
  }
  isBroken = false;
  await press(doing.page, 'Try the failed ones again');
  for (const { page } of windows) {
    await headed(page, 'Complete');
    await page.getByText('3 of 3 files').waitFor();
    await page.getByText('1 file failed').waitFor({ state: 'detached' });
    await page.getByText(`${app.restoreDir}${BROKEN}`).waitFor();
    await page.getByText('in 5 days').waitFor();
  }
  await press(watching.page, 'Keep 30 days longer');
  for (const { page } of windows) await page.getByText('in 35 days').waitFor();
  await press(doing.page, 'Cancel the request');
  await press(doing.page, 'Yes, cancel it');
  for (const { page } of windows) {
    await headed(page, 'Cancelled');
    await page.getByText('Had 3 of 3 files').waitFor();
    await page.getByText('(just now)').first().waitFor();
    for (const gone of ['Kept until', 'On disk below']) expect(await page.getByText(gone).count()).toBe(0);
    expect(await page.getByRole('button').allTextContents()).not.toContain('Let its files go');
  }
  await list.page.getByText('all of it').waitFor({ state: 'detached' });
  for (const { faults } of [...windows, list]) expect(faults).toEqual([]);
});

test('one that had failed and is retried is followed file by file again, by whoever watches', async () => {
  isBroken = true;
  const id = await ask({ pattern: '/late/' });
  const windows = [await open(id), await open(id)];
  for (const { page } of windows) await page.getByText('0 of 3 files, 0 B of 3.00 kB, 3 files failed').waitFor();
  isBroken = false;
  await press((windows[0] as Window).page, 'Try the failed ones again');
  for (const [number, gate] of [
    [1, gates.get(11n)],
    [2, gates.get(12n)],
    [3, undefined],
  ] as const) {
    for (const { page } of windows) await page.getByText(`${number} of 3 files, ${number}.00 kB of 3.00 kB`).waitFor();
    gate?.open();
  }
  for (const { page } of windows) await headed(page, 'Complete');
});

test('one that expires offers what can still be done, and is restored again by it', async () => {
  const id = await ask({ pattern: '/sets/whole/' });
  const { page } = await open(id);
  await headed(page, 'Complete');
  await page.getByText('On disk below').waitFor();
  clock.advance(6 * 86_400);
  await expireRequests(app.ctx);
  await headed(page, 'Expired');
  await page.getByText('On disk below').waitFor({ state: 'detached' });
  const buttons = await page.getByRole('main').getByRole('button').allTextContents();
  expect(buttons).toEqual(['Restore it again for 30 days', 'Copy a link to it']);
  await press(page, 'Restore it again for 30 days');
  await headed(page, 'Complete');
  await page.getByText(`${app.restoreDir}/sets/whole/a.nc`).waitFor();
});

test('why a file failed can be read on a narrow screen, and its path too', async () => {
  isBroken = true;
  const window = await open(await ask({ files: [BROKEN] }), { width: 360, height: 740 });
  const { page } = window;
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

test('a request that matches nothing says so, in its view, in the list, and when one looks for files', async () => {
  const id = await ask({ pattern: '/SETS/*' });
  const window = await open(id);
  const { page } = window;
  const told =
    'no file of the catalogue has "/SETS/*" in its path (upper and lower case differ, and * ? [ ] stand for themselves)';
  await page.getByText(`Nothing matched: ${told}`).waitFor();
  await headed(page, 'No files');
  expect(await page.getByRole('progressbar').count()).toBe(0);
  await expectAccessible(window);
  await page.goto(`${app.url}/#/requests`);
  await page.getByRole('listitem').filter({ hasText: '/SETS/*' }).getByText('No file is in it').waitFor();
  await page.goto(`${app.url}/#/files?match=${encodeURIComponent('/SETS/*')}`);
  await page.getByText(told, { exact: false }).waitFor();
});
