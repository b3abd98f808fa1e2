/** Processor time of other processes, which Linux reports in /proc in hundredths of a second. */
import { readdirSync, readFileSync } from 'node:fs';

/** Clock ticks per second in /proc, independent of the kernel's timer frequency. */
const TICKS_A_SECOND = 100;

interface Times {
  parent: number;
  /** Processor seconds of the process itself. */
  own: number;
  /** Processor seconds of the process' children that have ended. */
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
    return undefined; // the process has just ended, or the system is not Linux
  }
}

/** Returns the processor seconds of this process' children that have ended. */
export function endedChildrenSeconds(): number {
  return readTimes('self')?.ended ?? Number.NaN;
}

/**
 * Returns the processor seconds of this process' running children, including their own children that have ended.
 * @param others process ids of children that do not count
 */
export function childrenSeconds(others: readonly (number | undefined)[]): number {
  const pids = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
  const children = pids.flatMap((pid) => (others.includes(pid) ? [] : (readTimes(pid) ?? [])));
  return children.reduce((sum, { parent, own, ended }) => sum + (parent === process.pid ? own + ended : 0), 0);
}
