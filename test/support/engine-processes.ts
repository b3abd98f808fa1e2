/** Finds the engine processes of a server in /proc. */
import { readdirSync, readFileSync } from 'node:fs';
import type { Running } from './process.js';
import { waitFor } from './wait.js';

interface EngineProcess {
  pid: number;
  part: string;
}

/** Returns the engine processes that are alive, without zombies. */
export function listEngineProcesses(server: Pick<Running, 'pid'>): EngineProcess[] {
  return readdirSync('/proc').flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
      const [state, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      if (state === 'Z' || Number(parent) !== server.pid) return [];
      const args = readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0');
      const at = args.findIndex((arg) => arg.endsWith('/engine-process.cjs'));
      return at === -1 ? [] : [{ pid: Number(name), part: args[at + 1] ?? '' }];
    } catch {
      return []; // the process has just ended
    }
  });
}

function isAlive({ pid }: EngineProcess): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return !stat.slice(stat.lastIndexOf(')') + 2).startsWith('Z');
  } catch {
    return false;
  }
}

export async function waitForGone(processes: readonly EngineProcess[]): Promise<void> {
  await waitFor('the engine processes to end', async () => !processes.some(isAlive));
}
