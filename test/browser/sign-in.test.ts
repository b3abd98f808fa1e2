/** Signing in to the dashboard at an identity provider, in a real browser. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { useBrowser } from '../support/chromium.js';
import { addQuota } from '../support/factories.js';
import { AUDIENCE, DEVICE_CLIENT, type IdentityProvider, startIdentityProvider } from '../support/identity-provider.js';
import { findFreePort } from '../support/ports.js';
import { cleanUp, type LocalServer, serveHere } from '../support/process.js';
import { createGate, waitFor } from '../support/wait.js';

const openWindow = useBrowser();
let app: TestApp;
let provider: IdentityProvider;
let gateway: LocalServer;

beforeAll(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'alice', 10n ** 9n);
  const port = await findFreePort();
  provider = await startIdentityProvider([`http://127.0.0.1:${port}/`]);
  gateway = await serveHere({
    DATABASE_URL: app.databaseUrl,
    DATA_DIR: app.dataDir,
    PORT: String(port),
    TAPEGATE_AUTH: 'oidc',
    TAPEGATE_OIDC_ISSUER: provider.url,
    TAPEGATE_OIDC_AUDIENCE: AUDIENCE,
    TAPEGATE_OIDC_CLIENT_ID: DEVICE_CLIENT,
  });
});
afterEach(() => {
  provider.isAway = false;
});
afterAll(async () => {
  await cleanUp();
  await provider?.close();
  await app?.close();
});

/** Signs in on the provider's pages, which redirect back to the view. */
async function signInAt(view: string, { isKept = false } = {}) {
  const window = await openWindow(`${gateway.url}/${view}`);
  const { page } = window;
  if (isKept) await page.getByLabel('Stay signed in').check();
  await page.getByRole('button', { name: `Sign in at ${new URL(provider.url).host}` }).click();
  await page.getByPlaceholder('Enter any login').fill('alice');
  await page.getByPlaceholder('and password').fill('any');
  await page.getByRole('button', { name: 'Sign-in' }).click();
  await page.getByRole('button', { name: 'Continue' }).click();
  return window;
}

test('a user who signs in at a provider returns to the view, without a code in the address', async () => {
  const { page, faults } = await signInAt('#/requests');
  await page.getByRole('button', { name: 'Sign out' }).waitFor();
  await page.getByText('alice').first().waitFor();
  expect(page.url()).toBe(`${gateway.url}/#/requests`);
  expect(faults).toEqual([]);
  await page.reload();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('button', { name: /^Sign in at/ }).waitFor();
});

test('a token that is about to expire is renewed while the page is used', async () => {
  provider.lifeSeconds = 61; // a token that expires in 61 s is renewed after one second
  const { page } = await signInAt('#/requests');
  await page.getByRole('button', { name: 'Sign out' }).waitFor();
  const asked = () => provider.asked.filter((path) => path === '/token').length;
  const before = asked();
  provider.lifeSeconds = 600;
  await waitFor('the next token', async () => {
    await page.getByRole('link', { name: 'Quotas', exact: true }).click();
    await page.getByRole('link', { name: 'Requests', exact: true }).click();
    return asked() > before;
  });
  await page.getByText('0 requests').waitFor();
});

test('two tabs that share a token renew it once', async () => {
  provider.lifeSeconds = 61;
  const { page } = await signInAt('#/requests', { isKept: true });
  await page.getByRole('button', { name: 'Sign out' }).waitFor();
  const gate = createGate();
  let renewals = 0;
  await page.context().route(`${provider.url}/token`, async (route) => {
    if (route.request().method() !== 'POST') return await route.continue(); // a preflight request
    renewals++;
    await gate.opened;
    await route.continue();
  });
  provider.lifeSeconds = 600;
  const views = ['Quotas', 'Requests'];
  await waitFor('the renewal', async () => {
    const view = views.reverse()[0] as string;
    if (renewals === 0) await page.getByRole('link', { name: view, exact: true }).click();
    return renewals > 0;
  });
  const other = await page.context().newPage();
  await other.goto(`${gateway.url}/#/quotas`);
  await waitFor('the other tab to need a token', async () => {
    const { pending } = await other.evaluate(() => navigator.locks.query());
    return renewals > 1 || (pending?.length ?? 0) > 0;
  });
  gate.open();
  await other.getByText('1.00 GB').first().waitFor();
  expect(renewals).toBe(1);
});

test('a cancelled sign-in and an unavailable provider are reported with the reason', async () => {
  const { page } = await openWindow(`${gateway.url}/`);
  await page.getByRole('button', { name: /^Sign in at/ }).click();
  await page.getByRole('link', { name: '[ Cancel ]' }).click();
  await page.getByRole('alert').getByText('failed:').waitFor();
  provider.isAway = true;
  await page.getByRole('button', { name: /^Sign in at/ }).click();
  await page.getByRole('alert').getByText(provider.url).waitFor();
});
