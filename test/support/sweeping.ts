/** Starts sweeper.mjs, which removes everything that a run leaves. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { packageRoot } from '../../src/core/package-root.js';

interface Sweep {
  keepFolder?: boolean;
  /** The process whose children stay. */
  spare?: number;
}

interface Sweeper {
  /** Removes everything now. */
  sweep(options?: Sweep): Promise<void>;
}

/**
 * Sweeps the directory when this process ends, in whatever way.
 * @param others directories that are also removed if it ends without a call of `sweep`
 */
export function startSweeper(dir: string, others: string[] = []): Sweeper {
  const file = path.join(packageRoot, 'test/support/sweeper.mjs');
  // in its own session, so that an interrupt does not reach it, and without the directory in its environment
  const child = spawn(process.execPath, [file, dir, ...others], {
    stdio: ['pipe', 'ignore', 'inherit'],
    detached: true,
    env: { PATH: process.env.PATH },
  });
  child.stdin.on('error', () => {}); // it has ended
  child.unref(); // lets a run end that fails before it sweeps
  const ended = once(child, 'exit');
  return {
    sweep: async (options = {}) => {
      child.ref();
      child.stdin.end(JSON.stringify(options));
      await ended;
    },
  };
}
