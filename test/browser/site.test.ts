/** The views for those who look after the site, in a real browser: accessible, live, and able to take things out of service. */
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { createToken } from '../../src/operations/access/tokens.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { expectAccessible, expectToFit, openBrowser, openWindow, signIn } from '../support/chromium.js';
import { addQuota, addTaped } from '../support/factories.js';
import { resume } from '../support/suspend.js';
import { createGate } from '../support/wait.js';

let browser: Browser;
let app: TestApp;
let viewer: string;
const gate = createGate();

beforeAll(async () => {
  browser = await openBrowser();
  const backend = createMemoryBackend();
  backend.onMount = async () => await gate.opened;
  app = await startApp({ backend, config: { drives: 1 } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  const files = Array.from({ length: 6 }, (_, n) => ({ path: `/site/${n}`, volume: `SITE0${n % 3}`, size: 1000 }));
  await addTaped(app.ctx, backend, files);
  await createRequest(app.ctx, { quota: 'alice', pattern: '/site/' });
  viewer = (await createToken(app.ctx, { name: 'watcher', role: 'VIEWER' })).secret;
}, 120_000);
afterEach(async () => {
  for (const context of browser.contexts()) await context.close();
});
afterAll(async () => {
  gate.open();
  await browser?.close();
  await app?.close();
});

/** Where a view is, and what it shows when it is all there. */
const views: [place: string, shown: string | RegExp][] = [
  ['#/plan', 'SITE02'],
  ['#/curves', 'Curves'],
  ['#/volumes', 'SITE01'],
  ['#/disks', /restore/],
  ['#/libraries', 'Libraries'],
  ['#/suspensions', 'Out of service'],
  ['#/users', 'alice'],
  ['#/failures', 'Tape copies that could not be confirmed'],
  ['#/processes', 'Gateways and engines'],
  ['#/audit', 'createToken'],
];

const looks = [
  { width: 360, height: 740, colorScheme: 'dark' },
  { width: 1280, height: 800, colorScheme: 'light' },
] as const;

test.each(views)('%s is accessible and fits at each width, in the light and in the dark', async (place, shown) => {
  for (const { colorScheme, ...viewport } of looks) {
    const window = await openWindow(browser, `${app.url}/#/sign-in`, { viewport, colorScheme });
    await signIn(window, app.token);
    await window.page.goto(`${app.url}/${place}`);
    await window.page.getByRole('main').getByText(shown).first().waitFor();
    await expectAccessible(window);
    await expectToFit(window);
    expect(window.faults).toEqual([]);
    await window.context.close();
  }
});

test('a volume is held by clicking, with a reason, and all who watch see it, as they see that it is resumed elsewhere', async () => {
  const operator = await openWindow(browser, `${app.url}/#/sign-in`);
  await signIn(operator, app.token);
  const watching = await openWindow(browser, `${app.url}/#/sign-in`);
  await signIn(watching, viewer);
  const auditing = await openWindow(browser, `${app.url}/#/sign-in`);
  await signIn(auditing, app.token);
  await auditing.page.goto(`${app.url}/#/audit`);
  await auditing.page.getByText('createToken').first().waitFor();
  await watching.page.goto(`${app.url}/#/suspensions`);
  await operator.page.goto(`${app.url}/#/volumes`);
  await operator.page.getByRole('button', { name: 'Hold SITE02' }).click();
  await operator.page.getByLabel('Why is SITE02 taken out of service?').fill('its label came off');
  await operator.page.getByRole('button', { name: 'Hold SITE02' }).click();
  await watching.page.getByText('its label came off').waitFor();
  await operator.page.getByText('its label came off').waitFor();
  await auditing.page.getByRole('cell', { name: 'suspend', exact: true }).waitFor();
  await resume(app, 'VOLUME', 'SITE02');
  for (const { page } of [operator, watching])
    await page.getByText('its label came off').waitFor({ state: 'detached' });
  for (const { faults } of [operator, watching, auditing]) expect(faults).toEqual([]);
});

test('whoever only watches is shown the site, and no way to change it', async () => {
  const window = await openWindow(browser, `${app.url}/#/sign-in`);
  await signIn(window, viewer);
  await window.page.goto(`${app.url}/#/volumes`);
  await window.page.getByText('SITE01').waitFor();
  expect(await window.page.getByRole('button', { name: /hold|drain|resume/i }).count()).toBe(0);
  expect(await window.page.getByRole('link', { name: 'Audit' }).count()).toBe(0);
});
