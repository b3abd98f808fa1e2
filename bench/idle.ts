/**
 * Measures what an idle Tapegate uses: CPU time, memory and database connections of all its processes, including the
 * embedded PostgreSQL. The program starts in a new data directory, with the demo archive and two drives. Nobody sends
 * requests.
 *
 * Prints the CPU time in percent of one core, the proportional set size (PSS), the number of processes, and the largest
 * number of connections. PSS counts memory that other programs share, such as the code of Node.js, only in part: run no
 * other Node.js program. SECONDS (default 60) is the time measured, and SETTLE (default 30) the seconds before it. Needs
 * Linux.
 *
 * Usage: npm run compile && node dist/bench/idle.js
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { packageRoot } from '../src/core/package-root.js';

const seconds = Number(process.env.SECONDS ?? 60);
const settleSeconds = Number(process.env.SETTLE ?? 30);

/** Clock ticks per second in /proc, independent of the kernel's timer frequency. */
const TICKS_A_SECOND = 100;

interface ProcessFigures {
  command: string;
  cpuSeconds: number;
  pssBytes: number;
}

function readProc(pid: number, name: string): string {
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

function readTree(root: number): Map<number, ProcessFigures> {
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

const isConnection = ({ command }: ProcessFigures) => /^postgres: \S+ \S+ \[local\]/.test(command);

const dir = mkdtempSync(path.join(process.env.BENCH_DIR ?? os.tmpdir(), 'tapegate-idle-'));
chmodSync(dir, 0o755);
const program = path.join(packageRoot, 'dist/program/tapegate.cjs');
const env = { ...process.env, DATA_DIR: dir, PORT: '0', DRIVES: '2', LOG_LEVEL: 'warn' };
const child = spawn(process.execPath, [program, 'start'], { env, stdio: ['ignore', 'pipe', 'inherit'] });
try {
  for await (const line of createInterface(child.stdout)) if (line.includes('is ready at')) break;
  await sleep(settleSeconds * 1000);
  const root = child.pid ?? 0;
  const [before, startedAt] = [readTree(root), performance.now()];
  let connections = 0;
  while (performance.now() - startedAt < seconds * 1000) {
    await sleep(1000);
    connections = Math.max(connections, [...readTree(root).values()].filter(isConnection).length);
  }
  const [after, measured] = [readTree(root), (performance.now() - startedAt) / 1000];
  const sum = (of: (pid: number, figures: ProcessFigures) => number) =>
    [...after].reduce((total, [pid, figures]) => total + of(pid, figures), 0);
  // the times of ended children are in their parents' times
  const percentOf = (pid: number, { cpuSeconds }: ProcessFigures) =>
    ((cpuSeconds - (before.get(pid)?.cpuSeconds ?? 0)) / measured) * 100;
  for (const [pid, each] of after) {
    const figures = `${percentOf(pid, each).toFixed(2).padStart(6)} %  ${(each.pssBytes / 1e6).toFixed(1).padStart(6)} MB`;
    console.log(`${figures}  ${path.basename(each.command.slice(0, 80))}`);
  }
  const memory = (sum((_pid, { pssBytes }) => pssBytes) / 1e6).toFixed(0);
  console.log(
    `${sum(percentOf).toFixed(2)} % of a core, ${memory} MB PSS, ${after.size} processes, ${connections} connections; measured for ${measured.toFixed(0)} s`,
  );
} finally {
  child.kill('SIGTERM');
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  rmSync(dir, { recursive: true, force: true });
}
