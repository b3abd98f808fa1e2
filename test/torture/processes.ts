/** Processes that are killed, paused, resumed and restarted at any moment, and the embedded PostgreSQL. */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { packageRoot } from '../../src/core/package-root.js';
import { findServer } from '../../src/db/embedded/embedded.js';

export const cliFile = path.join(packageRoot, 'dist/src/main/cli.js');

/** Returns Node.js options that load files before a program. The options also apply to child processes. */
const load = (...files: string[]): string[] =>
  files.flatMap((file) => ['--import', pathToFileURL(path.join(packageRoot, file)).href]);

const MOVED_SERVER = 'dist/test/torture/moved-server.js';
/** Options for programs that may start the database. */
export const movedServer = load(MOVED_SERVER);
/** Options for engines. */
export const engineFiles = load(MOVED_SERVER, 'test/support/shifted-clock.mjs', 'dist/test/torture/library-type.js');

export interface ProcessOptions {
  name: string;
  args: string[];
  /** Returns the environment. Called before each start. */
  env: () => Record<string, string>;
  logDir: string;
}

export interface KeptProcess {
  name: string;
  /** Number of restarts after an end of the process. */
  restarts: number;
  /** Returns the first group of a match in the standard output since the last start. */
  find(pattern: RegExp): string | undefined;
  /** @returns false if the process is not running */
  signal(signal: NodeJS.Signals): boolean;
  isPaused: boolean;
  pause(): boolean;
  resume(): void;
  /** Kills the process and does not restart it. */
  end(): void;
}

/** Time limit of a graceful end, more than a draining process needs on a busy machine. */
const END_MS = 90_000;
const LOOK_MS = 100;
const RESTART_MS = 100;

/** Sends SIGTERM to a process. @param stuck receives a sentence if the process does not end in time */
export async function endInTime(kept: KeptProcess, stuck: string[]): Promise<void> {
  const { restarts } = kept;
  if (!kept.signal('SIGTERM')) return;
  for (let left = END_MS; kept.restarts === restarts; await sleep(LOOK_MS)) {
    if (!kept.isPaused) left -= LOOK_MS;
    if (left <= 0) return void stuck.push(`${kept.name} has not ended for ${END_MS / 1000} s after SIGTERM`);
  }
}

export function keepRunning(options: ProcessOptions): KeptProcess {
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
      setTimeout(() => isOver || start(), RESTART_MS).unref();
    });
  };
  const kept: KeptProcess = {
    name: options.name,
    restarts: 0,
    isPaused: false,
    find: (pattern) => pattern.exec(stdout)?.[1],
    signal: (signal) => child?.kill(signal) ?? false,
    pause: () => {
      kept.isPaused = child?.kill('SIGSTOP') ?? false;
      return kept.isPaused;
    },
    resume: () => {
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

/** Runs a process to its end. @returns the exit code, or null if the process was killed */
export async function runProcess(
  options: ProcessOptions,
  onStart: (child: ChildProcess) => void,
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

/** @returns false if no database server is running */
export function signalDatabase(dataDir: string, signal: NodeJS.Signals): boolean {
  const pid = findServer(path.join(dataDir, 'postgres'))?.pid;
  return pid !== undefined && trySignal(pid, signal);
}

/** Stops the database's responses during `work`, without closing connections. @returns false if no server is running */
export async function hangDatabase(dataDir: string, work: () => Promise<unknown>): Promise<boolean> {
  const server = findServer(path.join(dataDir, 'postgres'))?.pid;
  if (server === undefined) return false;
  const children = readdirSync('/proc').filter((name) => /^\d+$/.test(name) && parentOf(name) === server);
  const pids = [...children.map(Number), server]; // a running server would treat stopped children as crashed
  try {
    for (const pid of pids) trySignal(pid, 'SIGSTOP');
    await work();
  } finally {
    for (const pid of pids.reverse()) trySignal(pid, 'SIGCONT');
  }
  return true;
}

function parentOf(pid: string): number | undefined {
  try {
    // skip the program's name, which may contain any character
    return Number(readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ')[1]);
  } catch {
    return undefined; // the process has ended
  }
}

function trySignal(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false; // the process has ended
  }
}

/**
 * Trigger that records each claim of a drive that another engine has still leased.
 * The time is read after the claim, so the lease was valid at the claim.
 */
export const WATCH_CLAIMS = `
  CREATE TABLE torture_double_claim (text text NOT NULL);
  CREATE FUNCTION torture_note_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF OLD.lease_until BETWEEN timezone('utc', clock_timestamp()) AND timezone('utc', clock_timestamp()) + interval '15 minutes' THEN
      INSERT INTO torture_double_claim VALUES (format('%s was claimed by %s while %s had it until %s', OLD.name, NEW.engine_id, OLD.engine_id, OLD.lease_until));
    ELSIF NEW.epoch <= OLD.epoch THEN
      INSERT INTO torture_double_claim VALUES (format('%s was claimed by %s with epoch %s after %s', OLD.name, NEW.engine_id, NEW.epoch, OLD.epoch));
    END IF;
    RETURN NEW;
  END $$;
  CREATE TRIGGER torture_claim AFTER UPDATE OF engine_id ON drive FOR EACH ROW
    WHEN (OLD.engine_id <> NEW.engine_id) EXECUTE FUNCTION torture_note_claim();`;

export const READ_DOUBLE_CLAIMS = 'SELECT text FROM torture_double_claim';
