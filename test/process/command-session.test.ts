/** The session "A library in five lines" in docs/operators/libraries/command.md, run as printed. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { expectSession, readSteps } from '../support/console-session.js';
import { readFences } from '../support/examples.js';
import { cleanUp, makeDataDir, serveHere } from '../support/process.js';
import { findProgram } from '../support/run-example.js';
import { workHere } from '../support/work.js';

afterAll(cleanUp);

/** Home directory that the document prints. */
const HOME = '/home/ada';

const document = readFileSync(path.join(packageRoot, 'docs/operators/libraries/command.md'), 'utf8');
const section = document.split('## A library in five lines\n')[1]?.split(/^##/m)[0] ?? '';

test.skipIf(!findProgram('bash'))('the session with a library of five lines goes as it is shown', async () => {
  const home = makeDataDir();
  const script = [...readFences(section)].find(({ language }) => language === 'sh')?.text.replaceAll(HOME, home) ?? '';
  expect(script.trimEnd().split('\n')).toHaveLength(5);
  const libraries = path.join(home, 'libraries');
  mkdirSync(path.join(libraries, 'programs'), { recursive: true });
  writeFileSync(path.join(libraries, 'programs/tape-read'), script, { mode: 0o755 });
  const env = { DATA_DIR: path.join(home, 'tapegate/data'), HOME: home, TAPEGATE_LIBRARY_DIR: libraries };
  mkdirSync(env.DATA_DIR, { recursive: true });
  const server = await serveHere({ ...env, ENGINE: 'off' }, { command: 'start' });
  const engine = await workHere(env);
  const session = [...readFences(section)].find(({ language }) => language === 'console')?.text ?? '';
  const steps = readSteps(session.replaceAll(HOME, home));
  expect(steps.length).toBeGreaterThanOrEqual(4);
  await expectSession(steps, { env: { ...env, TAPEGATE_URL: server.url }, cwd: home });
  for (const name of ['extent_20241.nc', 'extent_20242.nc', 'extent_20243.nc']) {
    const restored = readFileSync(path.join(env.DATA_DIR, 'restore/ice', name));
    expect(restored.equals(readFileSync(path.join(home, 'tapes/A00001/ice', name)))).toBe(true);
  }
  await engine.stop();
  await server.stop();
});
