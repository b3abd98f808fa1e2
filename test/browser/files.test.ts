/** The file browser: users find files, select them, and request them. */
import path from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createToken } from '../../src/domain/access/tokens.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { startApp, type TestApp } from '../support/app.js';
import { expectAccessible, expectToFit, signIn, useBrowser, type Window } from '../support/chromium.js';
import { addFiles, addQuota } from '../support/factories.js';

const FILES_OF_MONTH = 300;
const narrow = { width: 360, height: 740 };

const openWindow = useBrowser();
let app: TestApp;
const tokens: Record<string, string> = {};

const monthOf = (month: string) =>
  Array.from({ length: FILES_OF_MONTH }, (_, n) => `/demo/Ocean/2024/${month}/sst_2024-${month}_${n + 100}.nc`);

beforeAll(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addQuota(app.ctx, 'bob', 1000n);
  await addFiles(app.ctx, [
    ...['01', '02'].flatMap(monthOf).map((path) => ({ path })),
    { path: '/demo/readme', size: 5n, stage: 'ONDISK' as const, volume: 'V2' },
    { path: '/demo/zebra', size: 7_000_000n, stage: 'ONDISK' as const, volume: 'V1' },
    { path: '/ice/north.nc', stage: 'ONDISK' as const },
    { path: '/ice/south.nc', stage: 'ONDISK' as const },
    { path: '/ice/only.nc', stage: 'ONDISK' as const },
  ]);
  await app.ctx.db.pool.query(`UPDATE tape_file SET mtime = '2024-05-06' WHERE path = '/demo/zebra'`);
  for (const name of ['alice', 'bob']) tokens[name] = (await createToken(app.ctx, { name, role: 'USER' })).secret;
  const reader = { name: 'alice', role: 'USER', isReadOnly: true } as const;
  tokens.reader = (await createToken(app.ctx, reader)).secret;
});
afterAll(() => app?.close());

const openView = (view: string, viewport = { width: 1280, height: 800 }) =>
  openWindow(`${app.url}/#/${view}`, { viewport });
const openAs = async (name: string, view: string): Promise<Window> => {
  const window = await openView('sign-in');
  await signIn(window, tokens[name] ?? '');
  await window.page.goto(`${app.url}/#/${view}`);
  return window;
};
const press = async (page: Page, name: string | RegExp) =>
  await page.getByRole('button', typeof name === 'string' ? { name, exact: true } : { name }).click();
const bar = (page: Page) => page.getByRole('region', { name: 'Selected files' });
const dialog = (page: Page) => page.getByRole('dialog');
const namesOf = async (page: Page) => await page.getByRole('rowheader').allInnerTexts();
const expectNames = async (page: Page, names: string[]) => await expect.poll(() => namesOf(page)).toEqual(names);
const waitForRequest = async (page: Page) => await page.getByRole('heading', { name: /^Request \d+ / }).waitFor();

/** Counts clicks, and texts that the user types or pastes. */
function createActor({ page, context }: Window) {
  const actor = {
    actions: 0,
    click: async (name: string | RegExp) => {
      actor.actions++;
      await press(page, name);
    },
    type: async (label: string, text: string) => {
      actor.actions++;
      await page.getByLabel(label).fill(text);
    },
    paste: async (text: string) => {
      actor.actions++;
      await context.grantPermissions(['clipboard-read', 'clipboard-write']);
      await page.evaluate(`navigator.clipboard.writeText(${JSON.stringify(text)})`);
      await page.keyboard.press('Control+V');
    },
  };
  return actor;
}

test('300 files of a month are requested in four actions', async () => {
  const window = await openView('files');
  const actor = createActor(window);
  await actor.type('Search all files', 'ocean *_2024-01_*');
  await actor.click('Select all 300 matching files');
  await actor.click('Request');
  await actor.click('Request 300 files');
  await waitForRequest(window.page);
  await window.page.getByText('0 of 300 files').first().waitFor();
  expect(actor.actions).toBe(4);
  expect(window.faults).toEqual([]);
});

test('300 pasted names, two of them wrong, are requested in five actions', async () => {
  const window = await openView('files/demo/Ocean/2024/02');
  const { page } = window;
  const names = monthOf('02').map((path) => path.slice(path.lastIndexOf('/') + 1));
  const wrong = ['/none/of/these.nc', '/demo/Ocaen/2024/02/sst_2024-02_101.nc'];
  const actor = createActor(window);
  await page.getByText('300 files, 300 kB').waitFor();
  await actor.paste([...wrong, ...names.slice(2)].join('\n'));
  await dialog(page).getByText('298 files found, 2 paths not found').waitFor();
  await expectAccessible(window);
  await expectToFit(window);
  await actor.click(/^Select .*sst_2024-02_101\.nc instead/);
  await actor.click('Select 299 files');
  await bar(page).getByText('299 files, 299 kB').waitFor();
  await actor.click('Request');
  await actor.click('Request 299 files');
  await waitForRequest(page);
  expect(actor.actions).toBe(5);
  expect(window.faults).toEqual([]);
});

