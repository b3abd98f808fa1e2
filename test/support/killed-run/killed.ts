/** Test that creates a database, a mount and a stopped process, prints their ids, and waits to be killed. */
import { spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'vitest';
import { createDatabase } from '../database.js';
import { startProcess } from '../process.js';
import { makeTempDir } from '../temp-dir.js';

test('it is killed', async () => {
  await createDatabase();
  const mountpoint = path.join(makeTempDir(), 'mounted');
  mkdirSync(mountpoint);
  spawnSync('mount', ['-t', 'tmpfs', 'tapegate-test', mountpoint]); // mount fails for unprivileged users
  const stopped = startProcess('sleep', ['600'], { cwd: '/' });
  stopped.child.kill('SIGSTOP');
  console.log(`left: ${JSON.stringify({ dir: path.dirname(os.tmpdir()), stopped: stopped.pid, worker: process.pid })}`);
  await stopped.ended;
});
