/** The commands of a site: run without a shell, within their time, with bounded output. */
import { spawn } from 'node:child_process';
import { messageOf, oneLine } from '../../errors.js';
import { LibraryError } from '../backend.js';

/** What a changer with thousands of slots says fits well. */
const MAX_OUTPUT = 4 * 1024 * 1024;

/** What has been told to end is killed after so long. */
const KILL_MS = 10_000;

/** A child that goes on in the background may have the pipes open: they are waited for so long once the command has ended. */
const CLOSE_MS = 2000;

/** A command that has not done what it should. */
export class CommandFailure extends Error {
  readonly isTimeout: boolean;
  /** All that it has said. */
  readonly output: string;

  constructor(message: string, { isTimeout, output }: { isTimeout: boolean; output: string }) {
    super(message);
    this.isTimeout = isTimeout;
    this.output = output;
  }
}

export interface CommandOptions {
  seconds: number;
  /** A descriptor that the command and what it starts have open as their descriptor 3: a lock lives as long as they do. */
  lock?: number | undefined;
  signal: AbortSignal;
}

/**
 * Runs a command in a session of its own: what ends this process, or interrupts it, leaves a robot's move alone. Where the signal
 * aborts, the command goes on and is not waited for: a cartridge halfway is worse than one that is moved in vain.
 * @returns what it wrote to standard output
 * @throws CommandFailure; LibraryError where it cannot be run; the signal's reason
 */
export async function runCommand(args: readonly string[], options: CommandOptions): Promise<string> {
  const { signal } = options;
  signal.throwIfAborted();
  let onAbort = () => {};
  const aborted = new Promise<never>((_resolve, reject) => {
    onAbort = () => reject(signal.reason);
    signal.addEventListener('abort', onAbort);
  });
  const running = run(args, options);
  running.catch(() => {}); // nobody may wait for it any more
  try {
    return await Promise.race([running, aborted]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

function run(args: readonly string[], { seconds, lock }: CommandOptions): Promise<string> {
  const [program = '', ...rest] = args;
  const stdio = ['ignore', 'pipe', 'pipe', ...(lock === undefined ? [] : [lock])] as const;
  return new Promise((resolve, reject) => {
    const child = spawn(program, rest, { stdio: [...stdio], detached: true });
    const output = { stdout: '', stderr: '' };
    let problem: string | undefined;
    const stop = (why: string) => {
      problem ??= why;
      killGroup(child.pid, 'SIGTERM');
      setTimeout(() => killGroup(child.pid, 'SIGKILL'), KILL_MS).unref();
    };
    const limit = setTimeout(() => {
      stop(`has not ended within ${seconds} s`);
      // one that hangs in the kernel ends by no signal
      setTimeout(() => settle(null), 2 * KILL_MS).unref();
    }, seconds * 1000);
    const settle = (code: number | null, signalName?: string | null) => {
      clearTimeout(limit);
      const all = output.stderr + output.stdout;
      const how = problem ?? (signalName ? `was ended by ${signalName}` : `ended with ${code}`);
      if (problem === undefined && code === 0) return resolve(output.stdout);
      const message = `${shown(args)} ${how}${describeOutput(all)}`;
      reject(new CommandFailure(message, { isTimeout: problem !== undefined, output: all }));
    };
    for (const name of ['stdout', 'stderr'] as const) {
      child[name]?.setEncoding('utf8').on('data', (text: string) => {
        if (output[name].length + text.length > MAX_OUTPUT) stop(`has said more than ${MAX_OUTPUT} characters`);
        else output[name] += text;
      });
    }
    child.on('error', (error) => {
      clearTimeout(limit);
      reject(new LibraryError('POLICY', `${shown(args)} cannot be run: ${messageOf(error)}`, { cause: error }));
    });
    child.on('close', settle);
    child.on('exit', (code, signalName) => setTimeout(() => settle(code, signalName), CLOSE_MS).unref());
  });
}

function killGroup(pid: number | undefined, signal: 'SIGTERM' | 'SIGKILL'): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch {
    // it has ended
  }
}

function shown(args: readonly string[]): string {
  return `"${oneLine(args.join(' '), 200)}"`;
}

/** Errors of LTFS have numbers that end with E; elsewhere what was said last tells most. */
function describeOutput(text: string): string {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  const errors = lines.filter((line) => /\bLTFS\d{5}E\b/.test(line));
  const told = errors.length > 0 ? errors.slice(0, 3) : lines.slice(-3);
  return told.length === 0 ? ', and has said nothing' : `: ${oneLine(told.join(' | '), 600)}`;
}
