/** The examples of the users' pages on scripting and quotas. Each example runs as printed, on the demo archive. */
import { chmodSync, copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { type Engine, startEngine } from '../../src/engine/runner.js';
import { archiveDemo, makeDemo } from '../../src/main/demo.js';
import { createDirectoryLibrary } from '../../src/tape/directory/index.js';
import { startApp, type TestApp } from '../support/app.js';
import { readFences } from '../support/examples.js';
import { cleanUp, cliFile, makeDataDir, type Result, startProcess } from '../support/process.js';
import { findProgram } from '../support/run-example.js';

const missing = ['bash', 'jq', 'md5sum', 'python3', 'xargs'].filter((name) => !findProgram(name));
if (missing.length > 0) console.warn(`${missing.join(', ')} missing: the examples of the users' pages are skipped`);

let app: TestApp;
let engine: Engine;
let dir: string;

beforeAll(async () => {
  app = await startApp();
  const library = createDirectoryLibrary(path.join(app.dataDir, 'library'));
  await makeDemo(app.ctx, () => archiveDemo(app.ctx, library));
  engine = await startEngine(app.ctx, library, { drainMs: 200 });
  dir = makeDataDir();
  mkdirSync(path.join(dir, 'bin'));
  const command = path.join(dir, 'bin/tapegate');
  writeFileSync(command, `#!/bin/sh\nexec '${process.execPath}' '${cliFile}' "$@"\n`);
  chmodSync(command, 0o755);
  copyFileSync(path.join(packageRoot, 'clients/python/tapegate.py'), path.join(dir, 'tapegate.py'));
});
afterAll(async () => {
  await cleanUp();
  await engine.stop();
  await app.close();
});

/** Returns the only example that contains a text. */
function findExample(page: string, language: string, text: string): string {
  const fences = [...readFences(readFileSync(path.join(packageRoot, 'docs/users', page), 'utf8'))];
  const found = fences.filter((fence) => fence.language === language && fence.text.includes(text));
  expect(found).toHaveLength(1);
  return found[0]?.text ?? '';
}

async function run(program: string, ...args: string[]): Promise<Result> {
  const PATH = `${path.join(dir, 'bin')}:${process.env.PATH}`;
  const env = { PATH, HOME: dir, TAPEGATE_URL: app.url, PYTHONDONTWRITEBYTECODE: '1' };
  return await startProcess(program, args, { cwd: dir, env }).ended;
}
const runShell = (example: string) => run('bash', '--norc', '-euo', 'pipefail', '-c', example);

test.skipIf(missing.length > 0)('the shell examples on scripting process all files of a request', async () => {
  const all = await runShell(findExample('scripting.md', 'sh', 'xargs -0 md5sum'));
  expect(all.code).toBe(0);
  expect(all.stdout.match(/^\w{32} {2}\S+\/sst_2024\d\d\.nc$/gm)).toHaveLength(8);
  const each = await runShell(findExample('scripting.md', 'sh', 'tapegate release'));
  expect([each.code, each.stdout]).toEqual([
    0,
    expect.stringMatching(/^1500000 \S+\/sst_202404\.nc\nrequest \d+ is completed: 1 file released, 0 files left/),
  ]);
  const [command = '', ...answer] = findExample('scripting.md', 'console', 'jq').trim().split('\n');
  const listed = await runShell(command.replace(/^\$ /, ''));
  expect(listed).toEqual({ code: 0, stdout: `${answer.join('\n')}\n`, stderr: '' });
});

test.skipIf(missing.length > 0)('the Python examples restore files, and handle a full quota', async () => {
  const example = findExample('scripting.md', 'python', 'tapes.restore');
  const restored = await run('python3', '-c', example);
  expect([restored.code, restored.stderr]).toEqual([0, '']);
  expect(restored.stdout).toMatch(/^(\/\S+\/demo\/ocean\/2025\/sst_2025\d\d\.nc\n){8}$/);
  const none = await run('python3', '-c', example.replace('/demo/ocean/2025/', '/nothing/'));
  expect(none).toMatchObject({ code: 1, stderr: expect.stringMatching(/^request \d+ matches no file yet: /) });
  const followed = await run('python3', '-c', findExample('scripting.md', 'python', 'tapes.follow'));
  expect([followed.code, followed.stdout]).toEqual([0, expect.stringMatching(/^COMPLETED 1 of 1\n$/m)]);
  const full = await run('python3', '-c', example.replace('"alice"', '"bob"'));
  expect(full).toMatchObject({ code: 1, stderr: 'the quota has only 10000000 bytes free\n' });
});

test.skipIf(missing.length > 0)('the example on quotas requests as many files as fit', async () => {
  const { code, stdout } = await runShell(findExample('quotas.md', 'sh', 'jq'));
  expect([code, stdout]).toEqual([0, expect.stringMatching(/^request \d+: 6 files, 9\.00 MB, /)]);
});
