/** The shell examples of src/access/README.md, each run as it stands there, from top to bottom, at one gateway. */
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readConfig } from '../../src/config.js';
import { packageRoot } from '../../src/package-root.js';
import { backendNames } from '../../src/tape/index.js';
import { startApp, type TestApp } from '../support/app.js';
import { makeCertificate } from '../support/certificate.js';
import { readFences } from '../support/examples.js';
import { addQuota } from '../support/factories.js';
import { DEVICE_CLIENT, type IdentityProvider, logInAt, startIdentityProvider } from '../support/identity-provider.js';
import { cleanUp, cliFile, makeDataDir, READY, type Running, startProcess, stop } from '../support/process.js';
import { findProgram } from '../support/run-example.js';
import { waitFor } from '../support/wait.js';

const document = readFileSync(path.join(packageRoot, 'src/access/README.md'), 'utf8');
const examples = [...readFences(document)].filter(({ language }) => language === 'sh');

let app: TestApp;
let provider: IdentityProvider;
let dir: string;

beforeAll(async () => {
  provider = await startIdentityProvider();
  const env = { AUTH: 'token,oidc', OIDC_ISSUER: provider.url, OIDC_CLIENT_ID: DEVICE_CLIENT };
  const { access } = readConfig({ ...env, OIDC_AUDIENCE: 'https://tapes.example.org' }, backendNames);
  app = await startApp({ config: { access } });
  for (const user of ['ann', 'bob', 'ocean-lab']) await addQuota(app.ctx, user, 1000n);
  dir = makeDataDir();
  mkdirSync(path.join(dir, 'bin'));
  const npx = path.join(dir, 'bin/npx');
  writeFileSync(npx, `#!/bin/sh\n[ "$1" = tapegate ] && shift && exec '${process.execPath}' '${cliFile}' "$@"\n`);
  chmodSync(npx, 0o755);
  const { cert, key } = makeCertificate();
  writeFileSync(path.join(dir, 'cert.pem'), cert);
  writeFileSync(path.join(dir, 'key.pem'), key);
});
afterAll(async () => {
  await cleanUp();
  await app.close();
  await provider.close();
});

/** With the gateway, the files and the addresses of this test in the place of those that are shown. */
const here = (text: string) =>
  text
    .replace(/https:\/\/tapes\.example\.org(:\d+)?/g, app.url)
    .replaceAll('tapes.example.org', '127.0.0.1')
    .replaceAll('/etc/tapegate/', `${dir}/`)
    .replace(/\bPORT=\d+/g, 'PORT=0');

function start(text: string): Running {
  const PATH = `${path.join(dir, 'bin')}:${process.env.PATH}`;
  const gateway = { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token };
  const server = { DATABASE_URL: app.databaseUrl, DATA_DIR: path.join(dir, 'data'), PORT: '0', LOG_LEVEL: 'warn' };
  const env = { PATH, HOME: dir, ...(/tapegate serve\s*$/.test(text) ? server : gateway) };
  return startProcess('bash', ['--norc', '-euo', 'pipefail', '-c', here(text)], { cwd: dir, env });
}

const isAnyRun = findProgram('bash') !== undefined && findProgram('curl') !== undefined;

test.runIf(isAnyRun).each(examples.map(({ line, text }) => [`line ${line}: ${text.split('\n')[0]}`, text]))(
  '%s',
  async (_name, text) => {
    const running = start(text);
    if (/tapegate serve\s*$/.test(text)) {
      await running.waitForOutput(READY);
      expect(await stop(running)).toMatchObject({ code: 0, stderr: '' });
      return;
    }
    if (text.includes('--device')) {
      const isTold = async () => /^or at (\S+), which has the code$/m.exec(running.stderr())?.[1];
      await logInAt(await waitFor('where to log in', isTold), { user: 'ann' });
    }
    const { code, stdout, stderr } = await running.ended;
    expect({ code, said: stdout + stderr }).toEqual({ code: 0, said: expect.any(String) });
  },
);

test('each way that AUTH may have is in an example', () => {
  const text = examples.map((example) => example.text).join('');
  for (const way of ['token', 'oidc', 'proxy', 'certificate', 'legacy']) {
    expect(text).toMatch(new RegExp(`AUTH=(\\w+,)*${way}\\b`));
  }
});
