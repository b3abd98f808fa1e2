/** What the torture leaves when it is killed is taken away by a process that survives it. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { isRunning } from '../../src/database/postmaster.js';
import { packageRoot } from '../../src/package-root.js';
import { cleanUp, kill, makeDataDir, startCli, startProcess } from '../support/process.js';
import { makeTempDir } from '../support/temp-dir.js';
import { waitFor } from '../support/wait.js';
import { smallDisk, startSweeper } from './sweeping.js';

afterAll(cleanUp);

/** Is it there, and more than a number that its parent has not asked for? */
const lives = (pid: number) => isRunning(pid) && spawnSync('ps', ['-o', 'stat=', '-p', `${pid}`]).stdout[0] !== 90; // Z

test('processes, standing still or not, mounts and the folder are gone when who started them dies', async () => {
  const dir = makeTempDir();
  const mountpoint = smallDisk(dir);
  mkdirSync(mountpoint);
  spawnSync('mount', ['-t', 'tmpfs', 'tapegate-test', mountpoint]); // fails for who is not root
  // who holds the sweeper's standard input, and is killed
  const sweeping = path.join(packageRoot, 'dist/test/torture/sweeping.js');
  const script = `import { startSweeper } from ${JSON.stringify(sweeping)}; startSweeper(${JSON.stringify(dir)}); setInterval(() => {}, 1000); console.log('up')`;
  const owner = startProcess(process.execPath, ['--input-type=module', '-e', script]);
  await owner.waitForOutput(/up/);
  const gateway = startCli(['start'], {
    env: { DATA_DIR: path.join(dir, 'data'), PORT: '0', DEMO: 'off', ENGINE: 'off' },
  });
  await gateway.waitForOutput(/ready at/);
  const idle = startProcess('sleep', ['600'], { env: { DATA_DIR: path.join(dir, 'data') } });
  idle.child.kill('SIGSTOP');
  writeFileSync(path.join(mountpoint, 'file'), 'bytes');
  await kill(owner);
  await waitFor('the folder to be gone', async () => !existsSync(dir));
  await gateway.ended;
  await waitFor('the process that stood still to end', async () => !lives(idle.pid));
});

test('the folder stays when it is to be kept, and other processes of the same program live on', async () => {
  const dir = makeDataDir();
  const other = startProcess('sleep', ['600'], { env: { DATA_DIR: `${dir}-other/data` } });
  const sweeper = startSweeper(dir);
  await sweeper.sweep(true);
  expect([existsSync(dir), lives(other.pid)]).toEqual([true, true]);
  await kill(other);
});
