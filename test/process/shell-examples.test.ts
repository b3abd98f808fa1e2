/** The shell examples of the operators' pages on access and monitoring. Each example runs as printed. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readConfig } from '../../src/config/config.js';
import { packageRoot } from '../../src/core/package-root.js';
import { startApp, type TestApp } from '../support/app.js';
import { makeCertificate } from '../support/certificate.js';
import { readFences } from '../support/examples.js';
import { addQuota } from '../support/factories.js';
import { DEVICE_CLIENT, type IdentityProvider, logInAt, startIdentityProvider } from '../support/identity-provider.js';
import { cleanUp, cliFile, makeDataDir, READY, startProcess, stop } from '../support/process.js';
import { findProgram, SHOWN_URL } from '../support/run-example.js';
import { waitFor } from '../support/wait.js';

const read = (file: string) => readFileSync(path.join(packageRoot, file), 'utf8');

/** Returns the shell examples of a document as rows: a name and the example. */
const examplesIn = (text: string): [name: string, example: string][] =>
  [...readFences(text)]
    .filter(({ language }) => language === 'sh')
    .map((fence) => [`line ${fence.line}: ${fence.text.split('\n')[0]}`, fence.text]);

let app: TestApp;
let provider: IdentityProvider;
let dir: string;

beforeAll(async () => {
  provider = await startIdentityProvider();
  const env = {
    TAPEGATE_AUTH: 'token,oidc',
    TAPEGATE_OIDC_ISSUER: provider.url,
    TAPEGATE_OIDC_CLIENT_ID: DEVICE_CLIENT,
  };
  const { access } = readConfig({ ...env, TAPEGATE_OIDC_AUDIENCE: 'https://tapes.example.org' });
  app = await startApp({ config: { access } });
  for (const user of ['ann', 'bob', 'ocean-lab']) await addQuota(app.ctx, user, 1000n);
  dir = makeDataDir();
  mkdirSync(path.join(dir, 'bin'));
  const addProgram = (name: string, text: string) => {
    writeFileSync(path.join(dir, 'bin', name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  };
  addProgram('tapegate', `exec '${process.execPath}' '${cliFile}' "$@"`);
  addProgram('npx', 'shift; exec tapegate "$@"');
  addProgram('journalctl', `cat '${path.join(dir, 'journal')}'`);
  const { cert, key } = makeCertificate();
  writeFileSync(path.join(dir, 'cert.pem'), cert);
  writeFileSync(path.join(dir, 'key.pem'), key);
  const lines = [
    { request: 7, files: 1, msg: 'request made' },
    { xRequestId: 'job-7', msg: 'HTTP request completed' },
  ];
  const log = lines.map((line) => `${JSON.stringify({ level: 30, ...line, n: 1 })}\n`).join('');
  writeFileSync(path.join(dir, 'journal'), log);
});
afterAll(async () => {
  await cleanUp();
  await app.close();
  await provider.close();
});

/** Runs an example with the test's gateway, files and addresses instead of the printed ones. @returns the output */
async function run(example: string): Promise<string> {
  const isServer = /tapegate (serve|start)\s*$/.test(example);
  const text = example
    .replace(/https:\/\/tapes\.example\.org(:\d+)?/g, app.url)
    .replaceAll(SHOWN_URL, app.url)
    .replaceAll('tapes.example.org', '127.0.0.1')
    .replaceAll('/etc/tapegate/', `${dir}/`)
    .replaceAll('/run/tapegate/proxy.sock:www-data', `${dir}/proxy.sock`)
    .replace(/\bPORT=\d+/g, 'PORT=0');
  const database = { DATABASE_URL: app.databaseUrl, DATA_DIR: path.join(dir, 'data') };
  const server = { ...database, ENGINE: 'off', PORT: '0', LOG_LEVEL: text.includes('OTEL_') ? 'error' : 'warn' };
  const client = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
  const env = { PATH: `${path.join(dir, 'bin')}:${process.env.PATH}`, HOME: dir, ...(isServer ? server : client) };
  const running = startProcess('bash', ['--norc', '-euo', 'pipefail', '-c', text], { cwd: dir, env });
  if (isServer) {
    await running.waitForOutput(READY);
    expect(await stop(running)).toMatchObject({ code: 0, stderr: '' });
    return running.stdout();
  }
  if (text.includes('--device')) {
    const readAddress = async () => /^or at (\S+), which contains the code$/m.exec(running.stderr())?.[1];
    await logInAt(await waitFor('the address to log in at', readAddress), { user: 'ann' });
  }
  const { code, stdout, stderr } = await running.ended;
  expect({ code, stderr }).toEqual({ code: 0, stderr: expect.not.stringContaining('other users can read') });
  return stdout;
}

const isAnyRun = findProgram('bash') !== undefined && findProgram('curl') !== undefined;

describe('docs/operators/access.md', () => {
  const examples = examplesIn(read('docs/operators/access.md'));

  test.runIf(isAnyRun).each(examples)('%s', async (_name, example) => {
    await run(example);
  });

  test('has an example of each way of TAPEGATE_AUTH', () => {
    const text = examples.map(([, example]) => example).join('');
    for (const way of ['token', 'oidc', 'proxy', 'certificate', 'legacy']) {
      expect(text).toMatch(new RegExp(`TAPEGATE_AUTH=(\\w+,)*${way}\\b`));
    }
  });
});

describe('metrics, logs and traces', () => {
  const examples = ['docs/operators/monitoring.md', 'docs/reference/metrics.md'].map(read).flatMap(examplesIn);

  test('the pages have examples', () => {
    expect(examples).toHaveLength(4);
  });

  test.runIf(isAnyRun).each(examples)('%s', async (_name, example) => {
    const output = await run(example);
    if (example.includes('/metrics')) expect(output).toContain('tapegate_site_queue_files');
    if (example.includes('grep')) expect(output.trim().split('\n')).toHaveLength(2);
  });
});
