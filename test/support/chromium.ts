/** Runs a real Chromium, which the global setup installs if the system has none. */
import axe from 'axe-core';
import { type Browser, type BrowserContext, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { findChromium } from './packed-chromium.js';

const FLAGS = ['--no-sandbox', '--disable-gpu', '--no-zygote'];

/**
 * Opens one browser for all tests of a file, and closes the windows of each test after the test.
 * Call the function once, before the file's own hooks.
 */
export function useBrowser(): (url: string, options?: BrowserContextOptions) => Promise<Window> {
  let browser: Browser | undefined;
  beforeAll(async () => {
    browser = await openBrowser();
  });
  afterEach(async () => {
    for (const context of browser?.contexts() ?? []) await context.close();
  });
  afterAll(() => browser?.close());
  return (url, options) => {
    if (!browser) throw new Error('the browser opens in beforeAll');
    return openWindow(browser, url, options);
  };
}

async function openBrowser(): Promise<Browser> {
  return await chromium.launch({ ...findChromium(), args: FLAGS });
}

export interface Window {
  page: Page;
  context: BrowserContext;
  /** Script errors, and violations of the content security policy. */
  faults: string[];
  /** Hosts to which the page has sent requests. */
  hosts: Set<string>;
}

/** Opens a page in a new browser context, which shares no cookies and storage with other windows. */
async function openWindow(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<Window> {
  const context = await browser.newContext({ locale: 'en-GB', timezoneId: 'Europe/London', ...options });
  const page = await context.newPage();
  const faults: string[] = [];
  const hosts = new Set<string>();
  page.on('pageerror', (error) => faults.push(error.message));
  page.on('console', (message) => {
    // skip failed loads: the page itself reports an unavailable gateway and rejected requests
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      faults.push(message.text());
  });
  page.on('request', (request) => hosts.add(new URL(request.url()).host));
  await page.goto(url);
  return { page, context, faults, hosts };
}

export async function signIn({ page }: Window, token: string): Promise<void> {
  await page.getByLabel('Token').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('button', { name: 'Sign out' }).waitFor();
}

/** Fails with all violations of WCAG 2.2 AA and of good practice that axe finds on the page. */
export async function expectAccessible({ page }: Window): Promise<void> {
  if (await page.evaluate("typeof axe === 'undefined'")) await page.evaluate(axe.source);
  const found = await page.evaluate(`axe.run().then(({ violations }) =>
    violations.map(({ id, help, nodes }) => [id, help, nodes.map(({ html }) => html)].flat().join(' ')))`);
  expect({ url: page.url(), found }).toEqual({ url: page.url(), found: [] });
}

/** Fails if the page is wider than its window. */
export async function expectToFit({ page }: Window): Promise<void> {
  const [content, window] = await page.evaluate<number[]>('[document.documentElement.scrollWidth, innerWidth]');
  expect({ url: page.url(), overflow: Math.max(0, Number(content) - Number(window)) }).toEqual({
    url: page.url(),
    overflow: 0,
  });
}

/** Checks the page in a narrow and in a wide window, in both colour schemes. */
export async function expectEachLook(window: Window): Promise<void> {
  const { page, faults } = window;
  for (const [width, colorScheme] of [[360, 'light'] as const, [1280, 'dark'] as const]) {
    await page.setViewportSize({ width, height: 740 });
    await page.emulateMedia({ colorScheme });
    await expectAccessible(window);
    await expectToFit(window);
  }
  await page.setViewportSize({ width: 2560, height: 1440 });
  await expectToFit(window);
  expect(faults).toEqual([]);
}
