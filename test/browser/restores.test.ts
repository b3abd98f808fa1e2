/** What a scientist does in the dashboard, in a real browser, while others watch and gateways come and go. */
import { readFileSync, rmSync } from 'node:fs';
import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { createToken, revokeToken } from '../../src/operations/access/tokens.js';
import { createRequest } from '../../src/operations/requests/create.js';
import { createMemoryBackend } from '../../src/tape/memory.js';
import { startApp, type TestApp } from '../support/app.js';
import { expectAccessible, openBrowser, openWindow, signIn, type Window } from '../support/chromium.js';
import { addQuota, addTaped } from '../support/factories.js';
import { takePort } from '../support/ports.js';
import { cleanUp, type LocalServer, serveHere } from '../support/process.js';
import { createGate, type Gate } from '../support/wait.js';

const FILES = 6;

let browser: Browser;
let app: TestApp;
let gateway: LocalServer;
let port: number;
/** Opened, the files behind it can be read. */
let gates: Map<bigint, Gate>;
const secrets: Record<string, string> = {};

beforeAll(async () => {
  browser = await openBrowser();
}, 120_000);
afterAll(async () => await browser?.close());

beforeEach(async () => {
  const backend = createMemoryBackend();
  gates = new Map(Array.from({ length: FILES }, (_, index) => [BigInt(index + 1), createGate()]));
  backend.onRead = async (_volume, position, bytes) => {
    await gates.get(position)?.opened;
    return bytes;
  };
  app = await startApp({ backend });
  for (const user of ['alice', 'bob']) {
    await addQuota(app.ctx, user, 10n ** 9n);
    secrets[user] = (await createToken(app.ctx, { name: user, role: 'USER' })).secret;
  }
  const paths = Array.from({ length: FILES }, (_, index) => ({ path: `/ocean/2024/sst_${index}.nc`, size: 5000 }));
  await addTaped(app.ctx, backend, paths);
  const taken = await takePort();
  port = taken.port;
  await taken.letGo();
  gateway = await start();
}, 120_000);
afterEach(async () => {
  for (const gate of gates.values()) gate.open();
  for (const context of browser.contexts()) await context.close();
  await cleanUp();
  await app.close();
});

const serve = async (env: Record<string, string>) =>
  await serveHere({ DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, ...env });
const start = async () => await serve({ PORT: String(port), AUTH: 'token' });

const openAs = async (user: string, place = '#/'): Promise<Window> => {
  const window = await openWindow(browser, `${gateway.url}/${place}`);
  await signIn(window, secrets[user] ?? '');
  return window;
};

const openUpTo = (position: number) => {
  for (let n = 1; n <= position; n++) gates.get(BigInt(n))?.open();
};

test('files are found, priced and restored by clicking, two browsers watch it live, and a gateway that is restarted under them is no end of it', async () => {
  const asking = await openAs('alice');
  await asking.page.getByLabel('Part of a path').fill('/ocean/2024');
  await asking.page.getByText(`${FILES} files`, { exact: true }).waitFor();
  await asking.page.getByRole('button', { name: 'What would it take?' }).click();
  await asking.page.getByRole('button', { name: `Restore ${FILES} files` }).click();
  await asking.page.getByRole('heading', { name: 'Request 1' }).waitFor();
  await expectAccessible(asking);

  const watching = await openAs('alice', '#/requests/1');
  openUpTo(2);
  for (const { page } of [asking, watching]) await page.getByText(`2 of ${FILES} files`).waitFor();

  await gateway.stop();
  for (const { page } of [asking, watching]) await page.getByText('The line to the gateway is broken').waitFor();
  openUpTo(4);
  gateway = await start();
  for (const { page } of [asking, watching]) {
    await page.getByText(`4 of ${FILES} files`).waitFor();
    await page.getByText('The line to the gateway is broken').waitFor({ state: 'detached' });
  }

  openUpTo(FILES);
  for (const { page } of [asking, watching]) {
    await page.getByRole('heading', { name: 'Complete' }).waitFor();
    await page.getByText(`${app.restoreDir}/ocean/2024/sst_5.nc`).waitFor();
  }
  for (const window of [asking, watching]) {
    expect(window.faults).toEqual([]);
    expect([...window.hosts]).toEqual([new URL(gateway.url).host]);
  }
}, 120_000);

