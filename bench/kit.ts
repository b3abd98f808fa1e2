/** Shared parts of the benchmarks: a Tapegate in a temporary directory, files to restore, and timers. */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { appendFile, mkdir } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openRuntime } from '../src/cli/connection/runtime.js';
import { readConfig } from '../src/config/config.js';
import type { Context } from '../src/domain/context.js';
import { getRequest } from '../src/domain/requests/rows.js';
import { startEngineProcesses } from '../src/main/commands/engine-processes.js';

/**
 * Starts the engine as `start` and `work` do, with a process for each drive. @returns a function that stops the engine
 */
type StartEngine = () => Promise<() => Promise<void>>;

/**
 * Runs `work` with a new Tapegate in a temporary directory, which is removed afterwards. BENCH_DIR names the parent
 * directory; default: the system's temporary directory.
 */
export async function withBench(
  work: (ctx: Context, dir: string, startEngine: StartEngine) => Promise<void>,
  env = {},
): Promise<void> {
  const dir = mkdtempSync(path.join(process.env.BENCH_DIR ?? os.tmpdir(), 'tapegate-bench-'));
  chmodSync(dir, 0o755);
  const wanted = { DATA_DIR: path.join(dir, 'data'), LOG_LEVEL: 'warn', ...env };
  const runtime = await openRuntime(readConfig(wanted));
  try {
    await runtime.ctx.events.open();
    await work(runtime.ctx, dir, async () => {
      Object.assign(process.env, wanted); // engine processes read their settings from the environment
      return (await startEngineProcesses(runtime)).stop;
    });
  } finally {
    await runtime.close();
    rmSync(dir, { recursive: true, force: true });
  }
}

const WRITE_BYTES = 64 * 1024 * 1024;

/** Writes `count` files of random bytes below `dir`, 100 files in each directory. */
export async function writeFiles(dir: string, count: number, sizeBytes: number): Promise<void> {
  for (let n = 0; n < count; n++) {
    const directory = path.join(dir, String(Math.floor(n / 100)).padStart(4, '0'));
    if (n % 100 === 0) await mkdir(directory, { recursive: true });
    const file = path.join(directory, `file-${String(n).padStart(6, '0')}.nc`);
    for (let left = sizeBytes; left > 0; left -= WRITE_BYTES)
      await appendFile(file, randomBytes(Math.min(left, WRITE_BYTES)));
  }
}

/** Waits until the request has finished. @returns the state of the finished request */
export async function untilFinished(ctx: Context, requestId: number): Promise<string> {
  for (;;) {
    const rung = new Promise<void>((resolve) => {
      const off = ctx.events.onNotify('event', () => {
        off();
        resolve();
      });
    });
    const { state } = await getRequest(ctx, requestId);
    if (state !== 'QUEUED' && state !== 'RESTORING') return state;
    await rung;
  }
}

/** Waits until the restore area contains no copy. */
export async function untilRemoved(ctx: Context): Promise<void> {
  while ((await ctx.db.prisma.tapeFile.count({ where: { diskId: { not: null } } })) > 0) await sleep(50);
}

/**
 * Allocates and frees `bytes` of memory. The host of a virtual machine reclaims free memory after seconds.
 * The next allocation then waits for the host (0.7 GB/s instead of 5 GB/s), and would slow down only one side of a
 * comparison.
 */
export function touchMemory(bytes: number): void {
  const chunk = 64 * 1024 * 1024;
  const script = `const all = []; for (let n = 0; n < ${bytes}; n += ${chunk}) all.push(Buffer.alloc(${chunk}, 1))`;
  execFileSync(process.execPath, ['-e', script]);
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

export async function seconds(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return (performance.now() - start) / 1000;
}
