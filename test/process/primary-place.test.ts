/** Files at U and D that no restore disk has are at their primary place, and are told apart. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { cleanUp, runCli } from '../support/process.js';

let app: TestApp;
const run = async (...args: string[]) => {
  const { code, stdout, stderr } = await runCli(args, { env: { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token } });
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return stdout;
};

beforeAll(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'alice', 10n ** 9n, '');
  await addFiles(app.ctx, [
    { path: '/p/new', size: 1000n, stage: null, verified: null },
    { path: '/p/confirmed', size: 1000n, stage: 'ONDISK' },
    { path: '/p/restored', size: 1000n, stage: 'RESTORED' },
    { path: '/p/taped', size: 1000n, stage: 'ONTAPE' },
  ]);
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

test('an estimate, the answer to a request and show count them apart', async () => {
  const ask = ['request', '--quota', 'alice', '--pattern', '/p/'];
  expect(await run(...ask, '--dry-run')).toContain('\non disk     3, 3.00 kB, 2 of them at their primary place\n');
  expect(await run(...ask)).toMatch(/^request 1: 4 files, 4\.00 kB, 2 of them at their primary place, kept until /);
  expect(await run('show', '1')).toMatch(
    /\nON DISK +3 of 4 files, 3\.00 kB of 4\.00 kB, 2 of them at their primary place\n/,
  );
});

test('where no file is at its primary place, nothing is said of it', async () => {
  expect(await run('request', '--quota', 'alice', '--pattern', '/p/taped', '--dry-run')).not.toContain('primary');
});

test('a file says whether it is at its primary place', async () => {
  const query = '{ tapeFiles(match: "/p/") { edges { node { path isAtPrimaryPlace restoredPath } } } }';
  const { tapeFiles } = await askData<{ tapeFiles: { edges: { node: object }[] } }>(app, query);
  expect(tapeFiles.edges.map(({ node }) => node)).toEqual([
    { path: '/p/confirmed', isAtPrimaryPlace: true, restoredPath: null },
    { path: '/p/new', isAtPrimaryPlace: true, restoredPath: null },
    { path: '/p/restored', isAtPrimaryPlace: false, restoredPath: null },
    { path: '/p/taped', isAtPrimaryPlace: false, restoredPath: null },
  ]);
});
