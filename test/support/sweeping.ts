/** Starts sweeper.mjs, which removes all processes and files that a test run leaves. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { packageRoot } from '../../src/core/package-root.js';

interface Sweep {
  keepDirectory?: boolean;
  /** Id of a process whose children are not ended. */
  spare?: number;
}

interface Sweeper {
  /** Sweeps at once. */
  sweep(options?: Sweep): Promise<void>;
}

/**
 * Sweeps the directory when this process ends for any reason.
 * @param others directories that are also removed if this process ends without a call of `sweep`
 */
export function startSweeper(dir: string, others: string[] = []): Sweeper {
  const file = path.join(packageRoot, 'test/support/sweeper.mjs');
  // a new session keeps interrupts from the sweeper, and the sweeper's environment must not contain the directory
  const child = spawn(process.execPath, [file, dir, ...others], {
    stdio: ['pipe', 'ignore', 'inherit'],
    detached: true,
    env: { PATH: process.env.PATH },
  });
  child.stdin.on('error', () => {}); // the sweeper has ended
  child.unref(); // a run that fails early can end without a sweep
  const ended = once(child, 'exit');
  return {
    sweep: async (options = {}) => {
      child.ref();
      child.stdin.end(JSON.stringify(options));
      await ended;
    },
  };
}
