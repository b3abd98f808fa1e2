/** Takes the screenshots for the documents (`npm run screenshots`) of a new demo archive. Uses the browser in CHROMIUM, or Debian's Chromium. */
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const at = (place) => fileURLToPath(new URL(place, import.meta.url));
const dataDir = mkdtempSync(path.join(os.tmpdir(), 'tapegate-screenshots-'));
const env = { ...process.env, DATA_DIR: dataDir, PORT: '0', LOG_LEVEL: 'warn' };
const program = at('../../dist/program/tapegate.cjs');
const server = spawn(process.execPath, [program, 'start'], { env });
try {
  const url = await new Promise((resolve, reject) => {
    let said = '';
    server.stdout.on('data', (text) => {
      said += text;
      const [, place] = /ready at (\S+)\n/.exec(said) ?? [];
      if (place) resolve(place);
    });
    server.once('exit', (code) => reject(new Error(`the server has ended with ${code}: ${said}`)));
  });
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu'],
  });
  const page = await browser.newPage({ viewport: { width: 1000, height: 620 }, locale: 'en-GB' });
  const keep = (name) => page.screenshot({ path: at(`screenshots/${name}.png`) });
  await page.goto(`${url}/#/files?q=ocean%202024`);
  await page.evaluate("localStorage.setItem('tapegate.tour', 'done')");
  await page.reload();
  await page.getByRole('button', { name: 'Select all 8 matching files' }).click();
  await page.getByRole('region', { name: 'Selected files' }).getByText('8 files').waitFor();
  await keep('files');
  await page.getByRole('button', { name: 'Request', exact: true }).click();
  await page.getByRole('button', { name: 'Request 8 files' }).click();
  await page.getByRole('heading', { name: 'Complete' }).waitFor();
  await page.getByRole('cell', { name: 'Waiting' }).first().waitFor({ state: 'detached' });
  await keep('request');

  // the view of operators: a suspended volume, with files that wait for it
  const made = [program, 'token', 'create', 'operator', '--role', 'operator'];
  const token = execFileSync(process.execPath, made, { env, encoding: 'utf8' }).trim();
  await page.goto(`${url}/#/sign-in`);
  await page.getByLabel('Token').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('button', { name: 'Sign out' }).waitFor();
  await page.goto(`${url}/#/volumes`);
  await page.getByRole('button', { name: 'Actions for TG0003' }).click();
  await page.getByRole('menuitem', { name: /^Suspend/ }).click();
  await page.getByRole('dialog').getByRole('textbox').fill('its label came off');
  await page.getByRole('dialog').getByRole('button', { name: 'Suspend' }).click();
  await page.getByText('its label came off').first().waitFor();
  const query = 'mutation { createRequest(input: { quota: "alice", pattern: "/demo" }) { errors { code } } }';
  const headers = { 'Content-Type': 'application/json', Authorization: `Bearer ${token}` };
  await fetch(`${url}/graphql`, { method: 'POST', headers, body: JSON.stringify({ query }) });
  await page.goto(`${url}/#/plan`);
  await page.getByText(/^8 files waiting/).waitFor();
  await keep('plan');
  await browser.close();
} finally {
  server.kill();
  await new Promise((resolve) => server.once('exit', resolve));
  rmSync(dataDir, { recursive: true, force: true });
}
