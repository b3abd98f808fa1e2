/** The check for known vulnerabilities, against a test registry. */
import { createServer, type RequestListener } from 'node:http';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { closeServer, listen } from '../support/ports.js';
import { cleanUp, startProcess } from '../support/process.js';
import { makeTempDir } from '../support/temp-dir.js';

afterAll(cleanUp);

/** Returns a registry that reports a vulnerability of express. */
function reportFault(severity: string): RequestListener {
  return (req, res) => {
    const about = { id: 1, url: 'https://example.org/1', title: 'a fault', cwe: [] };
    const fault = { ...about, severity, vulnerable_versions: '<99' };
    if (req.method !== 'POST') return void res.writeHead(404).end('{}');
    res.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify({ express: [fault] }));
  };
}

async function audit(listener: RequestListener) {
  const registry = createServer(listener);
  const url = `http://127.0.0.1:${await listen(registry)}`;
  const home = makeTempDir();
  const env = { npm_config_registry: url, npm_config_cache: home, npm_config_fetch_retries: '0', HOME: home };
  const { ended } = startProcess(process.execPath, [path.join(packageRoot, '.ci/audit.mjs')], {
    cwd: packageRoot,
    env,
  });
  const { code, stdout } = await ended;
  await closeServer(registry);
  return { code, stdout };
}

test.each([
  ['high', 1],
  ['critical', 1],
  ['moderate', 0],
])('a %s vulnerability of a production package exits with %i, and is printed', async (severity, code) => {
  const result = await audit(reportFault(severity));
  expect(result).toEqual({ code, stdout: expect.stringContaining(`${severity}: express`) });
});

test('a registry without vulnerabilities, or one that refuses, passes', async () => {
  expect(await audit((_req, res) => void res.end('{}'))).toEqual({ code: 0, stdout: 'npm audit: 0 findings\n' });
  const refused = await audit((_req, res) => void res.writeHead(405).end());
  expect(refused).toEqual({ code: 0, stdout: 'npm audit: the registry is unreachable (405)\n' });
});
