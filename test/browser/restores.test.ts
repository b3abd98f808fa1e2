/** Restores in the dashboard of a gateway that needs tokens: live progress, restarts of the gateway, downloads and access. */
import { readFileSync, rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { createToken, revokeToken } from '../../src/domain/access/tokens.js';
import { createRequest } from '../../src/domain/requests/create.js';
import { startApp, type TestApp } from '../support/app.js';
import { expectAccessible, signIn, useBrowser, type Window } from '../support/chromium.js';
import { addQuota, addTaped } from '../support/factories.js';
import { holdReads } from '../support/held-reads.js';
import { createMemoryLibrary } from '../support/memory-library.js';
import { findFreePort } from '../support/ports.js';
import { cleanUp, type LocalServer, serveHere } from '../support/process.js';

const FILES = 6;

const openWindow = useBrowser();
const library = createMemoryLibrary();
const reads = holdReads(library);
let app: TestApp;
let gateway: LocalServer;
let port: number;
let alice: string;

beforeAll(async () => {
  app = await startApp({ library, config: { drives: FILES } });
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  await addQuota(app.ctx, 'bob', 10n ** 9n);
  alice = await createSecret('alice');
  await addTaped(app.ctx, library, [{ path: '/wind/a.nc', volume: 'WIND' }]);
  reads.open('WIND');
  port = await findFreePort();
  gateway = await start();
});
afterAll(async () => {
  reads.open();
  await cleanUp();
  await app?.close();
});

const serve = (env: Record<string, string>) =>
  serveHere({ DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, TAPEGATE_WEBDAV: 'all', ...env });
const start = () => serve({ PORT: String(port), TAPEGATE_AUTH: 'token' });
const createSecret = async (name: string) => (await createToken(app.ctx, { name, role: 'USER' })).secret;

async function openAs(secret: string, view = '#/'): Promise<Window> {
  const window = await openWindow(`${gateway.url}/${view}`);
  await signIn(window, secret);
  return window;
}

/** How often the test has run. Each run uses its own files and volumes, so that the test can be repeated. */
let runs = 0;

test('windows follow a restore over a restart of the gateway, and a change during it fails with a message', async () => {
  if (runs++ > 0) {
    await gateway.stop();
    gateway = await start();
  }
  const folder = `/ocean-${runs}`;
  const volumeOf = (n: number) => `OCEAN${runs}-${n}`;
  const openReads = (...numbers: number[]) => {
    for (const n of numbers) reads.open(volumeOf(n));
  };
  const numbers = Array.from({ length: FILES }, (_, n) => n + 1);
  const files = numbers.map((n) => ({ path: `${folder}/sst_${n}.nc`, volume: volumeOf(n) }));
  await addTaped(app.ctx, library, files);
  onTestFinished(() => openReads(...numbers)); // opens blocked reads, so that a failed run leaves no drive busy
  const asking = await openAs(alice);
  await asking.page.getByLabel('Search all files').fill(`${folder}/`);
  await asking.page.getByRole('button', { name: `Select all ${FILES} matching files` }).click();
  await asking.page.getByRole('button', { name: 'Request', exact: true }).click();
  await asking.page.getByRole('button', { name: `Request ${FILES} files` }).click();
  const heading = asking.page.getByRole('heading', { name: /^Request \d+/, level: 1 });
  const [, id] = /Request (\d+)/.exec((await heading.textContent()) ?? '') ?? [];
  const watching = await openAs(alice, `#/requests/${id}`);
  const resting = await openAs(alice, '#/quotas/alice');
  await resting.page.getByText('Requests of this quota').waitFor();
  openReads(1, 2);
  for (const { page } of [asking, watching]) await page.getByText(`2 of ${FILES} files`).waitFor();

  await gateway.stop();
  const windows = [asking, watching, resting];
  for (const { page } of windows) await page.getByText('The connection to the gateway is lost').waitFor();
  await watching.page.getByRole('button', { name: 'Extend', exact: true }).click();
  const extend = watching.page.getByRole('dialog').getByRole('button', { name: 'Extend', exact: true });
  await extend.click();
  const failure = watching.page.getByText('The gateway does not respond; it is unknown whether the change was made.');
  await failure.waitFor();
  await expectAccessible(watching);
  openReads(3, 4);
  gateway = await start();
  for (const { page } of windows) {
    await page.getByText('The connection to the gateway is lost').waitFor({ state: 'detached' });
  }
  for (const { page } of [asking, watching]) await page.getByText(`4 of ${FILES} files`).waitFor();
  await extend.click();
  await watching.page.getByText(/in 3[56] days/).waitFor();
  expect(await failure.count()).toBe(0);

  openReads(5, 6);
  for (const { page } of [asking, watching]) {
    await page.getByRole('heading', { name: 'Complete' }).waitFor();
    await page.getByText(`${app.restoreDir}${folder}/sst_6.nc`).waitFor();
  }
  for (const { faults, hosts } of windows) {
    expect([faults, [...hosts]]).toEqual([[], [new URL(gateway.url).host]]);
  }
});

test('a restored file can be downloaded with a token and without, unless WebDAV is off or the file is missing', async () => {
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: '/wind' });
  const copy = `${app.restoreDir}/wind/a.nc`;
  const view = `#/requests/${id}`;
  const buttonIn = ({ page }: Window) => page.getByRole('button', { name: 'Download /wind/a.nc' });
  const expectDownload = async (window: Window) => {
    const [download] = await Promise.all([window.page.waitForEvent('download'), buttonIn(window).click()]);
    expect(download.suggestedFilename()).toBe('a.nc');
    expect(readFileSync(await download.path())).toEqual(readFileSync(copy));
  };
  const window = await openAs(alice, view);
  await window.page.getByText(copy).waitFor();
  await expectDownload(window);
  const open = await serve({});
  await expectDownload(await openWindow(`${open.url}/${view}`));
  const without = await serve({ TAPEGATE_WEBDAV: 'off' });
  const other = await openWindow(`${without.url}/${view}`);
  await other.page.getByText(copy).waitFor();
  expect(await buttonIn(other).count()).toBe(0);

  rmSync(copy);
  await buttonIn(window).click();
  await window.page.getByRole('alert').getByText('"/wind/a.nc"').waitFor();
  await expectAccessible(window);
});

test('a user sees no request of another user, and an unknown token does not sign in', async () => {
  const id = await createRequest(app.ctx, { quota: 'alice', pattern: '/wind' });
  const { page } = await openAs(await createSecret('bob'), `#/requests/${id}`);
  await page.getByText(`Request ${id} does not exist, or you are not allowed to see it.`).waitFor();
  await page.getByRole('link', { name: 'Requests', exact: true }).click();
  await page.getByText('No requests.').waitFor();
  expect(await page.getByText('alice').count()).toBe(0);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('Token').fill('none-that-was-made');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('alert').getByText('token').waitFor();
});

test('a user whose token is revoked is asked to sign in again, with the reason', async () => {
  const { secret, token } = await createToken(app.ctx, { name: 'carol', role: 'USER' });
  const { page } = await openAs(secret, '#/requests');
  await page.getByText('No requests.').waitFor();
  await revokeToken(app.ctx, token.id);
  await page.getByLabel('Token').waitFor();
  await page.getByRole('alert').getByText('no longer valid').waitFor();
});
