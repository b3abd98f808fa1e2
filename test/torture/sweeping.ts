/** How a torture makes sure that nothing of it stays; sweeper.ts does the work. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { packageRoot } from '../../src/package-root.js';

/** Said to the sweeper, it leaves the folder where it is. */
export const KEEP = 'keep';

/** Where a small file system may be mounted. */
export const smallDisk = (dir: string): string => path.join(dir, 'small');

export interface Sweeper {
  /** Has all taken away now; of the folder only when it is not to be kept. Resolves when that is done. */
  sweep(keepFolder: boolean): Promise<void>;
}

export function startSweeper(dir: string): Sweeper {
  const file = path.join(packageRoot, 'dist/test/torture/sweeper.js');
  // in a session of its own, so that what interrupts the torture does not interrupt it
  const child = spawn(process.execPath, [file, dir], { stdio: ['pipe', 'ignore', 'inherit'], detached: true });
  child.stdin.on('error', () => {}); // it has ended
  const ended = once(child, 'exit');
  return {
    sweep: async (keepFolder) => {
      child.stdin.end(keepFolder ? KEEP : '');
      await ended;
    },
  };
}
