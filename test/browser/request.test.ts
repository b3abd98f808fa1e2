/** The page of a request: selected files are released, retried and downloaded; failures, waits and history are explained. */
import { readFileSync } from 'node:fs';
import type { Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { TransferConfig } from '../../src/config/config.js';
import { TapeError } from '../../src/core/errors.js';
import { createToken } from '../../src/domain/access/tokens.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { startApp, startBeside, type TestApp } from '../support/app.js';
import { expectAccessible, expectToFit, signIn, useBrowser } from '../support/chromium.js';
import { addFiles, addQuota, addTaped } from '../support/factories.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { viewRequest, waitForState, waitForView } from '../support/request-view.js';
import { createGate } from '../support/wait.js';
import { readZip } from '../support/zip.js';

const transfer: TransferConfig = { siteName: 'TEST', webdav: 'all', gateways: new Map(), diskCalls: 4 };
const SENSE = 'unrecoverable read error at block 4711';
const narrow = { width: 360, height: 740 };

const openWindow = useBrowser();
const gate = createGate();
let app: TestApp;
/** A gateway that requires a token. */
let strict: TestApp;
let alice: string;
/** Whether reads of the volume BAD fail. */
let isBroken = true;
let contents: Map<string, Uint8Array>;

beforeAll(async () => {
  const library = createMemoryLibrary();
  library.onRead = async (volume) => {
    if (volume === 'BAD' && isBroken) throw new TapeError('PERMANENT', SENSE);
    if (volume === 'HELD') await gate.opened;
  };
  app = await startApp({ library, config: { drives: 4, transfer } });
  strict = await startBeside(app, { config: { access: { auth: new Set(['token']) } } });
  await addQuota(app.ctx, 'alice', 10n ** 12n);
  alice = (await createToken(app.ctx, { name: 'alice', role: 'USER' })).secret;
  await addFiles(
    app.ctx,
    Array.from({ length: 300 }, (_, day) => ({ path: dayOf(day + 1), stage: 'ONDISK' as const })),
  );
  contents = await addTaped(app.ctx, library, [
    { path: '/run/a.nc', volume: 'RUN', position: 1n, size: 300_000 },
    { path: '/run/b/ü.nc', volume: 'RUN', position: 2n, size: 5000 },
    { path: '/run/b/c d.nc', volume: 'RUN', position: 3n, size: 0 },
  ]);
  await addTaped(app.ctx, library, [
    { path: '/mixed/good.nc', volume: 'GOOD', position: 1n },
    { path: '/mixed/bad.nc', volume: 'BAD', position: 1n },
    { path: '/chosen/bad.nc', volume: 'BAD', position: 2n },
    { path: '/filtered/bad.nc', volume: 'BAD', position: 3n },
    { path: '/held/1.nc', volume: 'HELD', position: 1n },
    { path: '/held/2.nc', volume: 'HELD', position: 2n },
  ]);
});
afterAll(async () => {
  gate.open();
  await strict?.close();
  await app?.close();
});

const dayOf = (day: number) => `/month/day_${String(day).padStart(3, '0')}.nc`;
const ask = (input: { pattern?: string; files?: string[]; label?: string }) =>
  createRequest(app.ctx, { quota: 'alice', ...input });
const openView = (view: string, viewport = { width: 1280, height: 800 }) =>
  openWindow(`${app.url}/#/${view}`, { viewport });
const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });
const box = (page: Page, path: string) => page.getByRole('checkbox', { name: `Select ${path}` });

/** Clicks elements, and counts the clicks. */
function createActions() {
  let count = 0;
  return {
    get count() {
      return count;
    },
    async click(target: Locator, options?: { modifiers: ['Shift'] }) {
      count++;
      await target.click(options);
    },
  };
}

test('20 of 300 files are released in four actions', async () => {
  const id = await ask({ pattern: '/month/' });
  const { page, faults } = await openView(`requests/${id}`);
  const actions = createActions();
  await actions.click(box(page, dayOf(1)));
  await actions.click(box(page, dayOf(20)), { modifiers: ['Shift'] });
  await page.getByText('20 files selected, 20.0 kB').waitFor();
  await actions.click(button(page, 'Release'));
  await actions.click(button(page, 'Release 20 files'));
  await page.getByText('Released 20 files.', { exact: true }).waitFor();
  expect(actions.count).toBe(4);
  await page.getByText('280 of 280 files').waitFor();
  await page.getByRole('link', { name: 'Released 20' }).waitFor();
  await box(page, dayOf(20)).waitFor({ state: 'detached' });
  const { files } = await viewRequest(app, id);
  const released = files.filter(({ state }) => state === 'RELEASED').map(({ path }) => path);
  expect(released).toEqual(Array.from({ length: 20 }, (_, day) => dayOf(day + 1)));
  expect(faults).toEqual([]);
});

