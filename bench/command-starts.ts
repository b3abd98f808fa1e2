/**
 * Measures what a user waits for at a terminal: the end of `--help` and `requests`, the first line of `request --watch`
 * and `watch`, and the time until the first request after a start of Tapegate has its file on disk. Prints the medians
 * of ROUNDS rounds (default 5), each with a new demo archive. PROGRAM is the program (default: this build's).
 *
 * Usage: npm run compile && node dist/bench/command-starts.js
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { packageRoot } from '../src/core/package-root.js';
import { median } from './kit.js';

const ROUNDS = Number(process.env.ROUNDS ?? 5);
const PROGRAM = process.env.PROGRAM ?? path.join(packageRoot, 'dist/program/tapegate.cjs');
/** Milliseconds until a started Tapegate is idle, and has loaded its spare process. */
const SETTLE_MS = 6000;
const WAIT_MS = 60_000;
const FILE = '/demo/ocean/2023/sst_202301.nc';

const started: ChildProcess[] = [];

function run(args: readonly string[], env: Record<string, string>): ChildProcess {
  const child = spawn(process.execPath, [PROGRAM, ...args], { env: { ...process.env, ...env } });
  started.push(child);
  return child;
}

/** Returns the milliseconds until a command has ended, and until it printed its first line and its first progress bar. */
async function time(args: readonly string[], env: Record<string, string>) {
  const start = performance.now();
  let [first, bar] = [Number.NaN, Number.NaN];
  const child = run(args, env);
  const note = (text: Buffer) => {
    const now = performance.now() - start;
    if (Number.isNaN(first)) first = now;
    if (Number.isNaN(bar) && text.includes('%')) bar = now;
  };
  child.stdout?.on('data', note);
  child.stderr?.on('data', note);
  const [code] = await once(child, 'close');
  if (code !== 0) throw new Error(`tapegate ${args.join(' ')} ended with ${code}`);
  return { end: performance.now() - start, first, bar };
}

async function startTapegate(dataDir: string): Promise<{ url: string; stop: () => Promise<unknown> }> {
  const server = run(['start'], { DATA_DIR: dataDir, PORT: '0', LOG_LEVEL: 'warn' });
  let text = '';
  const url = await new Promise<string>((resolve, reject) => {
    server.once('exit', () => reject(new Error(`Tapegate did not start: ${text}`)));
    server.stdout?.on('data', (part) => {
      text += part;
      const [, found] = /ready at (\S+)\n[\s\S]*In another terminal/.exec(text) ?? [];
      if (found) resolve(found);
    });
  });
  return {
    url,
    stop: () => {
      server.kill('SIGTERM');
      return once(server, 'exit');
    },
  };
}

/** Requests one file. @returns milliseconds from the request to the file on disk */
async function restoreFirst(url: string, dataDir: string): Promise<number> {
  const query = `mutation { createRequest(input: { quota: "bob", files: ["${FILE}"] }) { request { id } } }`;
  const start = performance.now();
  const headers = { 'Content-Type': 'application/json' };
  const answer = await fetch(`${url}/graphql`, { method: 'POST', headers, body: JSON.stringify({ query }) });
  const text = await answer.text();
  if (!answer.ok || text.includes('"errors"')) throw new Error(text);
  const place = path.join(dataDir, 'restore', FILE);
  while (!existsSync(place) && performance.now() - start < WAIT_MS) await sleep(1);
  return performance.now() - start;
}

const times = new Map<string, number[]>();
const add = (name: string, ms: number) => times.set(name, [...(times.get(name) ?? []), ms]);

async function measureRound(): Promise<void> {
  const dataDir = mkdtempSync(path.join(process.env.BENCH_DIR ?? os.tmpdir(), 'tapegate-commands-'));
  try {
    const start = performance.now();
    const { url, stop } = await startTapegate(dataDir);
    add('start: ready', performance.now() - start);
    await sleep(SETTLE_MS);
    const env = { TAPEGATE_URL: url, DATA_DIR: dataDir };
    add('first request: file on disk', await restoreFirst(url, dataDir));
    add('--help: end', (await time(['--help'], env)).end);
    add('requests: end', (await time(['requests'], env)).end);
    const asked = ['request', '--quota', 'alice', '--pattern', '/demo/ocean/2024/', '--watch'];
    const { first, bar, end } = await time(asked, env);
    add('request --watch: first line', first);
    add('request --watch: first bar', bar);
    add('request --watch: end', end);
    add('watch: first bar', (await time(['watch', '2'], env)).bar);
    await stop();
  } finally {
    for (const child of started.splice(0)) child.kill('SIGKILL');
    rmSync(dataDir, { recursive: true, force: true });
  }
}

for (let round = 0; round < ROUNDS; round++) await measureRound();
for (const [name, each] of times)
  console.log(`${name}: ${Math.round(median(each))} ms (${each.map((ms) => Math.round(ms)).join(', ')})`);
