/** What settings of a library name by the variable that has it is found by each process of an engine. */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { cleanUp, makeDataDir, runCli, startServer, stop } from '../support/process.js';
import { WlcgServer } from '../support/wlcg-server.js';

afterAll(cleanUp);

test('a token that is in a variable lets the engine ask for files, and read them', async () => {
  const element = new WlcgServer({ dialect: 'eos', token: 'a-token-of-tests' });
  await element.listen();
  const bytes = randomBytes(1000);
  element.storage.put('/exp/a.nc', bytes);
  element.onCall = (kind, paths) => {
    if (kind === 'stage') setImmediate(() => element.storage.arrive(paths));
    return undefined;
  };
  const env = { DATA_DIR: makeDataDir(), DEMO: 'off', DRIVES: '1', SITE_TOKEN: 'a-token-of-tests' };
  const server = await startServer('start', { env });
  const set = [`url=${element.origin}`, 'tokenEnv=SITE_TOKEN', 'pollLeastSeconds=1'];
  const options = { env: { ...env, TAPEGATE_URL: server.url } };
  const given = ['library', 'add', 'element', '--kind', 'wlcg', ...set.flatMap((each) => ['--set', each])];
  const row = { path: '/exp/a.nc', size: bytes.length, stage: 'T', volume: 'E1', library: 'element' };
  const steps: [string[], string?][] = [
    [given],
    [['import', '-'], JSON.stringify(row)],
    [['quota', 'set', 'ada', '--size', '1T']],
    [['request', '--file', row.path, '--quota', 'ada', '--watch']],
  ];
  for (const [typed, stdin] of steps)
    expect([typed, await runCli(typed, stdin ? { ...options, stdin } : options)]).toMatchObject([typed, { code: 0 }]);
  expect(readFileSync(path.join(env.DATA_DIR, 'restore', row.path)).equals(bytes)).toBe(true);
  await stop(server);
  await element.close();
});
