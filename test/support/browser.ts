/** Runs pages of the documents in a real browser. */
import { mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { type Example, isAnswered } from './examples.js';
import { startProcess } from './process.js';
import type { Relay } from './relay.js';
import { LIMIT_MS } from './run-example.js';
import { waitFor } from './wait.js';

/** Opens a page, presses its button, and waits for the output in the document. @returns what the page shows and logs */
export async function runInBrowser(browser: string, example: Example, relay: Relay, dir: string): Promise<string> {
  const { answer, language, text } = example;
  if (!answer) throw new Error('a page needs an output in the document');
  relay.page = `${language === 'html' ? text : `<script type="module">${text}</script>`}${REPORTER}`;
  let output = '';
  relay.onReport = (line) => {
    output += `${line}\n`;
  };
  const profile = path.join(dir, 'profile');
  mkdirSync(profile);
  const flags = ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'];
  const running = startProcess(browser, [...flags, `--user-data-dir=${profile}`, `${relay.url}/page`], {
    env: { HOME: profile },
    detached: true,
  });
  try {
    await waitFor('the page', async () => isAnswered(answer, output), LIMIT_MS).catch(() => {}); // the caller compares
    return output;
  } finally {
    process.kill(-running.pid, 'SIGKILL');
    await running.ended;
    rmSync(profile, { recursive: true, force: true, maxRetries: 10 });
  }
}

/** Reports to the test what the page logs or shows. */
const REPORTER = `
<script>
  let reported = Promise.resolve();
  console.log = (line) => {
    reported = reported.then(() => fetch('/report', { method: 'POST', body: line }));
  };
  const output = document.querySelector('output');
  if (output) new MutationObserver(() => console.log(output.textContent)).observe(output, { childList: true });
</script>
<script type="module">
  document.querySelector('form')?.requestSubmit();
</script>
`;
