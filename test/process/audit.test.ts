/** What the check of known faults makes of what a registry says. */
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/package-root.js';
import { cleanUp, startProcess } from '../support/process.js';
import { makeTempDir } from '../support/temp-dir.js';

afterAll(cleanUp);

/** A registry that knows of this fault of express. */
function tellFault(severity: string): RequestListener {
  return (req, res) => {
    const fault = {
      id: 1,
      url: 'https://example.org/1',
      title: 'a fault',
      severity,
      vulnerable_versions: '<99',
      cwe: [],
    };
    if (req.method !== 'POST') return void res.writeHead(404).end('{}');
    res.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify({ express: [fault] }));
  };
}

async function audit(listener: RequestListener) {
  const registry = createServer(listener);
  registry.listen(0, '127.0.0.1');
  await once(registry, 'listening');
  const url = `http://127.0.0.1:${(registry.address() as AddressInfo).port}`;
  const home = makeTempDir();
  const env = { npm_config_registry: url, npm_config_cache: home, npm_config_fetch_retries: '0', HOME: home };
  const { ended } = startProcess(process.execPath, [path.join(packageRoot, '.ci/audit.mjs')], {
    cwd: packageRoot,
    env,
  });
  const { code, stdout } = await ended;
  registry.closeAllConnections();
  registry.close();
  return { code, stdout };
}

test.each([
  ['high', 1],
  ['critical', 1],
  ['moderate', 0],
])('a fault of level %s in the production tree ends the check with %i, and is told', async (severity, code) => {
  const told = await audit(tellFault(severity));
  expect(told).toEqual({ code, stdout: expect.stringContaining(`${severity}: express`) });
});

test('a registry that knows of no fault, or cannot be asked, passes, and that is told', async () => {
  expect(await audit((_req, res) => void res.end('{}'))).toEqual({ code: 0, stdout: 'npm audit: 0 findings\n' });
  const refused = await audit((_req, res) => void res.writeHead(405).end());
  expect(refused).toEqual({ code: 0, stdout: 'npm audit: the registry cannot be asked (405)\n' });
});
