/** Processes that are killed, stopped and continued at any moment, and start again by themselves. */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { packageRoot } from '../../src/package-root.js';

export const cliFile = path.join(packageRoot, 'dist/src/cli.js');
export const clockFile = path.join(packageRoot, 'dist/test/torture/shifted-clock.js');
export const kindFile = path.join(packageRoot, 'dist/test/torture/load-kind.js');
export const engineFile = path.join(packageRoot, 'dist/test/torture/engine.js');

export interface ProcessOptions {
  name: string;
  args: string[];
  /** Asked before each start. */
  env: () => Record<string, string>;
  logDir: string;
}

export interface Kept {
  name: string;
  /** How often it has ended and was started again. */
  restarts: number;
  /** The first words that match on its standard output since it was started last. */
  find(pattern: RegExp): string | undefined;
  /** @returns false when there is nothing to be signalled just now */
  signal(signal: NodeJS.Signals): boolean;
  isPaused: boolean;
  pause(): boolean;
  goOn(): void;
  /** Kills it for good. */
  end(): void;
}

/** More than a process takes that lets its work drain, on a machine that others use. */
const END_MS = 90_000;
const LOOK_MS = 100;

/** Asks it to end. @param stuck is told of one that did not, although it could */
export async function endsInTime(kept: Kept, stuck: string[]): Promise<void> {
  const { restarts } = kept;
  if (!kept.signal('SIGTERM')) return;
  for (let left = END_MS; kept.restarts === restarts; await sleep(LOOK_MS)) {
    if (!kept.isPaused) left -= LOOK_MS;
    if (left <= 0) return void stuck.push(`${kept.name} has not ended for ${END_MS / 1000} s after SIGTERM`);
  }
}

/** Between an end and the next start. */
const PAUSE_MS = 100;

/** Keeps one process running. */
export function keepRunning(options: ProcessOptions): Kept {
  let child: ChildProcess | undefined;
  let stdout = '';
  let isOver = false;
  const start = () => {
    stdout = '';
    child = startChild(options, (text) => {
      stdout += text;
    });
    child.once('exit', () => {
      child = undefined;
      kept.isPaused = false;
      kept.restarts++;
      setTimeout(() => isOver || start(), PAUSE_MS).unref();
    });
  };
  const kept: Kept = {
    name: options.name,
    restarts: 0,
    isPaused: false,
    find: (pattern) => pattern.exec(stdout)?.[1],
    signal: (signal) => child?.kill(signal) ?? false,
    pause: () => {
      kept.isPaused = child?.kill('SIGSTOP') ?? false;
      return kept.isPaused;
    },
    goOn: () => {
      if (kept.isPaused) child?.kill('SIGCONT');
      kept.isPaused = false;
    },
    end: () => {
      isOver = true;
      child?.kill('SIGKILL');
    },
  };
  start();
  return kept;
}

/** Runs a command of the program to its end. @returns its exit code, null when it was killed */
export async function runCommand(
  options: ProcessOptions,
  onStart: (child: ChildProcess) => void = () => {},
): Promise<number | null> {
  const child = startChild(options, () => {});
  onStart(child);
  return await new Promise((resolve) => child.once('exit', (code) => resolve(code)));
}

function startChild({ name, args, env, logDir }: ProcessOptions, onText: (text: string) => void): ChildProcess {
  const log = openSync(path.join(logDir, `${name}.log`), 'a');
  const child = spawn(process.execPath, args, {
    env: { PATH: process.env.PATH, LOG_LEVEL: 'warn', ...env() },
    stdio: ['ignore', 'pipe', log],
  });
  closeSync(log);
  child.stdout?.setEncoding('utf8').on('data', onText);
  return child;
}
