/** A real Chromium for tests: the machine's own, or the one of a package, which needs nothing of the machine. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { brotliDecompressSync } from 'node:zlib';
import axe from 'axe-core';
import { type Browser, type BrowserContext, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { expect } from 'vitest';
import { packageRoot } from '../../src/package-root.js';

const PACKED = path.join(packageRoot, 'node_modules/@sparticuz/chromium/bin');
/** Made once for all runs of this checkout. */
const UNPACKED = path.join(packageRoot, 'node_modules/.cache/tapegate-chromium');

const FLAGS = ['--no-sandbox', '--disable-gpu', '--no-zygote'];

/** CHROMIUM names another one than Debian's; empty, it is that of the package. */
export async function openBrowser(): Promise<Browser> {
  const installed = [process.env.CHROMIUM ?? '/usr/bin/chromium'].find(existsSync);
  if (installed) return await chromium.launch({ executablePath: installed, args: FLAGS });
  if (!existsSync(UNPACKED)) unpack();
  const env = { ...process.env, LD_LIBRARY_PATH: path.join(UNPACKED, 'lib'), FONTCONFIG_PATH: UNPACKED };
  return await chromium.launch({ executablePath: path.join(UNPACKED, 'chromium'), args: FLAGS, env });
}

function unpack(): void {
  const folder = `${UNPACKED}.${process.pid}`;
  mkdirSync(folder, { recursive: true });
  const read = (name: string) => brotliDecompressSync(readFileSync(path.join(PACKED, name)));
  writeFileSync(path.join(folder, 'chromium'), read('chromium.br'), { mode: 0o755 });
  for (const name of ['al2023.tar.br', 'fonts.tar.br'])
    execFileSync('tar', ['-x', '-C', folder], { input: read(name) });
  // its own looks where its maker's servers have them
  const fonts = `<fontconfig><dir>${UNPACKED}/fonts</dir><cachedir>${UNPACKED}/cache</cachedir></fontconfig>`;
  writeFileSync(path.join(folder, 'fonts.conf'), fonts);
  try {
    renameSync(folder, UNPACKED);
  } catch (error) {
    rmSync(folder, { recursive: true }); // another run was first
    if (!existsSync(UNPACKED)) throw error;
  }
}

export interface Window {
  page: Page;
  context: BrowserContext;
  /** What went wrong in the page that nobody is told of: errors of scripts, and what its policy kept from it. */
  faults: string[];
  /** Hosts that it has asked for anything. */
  hosts: Set<string>;
}

/** A browser of its own, as a user has one: nothing is shared with other windows. */
export async function openWindow(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<Window> {
  const context = await browser.newContext({ locale: 'en-GB', timezoneId: 'Europe/London', ...options });
  const page = await context.newPage();
  const faults: string[] = [];
  const hosts = new Set<string>();
  page.on('pageerror', (error) => faults.push(error.message));
  page.on('console', (message) => {
    // a gateway that is away or refuses is told in the page; browsers write it down as well
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      faults.push(message.text());
  });
  page.on('request', (request) => hosts.add(new URL(request.url()).host));
  await page.goto(url);
  return { page, context, faults, hosts };
}

/** As whoever has the token. */
export async function signIn({ page }: Window, token: string): Promise<void> {
  await page.getByLabel('Token').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('button', { name: 'Sign out' }).waitFor();
}

/** Fails with what axe finds on the page as it is, by WCAG 2.2 AA and good practice. */
export async function expectAccessible({ page }: Window): Promise<void> {
  // what is fetched by a test is no script of the page, which its policy would not run
  const found = await page.evaluate(`${axe.source}; axe.run().then(({ violations }) =>
    violations.map(({ id, help, nodes }) => [id, help, nodes.map(({ html }) => html)].flat().join(' ')))`);
  expect(found).toEqual([]);
}

/** Nothing is wider than the window. */
export async function expectToFit({ page }: Window): Promise<void> {
  const [wanted, given] = (await page.evaluate('[document.documentElement.scrollWidth, innerWidth]')) as [
    number,
    number,
  ];
  expect(wanted).toBeLessThanOrEqual(given);
}
