/** How a run makes sure that nothing of it stays; sweeper.mjs does the work. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { packageRoot } from '../../src/package-root.js';

export interface Sweep {
  keepFolder?: boolean;
  /** The process whose children are left alone. */
  spare?: number;
}

export interface Sweeper {
  /** Removes everything now; resolves when that is done. */
  sweep(options?: Sweep): Promise<void>;
}

/**
 * Sweeps the directory when this process ends, however that happens.
 * @param others directories that are removed as well if it ends without a call of `sweep`
 */
export function startSweeper(dir: string, others: string[] = []): Sweeper {
  const file = path.join(packageRoot, 'test/support/sweeper.mjs');
  // in a session of its own, so that what interrupts the run does not interrupt it; the directory is not in its environment
  const child = spawn(process.execPath, [file, dir, ...others], {
    stdio: ['pipe', 'ignore', 'inherit'],
    detached: true,
    env: { PATH: process.env.PATH },
  });
  child.stdin.on('error', () => {}); // it has ended
  child.unref(); // a run that fails before it sweeps ends all the same
  const ended = once(child, 'exit');
  return {
    sweep: async (options = {}) => {
      child.ref();
      child.stdin.end(JSON.stringify(options));
      await ended;
    },
  };
}
