/**
 * Measures how soon a new visitor sees files in the dashboard: the time from opening the address to the first row of
 * files, with an empty browser cache and a processor that Chromium slows down SLOWDOWN times (default 4). Runs ROUNDS
 * times (default 9) and prints the median. The catalogue has FILES files (default 10,000). Needs Chromium (CHROMIUM).
 *
 * Usage: npm run compile && node dist/bench/first-view.js
 */
import type { Browser } from 'playwright-core';
import { startGateway } from '../src/main/app.js';
import { fillCatalogue } from './catalogue.js';
import { withChromium } from './chromium.js';
import { median, withBench } from './kit.js';

const SLOWDOWN = Number(process.env.SLOWDOWN ?? 4);
const ROUNDS = Number(process.env.ROUNDS ?? 9);
const FILES = Number(process.env.FILES ?? 10_000);

/** Opens the dashboard in a new browser context. @returns milliseconds until the table has its first row */
async function openOnce(browser: Browser, url: string): Promise<number> {
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    const devtools = await context.newCDPSession(page);
    await devtools.send('Emulation.setCPUThrottlingRate', { rate: SLOWDOWN });
    await page.goto(url, { waitUntil: 'commit' });
    await page.locator('tbody tr:not(.space)').first().waitFor();
    return await page.evaluate<number>('performance.now()');
  } finally {
    await context.close();
  }
}

await withBench(async (ctx) => {
  await fillCatalogue(ctx, FILES);
  const gateway = await startGateway(ctx);
  await withChromium(async (browser) => {
    const times: number[] = [];
    for (let round = 0; round < ROUNDS; round++) times.push(await openOnce(browser, gateway.url));
    const shown = times.map((ms) => Math.round(ms)).join(', ');
    console.log(`first row of ${FILES} files after ${Math.round(median(times))} ms (median; each: ${shown})`);
  });
  await gateway.close();
});
