/** Processor time of other processes, as Linux counts it in /proc, in hundredths of a second. */
import { readdirSync, readFileSync } from 'node:fs';

/** What Linux shows to programs, whatever the kernel counts in. */
const TICKS_A_SECOND = 100;

interface Times {
  parent: number;
  /** Seconds of the process itself. */
  own: number;
  /** Seconds of its children that have ended. */
  ended: number;
}

function readTimes(pid: number | 'self'): Times | undefined {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ')
      .map(Number);
    const [parent = 0, user = 0, system = 0, endedUser = 0, endedSystem = 0] = [1, 11, 12, 13, 14].map(
      (n) => fields[n],
    );
    return { parent, own: (user + system) / TICKS_A_SECOND, ended: (endedUser + endedSystem) / TICKS_A_SECOND };
  } catch {
    return undefined; // it has just ended, or this is no Linux
  }
}

/** Seconds that the children of this process which have ended took. */
export function endedChildrenSeconds(): number {
  return readTimes('self')?.ended ?? Number.NaN;
}

/** Seconds that the children of this process have taken which run, with those of theirs that have ended. @param others that do not count */
export function childrenSeconds(others: readonly (number | undefined)[]): number {
  const pids = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
  const children = pids.flatMap((pid) => (others.includes(pid) ? [] : (readTimes(pid) ?? [])));
  return children.reduce((sum, { parent, own, ended }) => sum + (parent === process.pid ? own + ended : 0), 0);
}
