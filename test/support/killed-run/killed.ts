/** Leaves what tests leave when their run is killed, and says where. */
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
  spawnSync('mount', ['-t', 'tmpfs', 'tapegate-test', mountpoint]); // fails for a user who is not root
  const stopped = startProcess('sleep', ['600'], { cwd: '/' });
  stopped.child.kill('SIGSTOP');
  console.log(`left: ${JSON.stringify({ dir: path.dirname(os.tmpdir()), stopped: stopped.pid, worker: process.pid })}`);
  await stopped.ended;
});
