/**
 * Runs a site's commands without a shell, and limits their duration and output. Also implements locks that the commands
 * inherit.
 */
import { spawn } from 'node:child_process';
import fs, { closeSync, constants } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { messageOf, oneLine } from '../../core/errors.js';
import { LibraryError } from '../drive-library.js';
import { untilAborted } from '../until-aborted.js';

/** Maximum output of a command in characters: enough for the status of a changer with thousands of slots. */
const MAX_OUTPUT = 4 * 1024 * 1024;

/** Time between SIGTERM and SIGKILL, in milliseconds. */
const KILL_MS = 10_000;

/**
 * Maximum time to wait until the output of an exited command is closed, because a background process might keep it
 * open.
 */
const CLOSE_MS = 2000;

export class CommandFailure extends Error {
  readonly isTimeout: boolean;
  readonly output: string;

  constructor(message: string, { isTimeout, output }: { isTimeout: boolean; output: string }) {
    super(message);
    this.isTimeout = isTimeout;
    this.output = output;
  }
}

interface CommandOptions {
  seconds: number;
  /** File descriptor of the lock, which the command inherits as descriptor 3. */
  lock?: number | undefined;
  signal: AbortSignal;
}

/**
 * Runs a command in its own session, so that signals to this process do not interrupt a robot that is moving a
 * cartridge. If `signal` aborts, this call rejects, but does not stop the command. An interrupted move could leave a
 * cartridge in the robot.
 * @returns the command's standard output
 * @throws CommandFailure if the command fails
 * @throws LibraryError if the operating system cannot start the command
 */
export async function runCommand(args: readonly string[], options: CommandOptions): Promise<string> {
  options.signal.throwIfAborted();
  return await untilAborted(run(args, options), options.signal);
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
      stop(`did not exit within ${seconds} s`);
      // stop waiting for the command, because SIGKILL does not end a process that hangs in the kernel
      setTimeout(() => settle(null), 2 * KILL_MS).unref();
    }, seconds * 1000);
    const settle = (code: number | null, signalName?: string | null) => {
      clearTimeout(limit);
      const all = output.stderr + output.stdout;
      const how = problem ?? (signalName ? `was killed by ${signalName}` : `exited with ${code}`);
      if (problem === undefined && code === 0) return resolve(output.stdout);
      const message = `${shown(args)} ${how}${describeOutput(all)}`;
      reject(new CommandFailure(message, { isTimeout: problem !== undefined, output: all }));
    };
    for (const name of ['stdout', 'stderr'] as const) {
      child[name]?.setEncoding('utf8').on('data', (text: string) => {
        if (output[name].length + text.length > MAX_OUTPUT) stop(`wrote more than ${MAX_OUTPUT} characters`);
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
    // ignore the error, because the command has already exited
  }
}

function shown(args: readonly string[]): string {
  return `"${oneLine(args.join(' '), 200)}"`;
}

/**
 * Returns the lines of a command's output that report LTFS errors. If no lines report such errors, returns the last
 * lines.
 */
function describeOutput(text: string): string {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  const errors = lines.filter((line) => /\bLTFS\d{5}E\b/.test(line));
  const report = errors.length > 0 ? errors.slice(0, 3) : lines.slice(-3);
  return report.length === 0 ? ', without output' : `: ${oneLine(report.join(' | '), 600)}`;
}

const openFd = promisify(fs.open);

/** Exit status that flock(1) returns if another process holds the lock. */
const BUSY = 75;

/**
 * A file lock that excludes all other processes and hosts with the same lock directory. The lock file is never removed.
 * The lock stays in force until all processes that inherited the file descriptor have closed it.
 */
export class HeldLock {
  readonly fd: number;
  private isClosed = false;

  constructor(fd: number) {
    this.fd = fd;
  }

  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    closeSync(this.fd);
  }
}

export class LockDirectory {
  private readonly directory: string;

  constructor(directory: string) {
    this.directory = directory;
  }

  /**
   * Takes a lock. If another process holds the lock, waits at most `seconds`.
   * @param name name of the resource to lock, such as a device; all processes must use the same name for a resource
   * @param seconds maximum time to wait
   * @returns the lock; undefined if another process still holds the lock
   * @throws LibraryError if opening or locking the lock file fails
   */
  async take(name: string, seconds: number, signal: AbortSignal): Promise<HeldLock | undefined> {
    signal.throwIfAborted();
    const file = path.join(this.directory, `${encodeURIComponent(name)}.lock`);
    const lock = new HeldLock(await this.open(file));
    try {
      if (await flock(lock.fd, file, seconds, signal)) return lock;
    } catch (error) {
      lock.close();
      throw signal.aborted ? signal.reason : error;
    }
    lock.close();
    return undefined;
  }

  private async open(file: string): Promise<number> {
    try {
      await mkdir(this.directory, { recursive: true, mode: 0o700 });
      return await openFd(file, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW, 0o600);
    } catch (error) {
      throw new LibraryError('POLICY', `the lock ${file} cannot be opened: ${messageOf(error)}`, { cause: error });
    }
  }
}

/**
 * Locks a file descriptor through the program flock(1), which inherits the descriptor, because Node.js cannot call
 * flock(2).
 */
function flock(fd: number, file: string, seconds: number, signal: AbortSignal): Promise<boolean> {
  const wait = seconds > 0 ? ['--timeout', String(seconds)] : ['--nonblock'];
  return new Promise((resolve, reject) => {
    const args = ['--exclusive', ...wait, '--conflict-exit-code', String(BUSY), '3'];
    const child = spawn('flock', args, { stdio: ['ignore', 'ignore', 'pipe', fd], signal });
    let said = '';
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(0, 1000);
    });
    child.on('error', (error) => {
      reject(new LibraryError('POLICY', `flock (util-linux) cannot be run: ${messageOf(error)}`, { cause: error }));
    });
    child.on('close', (code) => {
      if (code === 0) resolve(true);
      else if (code === BUSY) resolve(false);
      else
        reject(
          new LibraryError('POLICY', `the lock ${file} cannot be taken: flock exited with ${code}: ${said.trim()}`),
        );
    });
  });
}
