/** Runs Chromium for benchmarks of the dashboard: the program at the path CHROMIUM, or Debian's Chromium by default. */
import { type Browser, chromium } from 'playwright-core';

export async function withChromium(work: (browser: Browser) => Promise<void>): Promise<void> {
  const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
  try {
    await work(browser);
  } finally {
    await browser.close();
  }
}