test('a failed file is understood and retried in three actions', async () => {
  isBroken = true;
  const id = await ask({ pattern: '/mixed/', label: 'mixed' });
  await waitForState(app, id, 'PARTIAL');
  const window = await openView('requests');
  const { page } = window;
  const actions = createActions();
  await actions.click(page.getByRole('link', { name: 'mixed' }));
  await page.getByText('1 of 2 files').waitFor();
  const rows = page.getByRole('row').filter({ has: page.getByRole('checkbox', { name: /^Select \// }) });
  expect(await rows.first().getByRole('rowheader').textContent()).toContain('/mixed/bad.nc');
  await page.getByText('The file cannot be read from tape. Retry after an operator has fixed the cause.').waitFor();
  const details = page.getByText(SENSE);
  expect(await details.isVisible()).toBe(false);
  await actions.click(rows.first().getByText('Details'));
  await details.waitFor();
  await expectAccessible(window);
  isBroken = false;
  await actions.click(button(page, 'Retry failed files'));
  await page.getByText('Retrying 1 file.', { exact: true }).waitFor();
  expect(actions.count).toBe(3);
  await page.getByText('2 of 2 files').waitFor();
});

test('only the selected failed files are retried', async () => {
  isBroken = true;
  const id = await ask({ files: ['/chosen/bad.nc', '/mixed/good.nc'] });
  await waitForState(app, id, 'PARTIAL');
  const { page } = await openView(`requests/${id}`);
  await box(page, '/mixed/good.nc').click();
  const retry = button(page, 'Retry');
  expect(await retry.getAttribute('aria-disabled')).toBe('true');
  await retry.hover();
  await page.getByText('None of the selected files has failed.').waitFor();
  await box(page, '/chosen/bad.nc').click();
  isBroken = false;
  await retry.click();
  await page.getByText('Retrying 1 file.', { exact: true }).waitFor();
  await page.getByText('2 of 2 files').waitFor();
});

test('the list is filtered by state and by a part of the path, and a link to the filtered view shows the same', async () => {
  isBroken = true;
  const id = await ask({ files: ['/filtered/bad.nc', '/mixed/good.nc', '/run/a.nc'] });
  await waitForState(app, id, 'PARTIAL');
  const { page } = await openView(`requests/${id}`);
  await page.getByRole('link', { name: 'On disk 2' }).click();
  await box(page, '/filtered/bad.nc').waitFor({ state: 'detached' });
  await page.getByRole('searchbox').fill('/run');
  const link = `${app.url}/#/requests/${id}?state=on_disk&match=%2Frun`;
  await expect.poll(() => page.url()).toBe(link); // the list is empty for a moment before the search begins
  await box(page, '/mixed/good.nc').waitFor({ state: 'detached' });
  const other = await openWindow(link);
  await box(other.page, '/run/a.nc').waitFor();
  expect(await other.page.getByRole('checkbox', { name: /^Select \// }).count()).toBe(1);
  await page.goBack();
  await box(page, '/mixed/good.nc').waitFor();
  await page.getByRole('tab', { name: 'Details' }).click();
  await page.getByText('A list of 3 paths').waitFor();
  await expect.poll(() => page.url()).toBe(`${app.url}/#/requests/${id}?tab=details`);
  await page.goBack();
  await box(page, '/mixed/good.nc').waitFor();
});

test('all files of a request are selected beyond the page', async () => {
  const id = await ask({ pattern: '/month/' });
  const { page } = await openView(`requests/${id}`);
  await page.getByRole('checkbox', { name: 'Select all files on this page' }).click();
  await page.getByText('100 files selected').waitFor();
  await button(page, 'Select all 300 files').click();
  await page.getByText('300 files selected, 300 kB').waitFor();
  await button(page, 'Next page').click();
  expect(await box(page, dayOf(101)).isChecked()).toBe(true);
  await button(page, 'Clear selection').click();
  expect(await box(page, dayOf(101)).isChecked()).toBe(false);
});

test('selected files are downloaded as one archive with a token, and their URLs are listed for wget', async () => {
  const id = await ask({ pattern: '/run/' });
  await waitForState(app, id, 'COMPLETED');
  const window = await openWindow(`${strict.url}/#/requests/${id}`, { viewport: narrow });
  const { page, faults } = window;
  await signIn(window, alice);
  await box(page, '/run/a.nc').click();
  await box(page, '/run/b/ü.nc').click();
  const [download] = await Promise.all([page.waitForEvent('download'), button(page, 'Download as zip').click()]);
  expect(download.suggestedFilename()).toBe(`request-${id}.zip`);
  const files = readZip(readFileSync(await download.path()));
  expect([...files.keys()].sort()).toEqual(['a.nc', 'b/ü.nc']);
  for (const [name, bytes] of files) expect(bytes.equals(contents.get(`/run/${name}`) as Uint8Array)).toBe(true);
  await button(page, 'wget list').click();
  await page.getByText('wget --header="Authorization: Bearer $TOKEN" -x -i list.txt').waitFor();
  expect((await page.getByLabel('URLs').inputValue()).split('\n').sort()).toEqual([
    `${strict.url}/webdav/run/a.nc`,
    `${strict.url}/webdav/run/b/${encodeURIComponent('ü.nc')}`,
  ]);
  await expectAccessible(window);
  await expectToFit(window);
  const [list] = await Promise.all([page.waitForEvent('download'), button(page, 'Save list.txt').click()]);
  expect(
    readFileSync(await list.path(), 'utf8')
      .trim()
      .split('\n'),
  ).toHaveLength(2);
  await page.keyboard.press('Escape');
  const [whole] = await Promise.all([page.waitForEvent('download'), button(page, 'Download all').click()]);
  expect([...readZip(readFileSync(await whole.path())).keys()]).toHaveLength(3);
  expect(faults).toEqual([]);
});

test('the tabs explain why files wait and what happened, also on a narrow window', async () => {
  const id = await ask({ files: ['/held/1.nc', '/held/2.nc', '/run/a.nc', '/run/none'] });
  await waitForView(app, id, 'to have a file on disk', ({ filesOnDisk }) => filesOnDisk === 1);
  const window = await openView(`requests/${id}`, narrow);
  const { page, faults } = window;
  const timeline = page.getByRole('list', { name: 'Timeline' }).getByRole('listitem');
  await timeline.getByText('Last file').waitFor();
  expect(await timeline.locator('.step-name').allTextContents()).toEqual([
    'Requested (done)',
    'First recall (done)',
    'First file (done)',
    'Last file (now)',
    'Expires (later)',
  ]);
  expect(await page.locator('[aria-current="step"]').count()).toBe(1);
  await page.getByRole('tab', { name: /^Waiting/ }).click();
  await page.getByText(/^2 files, 2.00 kB waiting/).waitFor();
  await page
    .getByRole('cell', { name: /a drive is reading the files|the volume is mounted/ })
    .first()
    .waitFor();
  await expectAccessible(window);
  await expectToFit(window);
  await page.getByRole('link', { name: '1 name not found' }).click();
  await page.getByText('/run/none').waitFor();
  await page.getByRole('tab', { name: 'Activity' }).click();
  const activity = page.getByRole('list', { name: /^Activity/ });
  await activity.getByText('1 file already on disk').waitFor();
  await activity.getByText('Requested').waitFor();
  await expectAccessible(window);
  await expectToFit(window);
  gate.open();
  await activity.getByText('Complete').waitFor();
  await activity.getByText('2 files arrived on disk').waitFor();
  await page.getByRole('list', { name: 'Timeline' }).getByText('Last file (done)').waitFor();
  expect(faults).toEqual([]);
});

test('a request is extended to a date, with the keyboard alone', async () => {
  const id = await ask({ pattern: '/month/' });
  const window = await openView(`requests/${id}`, narrow);
  const { page } = window;
  await button(page, 'Extend').focus();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog', { name: `Extend request ${id}` });
  await expectAccessible(window);
  await expectToFit(window);
  const date = dialog.getByLabel('Keep the files until');
  await date.fill('');
  const extend = dialog.getByRole('button', { name: 'Extend' });
  expect(await extend.getAttribute('aria-disabled')).toBe('true');
  await dialog.getByRole('button', { name: '90 days longer' }).focus();
  await page.keyboard.press('Enter');
  await extend.focus();
  await page.keyboard.press('Enter');
  await page.getByText(/^Extended until/).waitFor();
  await page
    .getByRole('list', { name: 'Timeline' })
    .getByText(/in 9[56] days/)
    .waitFor();
  await page.keyboard.press('j');
  await page.keyboard.press('x');
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('X');
  await page.getByText('3 files selected').waitFor();
});
