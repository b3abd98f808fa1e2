/** The sweeper removes what a killed test run leaves. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { isRunning } from '../../src/db/embedded/embedded.js';
import { cleanUp, kill, startProcess } from '../support/process.js';
import { startSweeper } from '../support/sweeping.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';

afterAll(cleanUp);

/** Returns whether a process is running and not a zombie. */
const lives = (pid: number): boolean => isRunning(pid) && !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));

test('a killed run leaves no process, stopped or not, no mount and no directory', async () => {
  const parent = makeTempDir();
  const vitest = path.join(packageRoot, 'node_modules/vitest/vitest.mjs');
  const args = [vitest, 'run', '--config', 'test/support/killed-run/vitest.config.ts', '--root', '.'];
  const run = startProcess(process.execPath, args, { cwd: packageRoot, env: { TMPDIR: parent } });
  const [, text = ''] = await run.waitForOutput(/left: (.*)/);
  const left: { dir: string; stopped: number; worker: number } = JSON.parse(text);
  const postmaster = Number(readFileSync(path.join(left.dir, 'postgres/postmaster.pid'), 'utf8').split('\n')[0]);
  const pids = [left.stopped, left.worker, postmaster];
  expect([path.dirname(left.dir), ...pids.map(lives)]).toEqual([parent, true, true, true]);
  await kill(run);
  await waitFor('the directory to be gone', async () => !existsSync(left.dir));
  await waitFor('the processes to end', async () => !pids.some(lives));
  expect(readdirSync(parent)).toEqual([]);
});

test('the sweeper keeps the directory if asked to, and spares other processes and children of the given one', async () => {
  const dir = makeTempDir();
  const other = startProcess('sleep', ['600'], { env: { DATA_DIR: `${dir}-other/data` } });
  const spared = startProcess('sleep', ['600'], { env: { DATA_DIR: `${dir}/data` } });
  await startSweeper(dir).sweep({ keepDirectory: true, spare: process.pid });
  expect([existsSync(dir), lives(other.pid), lives(spared.pid)]).toEqual([true, true, true]);
  await startSweeper(dir).sweep();
  await waitFor('the process to end', async () => !lives(spared.pid));
  expect([existsSync(dir), lives(other.pid)]).toEqual([false, true]);
});
