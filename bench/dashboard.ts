/**
 * How soon the page at `/` is there: its first paint, and its list of files, as a browser shows them that has nothing of it yet, from a gateway on this host
 * with FILES (10,000) in its catalogue. ROUNDS (15) new windows, medians. The size is that of its scripts as gzip sends them. CHROMIUM names the browser,
 * Debian's unless told.
 *
 *   npm run compile && node dist/bench/dashboard.js
 */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { chromium } from 'playwright-core';
import { startGateway } from '../src/app.js';
import { importRows } from '../src/operations/catalogue/import.js';
import { packageRoot } from '../src/package-root.js';
import { median, withBench } from './kit.js';

const FILES = Number(process.env.FILES ?? 10_000);
const ROUNDS = Number(process.env.ROUNDS ?? 15);

const assets = path.join(packageRoot, 'dist/web/assets');
for (const name of readdirSync(assets)) {
  console.log(`${name}: ${(gzipSync(readFileSync(path.join(assets, name))).length / 1000).toFixed(1)} kB`);
}

await withBench(
  async (ctx) => {
    await importRows(
      ctx,
      Array.from({ length: FILES }, (_, n) => ({
        line: n + 1,
        path: `/bench/${n}.nc`,
        size: 1000n,
        stage: 'ONTAPE' as const,
        verified: null,
        spotName: null,
        volume: 'BENCH',
        position: BigInt(n + 1),
        checksum: null,
      })),
    );
    const gateway = await startGateway(ctx);
    const browser = await chromium.launch({
      executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
      args: ['--no-sandbox', '--disable-gpu'],
    });
    const [paints, lists]: [number[], number[]] = [[], []];
    for (let round = 0; round <= ROUNDS; round++) {
      const context = await browser.newContext();
      const page = await context.newPage();
      await page.goto(`${gateway.url}/`);
      await page.getByText(`${FILES.toLocaleString('en-US')} files`).waitFor();
      const [paint, list] = (await page.evaluate(
        `[performance.getEntriesByName('first-contentful-paint')[0].startTime, performance.now()]`,
      )) as [number, number];
      // the first one starts what all share
      if (round > 0) paints.push(paint);
      if (round > 0) lists.push(list);
      await context.close();
    }
    await browser.close();
    await gateway.close();
    const tell = (what: string, all: readonly number[]) =>
      console.log(`${what}: ${Math.round(median(all))} ms, at most ${Math.round(Math.max(...all))}`);
    tell('first paint', paints);
    tell('its files', lists);
  },
  { PORT: '0' },
);
