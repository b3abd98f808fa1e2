/** The shell examples of what is told of metrics, logs and traces, each run as it stands there, at one gateway. */
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/package-root.js';
import { startApp, type TestApp } from '../support/app.js';
import { readFences } from '../support/examples.js';
import { cleanUp, cliFile, makeDataDir, READY, startProcess, stop } from '../support/process.js';
import { findProgram, SHOWN_URL } from '../support/run-example.js';

const read = (file: string) => readFileSync(path.join(packageRoot, file), 'utf8');

/** From its heading to the next one of its level. */
function sectionOf(text: string, heading: string): string {
  const found = text.split(/^(?=## )/m).find((section) => section.startsWith(`## ${heading}\n`));
  if (found === undefined) throw new Error(`there is no section ${heading}`);
  return found;
}

const commands = read('src/commands/README.md');
const sections = ['Metrics', 'Logs', 'Traces'].map((heading) => sectionOf(commands, heading));
const examples = [...sections, read('deploy/prometheus/README.md')].flatMap((text) =>
  [...readFences(text)].filter(({ language }) => language === 'sh').map((fence) => fence.text),
);

let app: TestApp;
let dir: string;

beforeAll(async () => {
  app = await startApp({ config: { access: { auth: new Set(['token']) } } });
  dir = makeDataDir();
  mkdirSync(path.join(dir, 'bin'));
  const npx = path.join(dir, 'bin/npx');
  writeFileSync(npx, `#!/bin/sh\n[ "$1" = tapegate ] && shift && exec '${process.execPath}' '${cliFile}' "$@"\n`);
  chmodSync(npx, 0o755);
  const lines = [
    { request: 7, files: 1, msg: 'request made' },
    { xRequestId: 'job-7', msg: 'answered' },
  ];
  writeFileSync(
    path.join(dir, 'tapegate.log'),
    lines.map((line) => `${JSON.stringify({ level: 30, ...line, n: 1 })}\n`).join(''),
  );
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

test('each section has an example', () => {
  expect(examples).toHaveLength(4);
});

test.runIf(findProgram('bash') && findProgram('curl')).each(examples.map((text) => [text.split('\n')[0], text]))(
  '%s',
  async (_name, text) => {
    const PATH = `${path.join(dir, 'bin')}:${process.env.PATH}`;
    const isServer = /tapegate start\s*$/.test(text);
    const place = { DATABASE_URL: app.databaseUrl, DATA_DIR: path.join(dir, 'data'), ENGINE: 'off' };
    const server = { ...place, PORT: '0', LOG_LEVEL: 'error' };
    const env = { PATH, HOME: dir, ...(isServer ? server : { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token }) };
    const here = text.replaceAll(SHOWN_URL, app.url);
    const running = startProcess('bash', ['--norc', '-euo', 'pipefail', '-c', here], { cwd: dir, env });
    if (isServer) {
      await running.waitForOutput(READY);
      expect(await stop(running)).toMatchObject({ code: 0, stderr: '' });
      return;
    }
    const { code, stdout, stderr } = await running.ended;
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.not.stringContaining('others may read') });
    if (text.includes('/metrics')) expect(stdout).toContain('tapegate_site_queue_files');
    if (text.includes('grep')) expect(stdout.trim().split('\n')).toHaveLength(2);
  },
);