test('a dropped list names unknown paths, and those without a suggestion are left out', async () => {
  const { page } = await openView('files');
  await press(page, 'Paste a list');
  await page.evaluate(`(() => {
    const data = new DataTransfer();
    data.items.add(new File(['/ice/north.nc\\n/ice/north.nc\\n"/nothing/here"\\n\\n'], 'list.txt', { type: 'text/plain' }));
    document.querySelector('textarea').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
  })()`);
  await dialog(page).getByText('1 file found, 1 path not found').waitFor();
  await dialog(page).getByText('Skipped: no similar file').waitFor();
  await press(page, 'Select 1 file');
  await bar(page).getByText('1 file, 1.00 kB').waitFor();
});

test('a link shows the same search, filters, order and selection to another user', async () => {
  const alice = await openAs('alice', 'files/demo?q=0&sort=size&direction=desc');
  const { page } = alice;
  await press(page, 'Filters');
  await page.getByLabel('Stage').selectOption('Only on tape');
  await page.getByLabel('At most', { exact: true }).fill('10 kb');
  await page.getByLabel('At most', { exact: true }).press('Enter');
  await page.getByText('600 files').waitFor();
  const [first, second, third] = (await namesOf(page)).map((shown) => path.basename(shown));
  await page.getByLabel(`Select ${first}`).check();
  await page.getByLabel(`Select ${third}`).click({ modifiers: ['Shift'] });
  await bar(page).getByText('3 files, 3.00 kB').waitFor();
  await expect.poll(() => page.url()).toContain('sel=');
  const view = page.url().slice(`${app.url}/#/`.length);
  const bob = await openAs('bob', view);
  await bar(bob.page).getByText('3 files, 3.00 kB').waitFor();
  await bob.page.getByText('600 files').waitFor();
  const firstNames = async (of: Page) => (await namesOf(of)).slice(0, 10);
  await expect.poll(() => firstNames(bob.page)).toEqual(await firstNames(page));
  for (const text of ['Only on tape', 'At most 10 kb']) await bob.page.getByRole('button', { name: text }).waitFor();
  expect(bob.page.url().slice(`${app.url}/#/`.length)).toBe(view);
  expect(await bob.page.getByLabel(`Select ${second}`).isChecked()).toBe(true);
});

test('the selection stays during other searches and a reload, and shrinks file by file or altogether', async () => {
  const window = await openView('files/ice', narrow);
  const { page, faults } = window;
  await page.getByLabel('Select north.nc').check();
  await page.getByLabel('Select south.nc').check();
  await page.getByLabel('Search in ice').fill('only');
  await expectNames(page, ['only.nc']);
  await page.reload();
  await bar(page).getByText('2 files, 2.00 kB').waitFor();
  await press(page, 'Show');
  await page.getByRole('listitem').filter({ hasText: '/ice/south.nc' }).waitFor();
  await expectAccessible(window);
  await expectToFit(window);
  await press(page, 'Remove /ice/south.nc');
  await dialog(page).getByText('Selected: 1 file, 1.00 kB').waitFor();
  await press(page, 'Close');
  await expectAccessible(window);
  await expectToFit(window);
  await press(page, 'Clear');
  await bar(page).waitFor({ state: 'detached' });
  await expect.poll(() => page.url()).toBe(`${app.url}/#/files/ice?q=only`);
  expect(faults).toEqual([]);
});

test('folders show their files and sizes, and the check box of a folder selects all files below it', async () => {
  const window = await openView('files/demo');
  const { page } = window;
  await page.getByText('602 files, 7.60 MB in 1 folder').waitFor();
  await expectNames(page, ['Ocean', 'readme', 'zebra']);
  expect(await page.getByRole('row').filter({ hasText: 'Ocean' }).textContent()).toBe('Ocean600 kB600 files');
  await page.getByLabel('Select Ocean').click();
  await bar(page).getByText('600 files, 600 kB').waitFor();
  expect(await page.getByLabel('Select Ocean').isChecked()).toBe(true);
  await page.getByRole('link', { name: 'Ocean' }).click();
  await page.getByLabel('Select 2024').uncheck();
  await bar(page).waitFor({ state: 'detached' });
  await page.goBack();
  await page.getByLabel('Select all files in the list').click();
  await bar(page).getByText('602 files, 7.60 MB').waitFor();
});

