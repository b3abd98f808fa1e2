/**
 * Makes the embedded PostgreSQL start with a clock that the torture test can shift.
 * All processes that may start PostgreSQL load this file with `--import`, because Tapegate passes only its own
 * environment.
 */
import { ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { CLOCK_FILE, MOVED } from '../support/moved-clock.js';

interface SpawnOptions {
  cwd?: string;
  envPairs: string[];
}

const prototype = ChildProcess.prototype as ChildProcess & { spawn(options: SpawnOptions): number };
const { spawn } = prototype;
prototype.spawn = function (this: typeof prototype, options) {
  const { cwd = '', envPairs } = options;
  if (existsSync(path.join(cwd, CLOCK_FILE))) {
    envPairs.push(...Object.entries(MOVED).map(([name, value]) => `${name}=${value}`));
  }
  return spawn.call(this, options);
};