test('each view tells that the gateway is away while it is, and a change that came to nothing then says so in words', async () => {
  await createRequest(app.ctx, { quota: 'alice', pattern: '/ocean' });
  const changing = await openAs('alice', '#/requests/1');
  const resting = await openAs('alice', '#/quotas/alice');
  await changing.page.getByRole('heading', { name: 'Request 1' }).waitFor();
  await resting.page.getByText('Its requests').waitFor();
  await gateway.stop();
  for (const { page } of [changing, resting]) await page.getByText('The line to the gateway is broken').waitFor();
  await changing.page.getByRole('button', { name: 'Keep 30 days longer' }).click();
  const told = changing.page.getByText('The gateway does not answer; nothing is known to be changed.');
  await told.waitFor();
  await expectAccessible(changing);

  gateway = await start();
  for (const { page } of [changing, resting])
    await page.getByText('The line to the gateway is broken').waitFor({ state: 'detached' });
  await changing.page.getByRole('button', { name: 'Keep 30 days longer' }).click();
  await changing.page.getByText('in 35 days').waitFor();
  expect(await told.count()).toBe(0);
  for (const { faults } of [changing, resting]) expect(faults).toEqual([]);
}, 120_000);

test('a restored file is downloaded from its line, with and without a token, or it is said why not', async () => {
  openUpTo(FILES);
  await createRequest(app.ctx, { quota: 'alice', pattern: '/ocean' });
  const kept = `${app.restoreDir}/ocean/2024/sst_3.nc`;
  const press = { name: 'Download /ocean/2024/sst_3.nc' };
  const save = async ({ page }: Window) => {
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', press).click()]);
    expect(download.suggestedFilename()).toBe('sst_3.nc');
    expect(readFileSync(await download.path())).toEqual(readFileSync(kept));
  };
  const served = await serve({ WEBDAV: 'all', AUTH: 'token' });
  const window = await openWindow(browser, `${served.url}/#/requests/1`);
  await signIn(window, secrets.alice ?? '');
  await window.page.getByText(kept).waitFor();
  await save(window);

  const open = await serve({ WEBDAV: 'all' });
  await save(await openWindow(browser, `${open.url}/#/requests/1`));
  const without = await serve({ WEBDAV: 'off' });
  const other = await openWindow(browser, `${without.url}/#/requests/1`);
  await other.page.getByText(kept).waitFor();
  expect(await other.page.getByRole('button', press).count()).toBe(0);

  rmSync(kept);
  await window.page.getByRole('button', press).click();
  await window.page.getByRole('alert').getByText('"/ocean/2024/sst_3.nc"').waitFor();
  await expectAccessible(window);
}, 120_000);

test('whoever may not see a request of another is told that there is none, in its view and in the list', async () => {
  const alice = await openAs('alice', '#/files?match=/ocean');
  await alice.page.getByRole('button', { name: 'What would it take?' }).click();
  await alice.page.getByRole('button', { name: `Restore ${FILES} files` }).click();
  await alice.page.getByRole('heading', { name: 'Request 1' }).waitFor();

  const bob = await openAs('bob', '#/requests/1');
  await bob.page.getByText('There is no request 1 that you may see.').waitFor();
  await bob.page.getByRole('link', { name: 'Requests', exact: true }).click();
  await bob.page.getByText('There is none.').waitFor();
  expect(await bob.page.getByText('alice').count()).toBe(0);

  await bob.page.getByRole('button', { name: 'Sign out' }).click();
  await bob.page.getByLabel('Token').waitFor();
  await bob.page.getByLabel('Token').fill('none-that-was-made');
  await bob.page.getByRole('button', { name: 'Sign in' }).click();
  await bob.page.getByRole('alert').getByText('token').waitFor();
}, 120_000);

test('whoever is known no longer is asked to sign in again, and told why', async () => {
  const { secret, token } = await createToken(app.ctx, { name: 'carol', role: 'USER' });
  secrets.carol = secret;
  const { page } = await openAs('carol', '#/requests');
  await page.getByText('There is none.').waitFor();
  await revokeToken(app.ctx, token.id);
  await page.getByLabel('Token').waitFor();
  await page.getByRole('alert').getByText('not known').waitFor();
}, 120_000);