test('columns sort the files, and Back returns to the previous order', async () => {
  const { page } = await openView('files/demo');
  await expectNames(page, ['Ocean', 'readme', 'zebra']);
  await press(page, 'Volume');
  await expectNames(page, ['Ocean', 'zebra', 'readme']);
  await press(page, 'Modified');
  await expectNames(page, ['Ocean', 'readme', 'zebra']);
  await press(page, 'Modified');
  await expectNames(page, ['Ocean', 'zebra', 'readme']);
  await expect.poll(() => page.url()).toBe(`${app.url}/#/files/demo?sort=modified&direction=desc`);
  await page.goBack();
  await expectNames(page, ['Ocean', 'readme', 'zebra']);
});

test('a search finds files below the folder, or everywhere, and its paths begin at the folder', async () => {
  const { page } = await openView('files/demo/Ocean/2024');
  await page.getByLabel('Search in 2024').fill('_111');
  await expectNames(page, ['01/sst_2024-01_111.nc', '02/sst_2024-02_111.nc']);
  await page.getByLabel('Search in 2024').fill('north');
  await page.getByText('No matching files').waitFor();
  await press(page, 'Search everywhere, not only in 2024');
  await expectNames(page, ['/ice/north.nc']);
  expect(await page.getByLabel('Search everywhere').isChecked()).toBe(true);
});

test('a search without matches suggests similar names and paths', async () => {
  const window = await openView('files?q=Oceaan');
  const { page } = window;
  await press(page, 'Ocean');
  await page.getByText('600 files').waitFor();
  await page.getByLabel('Search all files').fill('/ice/nroth.nc');
  await page.getByText('Did you mean').waitFor();
  await expectAccessible(window);
  await press(page, '/ice/north.nc');
  await expectNames(page, ['/ice/north.nc']);
});

test('a link of an older version finds paths that contain its plain, case-sensitive text', async () => {
  const { page } = await openView('files?match=%2Fice%2F');
  await expectNames(page, ['/ice/north.nc', '/ice/only.nc', '/ice/south.nc']);
  await page.goto(`${app.url}/#/files?match=${encodeURIComponent('/ICE/*')}`);
  await page
    .getByText('no file in the catalogue has a path that contains "/ICE/*" (case-sensitive; * ? [ ] are literal)')
    .waitFor();
});

test('Back returns from a folder, from a search of any length, and from the files', async () => {
  const { page } = await openView('requests');
  await page.getByRole('link', { name: 'Files', exact: true }).click();
  await page.getByRole('link', { name: 'demo' }).click();
  await expectNames(page, ['Ocean', 'readme', 'zebra']);
  for (const text of ['read', 'readm', 'readme']) {
    await page.getByRole('searchbox').fill(text);
    await page.waitForURL(`${app.url}/#/files/demo?q=${text}`);
  }
  await page.goBack();
  await expectNames(page, ['Ocean', 'readme', 'zebra']);
  expect(await page.getByRole('searchbox').inputValue()).toBe('');
  await page.getByRole('link', { name: 'All files' }).click();
  await expectNames(page, ['demo', 'ice']);
  for (let n = 0; n < 3; n++) await page.goBack();
  await page.getByRole('heading', { name: 'Requests' }).waitFor();
});

test('files are found, selected and requested with the keyboard alone', async () => {
  const { page } = await openView('files');
  await expectNames(page, ['demo', 'ice']);
  for (const key of ['j', 'j', 'Enter']) await page.keyboard.press(key);
  await expectNames(page, ['north.nc', 'only.nc', 'south.nc']);
  await page.keyboard.press('u');
  await expectNames(page, ['demo', 'ice']);
  await page.keyboard.press('/');
  await page.keyboard.type('ice only');
  await expectNames(page, ['/ice/only.nc']);
  await page.keyboard.press('Tab'); // leaves the search field
  for (const key of ['ArrowDown', 'x']) await page.keyboard.press(key);
  await bar(page).getByText('1 file').waitFor();
  const focused = async () => await page.evaluate('document.activeElement.textContent');
  const reach = async (name: string) => {
    for (let n = 0; n < 30 && (await focused()) !== name; n++) await page.keyboard.press('Tab');
    expect(await focused()).toBe(name);
    await page.keyboard.press('Enter');
  };
  await reach('Request');
  await dialog(page).getByText('In a moment').waitFor();
  await reach('Request 1 file');
  await page.getByRole('heading', { name: /^Request \d+ Complete$/ }).waitFor();
  expect(await page.title()).toMatch(/^Request \d+ · Tapegate$/);
});

