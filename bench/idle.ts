/**
 * Measures what an idle Tapegate uses: CPU time, memory and database connections of all its processes, including the
 * embedded PostgreSQL. The program starts in a new data directory, with the demo archive and two drives. No client sends
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
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { packageRoot } from '../src/core/package-root.js';
import { isConnection, type ProcessFigures, readTree } from './process-tree.js';

const seconds = Number(process.env.SECONDS ?? 60);
const settleSeconds = Number(process.env.SETTLE ?? 30);

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
