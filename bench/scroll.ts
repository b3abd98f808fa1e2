/**
 * Measures how smoothly the dashboard scrolls through a directory of FILES files (default 200,000) in Chromium. The
 * wheel turns for SECONDS seconds (default 20). Prints the number of rows passed, and the longest and the 99th
 * percentile of the times between two frames. Needs Chromium (CHROMIUM).
 *
 * Usage: npm run compile && node dist/bench/scroll.js
 */
import type { Page } from 'playwright-core';
import type { Context } from '../src/domain/context.js';
import { startGateway } from '../src/main/app.js';
import { withChromium } from './chromium.js';
import { withBench } from './kit.js';

const FILES = Number(process.env.FILES ?? 200_000);
const SECONDS = Number(process.env.SECONDS ?? 20);
const WHEEL_PIXELS = 1200;
const WHEEL_MS = 50;

async function fillDirectory({ db }: Context): Promise<void> {
  await db.pool.query(
    `INSERT INTO tape_file (path, size, stage, mtime)
     SELECT '/archive/many/file-' || lpad(n::text, 7, '0') || '.nc', 1000000 + n, 'ONTAPE', timestamp '2024-01-01' + n * interval '1 min'
     FROM generate_series(1, $1::int) n`,
    [FILES],
  );
  await db.pool.query('ANALYZE tape_file');
}

/** Turns the wheel, and records the time of each frame in the page. @returns milliseconds between frames */
async function scroll(page: Page): Promise<number[]> {
  await page.evaluate(`(() => {
    window.frames_ = [];
    const onFrame = (at) => { window.frames_.push(at); requestAnimationFrame(onFrame); };
    requestAnimationFrame(onFrame);
  })()`);
  await page.mouse.move(600, 500);
  const end = performance.now() + SECONDS * 1000;
  while (performance.now() < end) {
    await page.mouse.wheel(0, WHEEL_PIXELS);
    await page.waitForTimeout(WHEEL_MS);
  }
  const times = await page.evaluate<number[]>('window.frames_');
  return times.slice(1).map((at, n) => at - (times[n] ?? at));
}

await withBench(async (ctx) => {
  await fillDirectory(ctx);
  const gateway = await startGateway(ctx);
  await withChromium(async (browser) => {
    const page = await browser.newPage({ viewport: { width: 1400, height: 850 } });
    await page.goto(`${gateway.url}/#/files/archive/many`);
    await page.locator('tbody tr:not(.space)').first().waitFor();
    const gaps = (await scroll(page)).sort((a, b) => a - b);
    const passed = await page.evaluate<number>(
      "Math.round(scrollY / document.querySelector('tbody tr:not(.space)').getBoundingClientRect().height)",
    );
    const rounded = (ms: number | undefined) => Math.round(ms ?? 0);
    const percentile = gaps[Math.floor(gaps.length * 0.99)];
    console.log(
      `${passed} rows of ${FILES} in ${SECONDS} s, ${gaps.length} frames: longest ${rounded(gaps.at(-1))} ms, 99th percentile ${rounded(percentile)} ms`,
    );
  });
  await gateway.close();
});