test('a request that exceeds the quota cannot be sent, and the disabled button looks different and says why', async () => {
  const window = await openAs('bob', 'files/demo');
  const { page } = window;
  await page.getByLabel('Select zebra').check();
  await press(page, 'Estimate');
  await dialog(page).getByText('7.00 MB of 1.00 kB: exceeds the quota').waitFor();
  await press(page, 'Continue to the request');
  const request = dialog(page).getByRole('button', { name: 'Request 1 file' });
  const colour = () =>
    page.evaluate<string>("getComputedStyle(document.querySelector('dialog .button.main')).backgroundColor");
  await request.and(page.locator('[aria-disabled="true"]')).waitFor();
  await request.hover({ force: true });
  await dialog(page).getByText('Exceeds the quota by 7.00 MB.').waitFor();
  await expectAccessible(window);
  const disabled = await colour();
  await press(page, 'Cancel');
  await page.getByLabel('Select zebra').uncheck();
  await page.getByLabel('Select readme').check();
  await press(page, 'Request');
  await request.and(page.locator(':not([aria-disabled])')).waitFor();
  expect(await colour()).not.toBe(disabled);
  await page.getByLabel('Keep on disk until').fill('2020-01-01');
  await dialog(page).getByRole('paragraph').getByText('Enter a date in the future', { exact: true }).waitFor();
  expect(await request.getAttribute('aria-disabled')).toBe('true');
});

test('a request has the label, the date and the email address of the dialog, which shows other requests of the files', async () => {
  await createRequest(app.ctx, { quota: 'alice', files: ['/ice/north.nc'] });
  const window = await openView('files?match=%2Fice%2Fnorth', narrow);
  const { page, faults } = window;
  await press(page, 'Request all matches, including future files');
  await dialog(page)
    .getByText(/All files whose path contains/)
    .waitFor();
  await dialog(page)
    .getByText(/^1 file \(1\.00 kB\) is also in other requests/)
    .waitFor();
  await page.getByLabel('Label').fill('for the atlas');
  const inDays = new Date(Date.now() + 12 * 86_400_000);
  await page.getByLabel('Keep on disk until').fill(inDays.toISOString().slice(0, 10));
  await page.getByLabel('Email when complete').check();
  await dialog(page).getByText('Email is only logged at this site').waitFor();
  await page.getByLabel('Send to').fill('atlas@example.org');
  await expectAccessible(window);
  await expectToFit(window);
  await press(page, 'Request 1 file');
  await waitForRequest(page);
  await page.getByText('for the atlas').first().waitFor();
  await page.getByRole('tab', { name: 'Details' }).click();
  for (const shown of ['All files with "/ice/north" in their path', 'atlas@example.org']) {
    await page.getByText(shown).first().waitFor();
  }
  const { rows } = await app.ctx.db.pool.query(
    `SELECT round(extract(epoch FROM retention - request_date) / 86400)::int AS days FROM request WHERE label = 'for the atlas'`,
  );
  expect([12, 13]).toContain(rows[0].days);
  expect(faults).toEqual([]);
});

test('a user who may only read sees no selection, and signing in returns to the view', async () => {
  const { page } = await openView('files/ice?q=north');
  await page.getByRole('link', { name: 'Sign in' }).click();
  await page.getByLabel('Token').fill(tokens.reader ?? '');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expectNames(page, ['north.nc']);
  await expect.poll(() => page.url()).toBe(`${app.url}/#/files/ice?q=north`);
  expect(await page.getByRole('checkbox', { name: /^Select/ }).count()).toBe(0);
  expect(await page.getByRole('button', { name: /Select all|Paste a list/ }).count()).toBe(0);
});

test('more than 100,000 files cannot be selected, but be requested by a part of their path', async () => {
  await app.ctx.db.pool.query(
    `INSERT INTO tape_file (path, size, stage) SELECT '/large/' || n, 1, 'ONDISK' FROM generate_series(1, 100001) n`,
  );
  const window = await openView('files/large');
  const { page } = window;
  await press(page, 'Select all 100,001 files');
  await dialog(page)
    .getByText(/At most 100,000 files can be selected/)
    .waitFor();
  await expectAccessible(window);
  expect(await page.getByLabel('All files whose path contains').inputValue()).toBe('/large/');
  await press(page, 'Request by path');
  await dialog(page).getByRole('heading', { name: 'Request 100,001 files' }).waitFor();
});

test('a long list loads its rows while the user scrolls', async () => {
  await app.ctx.db.pool.query(
    `INSERT INTO tape_file (path, size, stage) SELECT '/long/' || lpad(n::text, 4, '0'), 1, 'ONDISK' FROM generate_series(1, 3000) n`,
  );
  const { page } = await openView('files/long');
  await page.getByText('3,000 files, 3.00 kB').waitFor();
  await expect
    .poll(async () => {
      await page.keyboard.press('End');
      return (await namesOf(page)).at(-1);
    })
    .toBe('3000');
  expect(await page.getByRole('row').count()).toBeLessThan(200);
});
