/** Memory, processor time and database connections of a process and its descendants, as Linux reports them in /proc. */
import { readdirSync, readFileSync } from 'node:fs';

/** Clock ticks per second in /proc, independent of the kernel's timer frequency. */
const TICKS_A_SECOND = 100;

export interface ProcessFigures {
  command: string;
  cpuSeconds: number;
  pssBytes: number;
}

export function readProc(pid: number, name: string): string {
  return readFileSync(`/proc/${pid}/${name}`, 'utf8');
}

const statOf = (pid: number) =>
  readProc(pid, 'stat')
    .replace(/^.*\) /s, '')
    .split(' ');

/** Returns the ids of a process and its descendants. */
function listTree(root: number): number[] {
  const parents = readdirSync('/proc').flatMap((name) => {
    try {
      return /^\d+$/.test(name) ? [[Number(name), Number(statOf(Number(name))[1])] as const] : [];
    } catch {
      return []; // the process has just ended
    }
  });
  const below = (pid: number): number[] => [
    pid,
    ...parents.filter(([, parent]) => parent === pid).flatMap(([child]) => below(child)),
  ];
  return below(root);
}

/** Returns the figures of a process and its descendants, by process id. */
export function readTree(root: number): Map<number, ProcessFigures> {
  const found = listTree(root).flatMap((pid) => {
    try {
      // fields 14 to 17 of proc_pid_stat(5): times of the process and of its ended children
      const ticks = statOf(pid).slice(11, 15).map(Number);
      const cpuSeconds = ticks.reduce((sum, each) => sum + each) / TICKS_A_SECOND;
      const pssBytes = Number(/^Pss: +(\d+)/m.exec(readProc(pid, 'smaps_rollup'))?.[1]) * 1024;
      const command = readProc(pid, 'cmdline').replaceAll('\0', ' ').trim();
      return [[pid, { command, cpuSeconds, pssBytes }] as const];
    } catch {
      return []; // the process has just ended
    }
  });
  return new Map(found);
}

/** Whether a process of the embedded PostgreSQL serves a connection. */
export const isConnection = ({ command }: ProcessFigures) => /^postgres: \S+ \S+ \[local\]/.test(command);
