/** Reads the processor time of a process from Linux. */
import { readFileSync } from 'node:fs';

/** Duration of a clock tick in /proc. */
const TICK_MS = 10;

export interface ProcessorTime {
  ownMs: number;
  /** Processor time of child processes that have ended and were waited for. */
  childrenMs: number;
}

export function readProcessorTime(pid: number | 'self'): ProcessorTime {
  // fields 14 to 17 of proc_pid_stat(5), counted after the process name, which may contain blanks
  const [own = 0, ownSystem = 0, children = 0, childrenSystem = 0] = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /s, '')
    .split(' ')
    .slice(11, 15)
    .map((ticks) => Number(ticks) * TICK_MS);
  return { ownMs: own + ownSystem, childrenMs: children + childrenSystem };
}
