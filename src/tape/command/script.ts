/**
 * Runs a site's script without a shell. When the script exits, Tapegate kills the remaining processes in its process
 * group.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import type { Readable } from 'node:stream';
import { codeOf, messageOf } from '../../core/errors.js';
import { LibraryError } from '../drive-library.js';

interface ScriptRun {
  command: readonly string[];
  /** All environment variables of the script, which does not inherit any variables from Tapegate. */
  environment: Readonly<Record<string, string>>;
  /** Text for the script's standard input; if absent, the standard input is empty. */
  input?: string;
  isRead: boolean;
  /** Time between SIGTERM and SIGKILL, in milliseconds. */
  killMs: number;
}

/** Exit status of a script. `code` and `signal` are both null if the process still exists after SIGKILL. */
export interface ScriptEnd {
  code: number | null;
  signal: string | null;
  said: string;
}

const TAIL_BYTES = 8 * 1024;

/**
 * Maximum time, in milliseconds, to read standard error after the script exits. The time is limited because a child
 * process of the script might keep standard error open.
 */
const TAIL_MS = 1000;

/**
 * Maximum time, in milliseconds, to wait for a process to exit after SIGKILL. SIGKILL does not end a process that hangs
 * in the kernel.
 */
export const GIVE_UP_MS = 2000;

/** Starts a script. @throws LibraryError if the script cannot be started */
export function startScript(run: ScriptRun): Script {
  const [program = '', ...args] = run.command;
  try {
    const child = spawn(program, args, {
      cwd: '/', // Tapegate's own working directory might be on a disk that an operator wants to unmount
      env: { ...run.environment },
      detached: true, // makes the script the leader of a new process group
      stdio: [run.input === undefined ? 'ignore' : 'pipe', run.isRead ? 'pipe' : 'ignore', 'pipe'],
    });
    return new Script(child, run);
  } catch (error) {
    throw notStarted(program, error);
  }
}

/** Error codes for a program that is missing or not executable. */
const NOT_HERE = ['ENOENT', 'EACCES', 'EPERM', 'ENOEXEC', 'ENOTDIR'];

function notStarted(program: string, cause: unknown): LibraryError {
  const errorClass = NOT_HERE.includes(codeOf(cause) ?? '') ? 'POLICY' : 'TRANSIENT';
  return new LibraryError(errorClass, `${program} cannot be started: ${whyNotStarted(program, cause)}`, { cause });
}

/** Returns the reason why a program did not start. */
function whyNotStarted(program: string, cause: unknown): string {
  const code = codeOf(cause);
  if (code === 'ENOENT' && isAbsolute(program) && existsSync(program))
    return 'the interpreter in the first line of the script does not exist on this host, or the lines of the script end with CR LF (ENOENT)';
  if (code === 'ENOENT') return 'the program does not exist on this host (ENOENT)';
  if (code === 'EACCES')
    return 'the user that runs Tapegate has no permission to run the program: check the modes of the program and of its parent directories (EACCES)';
  return messageOf(cause);
}

export class Script {
  private readonly child: ChildProcess;
  private taken = 0;
  private readonly killMs: number;
  private readonly ended: Promise<ScriptEnd>;
  private readonly timers: NodeJS.Timeout[] = [];
  private tail: Buffer = Buffer.alloc(0);
  private isOver = false;
  private stopped: { reason: unknown } | undefined;
  private isDrained = false;
  private giveUp: () => void = () => {};

  constructor(child: ChildProcess, { command, input, killMs }: ScriptRun) {
    this.child = child;
    this.killMs = killMs;
    this.ended = this.watch(command[0] ?? '');
    this.ended.catch(() => {}); // prevents an unhandled rejection; `finish` throws the error
    child.stderr?.on('data', (chunk: Buffer) => {
      this.tail = Buffer.from(Buffer.concat([this.tail, chunk]).subarray(-TAIL_BYTES));
    });
    // add a listener, because Node.js would otherwise discard unread output when the script exits
    child.stdout?.on('readable', () => {});
    child.stdin?.on('error', () => {}); // ignore errors, because a script can exit without reading its input
    child.stdin?.end(input);
  }

  /**
   * Yields the standard output of the script. If the caller stops reading, the script blocks as soon as the pipe is
   * full.
   */
  async *output(): AsyncGenerator<Uint8Array> {
    try {
      for await (const chunk of this.child.stdout ?? []) {
        if (this.stopped) return;
        this.taken += chunk.length;
        yield chunk;
      }
    } catch (error) {
      if (!this.stopped && !this.isDrained) throw error;
    }
  }

  /**
   * Closes the output of an exited script when no more data arrives, because a child process might keep the output
   * open.
   */
  private drain(output: Readable): void {
    let before = -1;
    const timer = setInterval(() => {
      const isEmpty = output.readableLength === 0;
      if (isEmpty && this.taken === before) {
        this.isDrained = true;
        output.destroy();
      }
      before = isEmpty ? this.taken : -1;
    }, TAIL_MS);
    whenClosed(output, () => clearInterval(timer));
  }

  /**
   * Stops the script and its process group with SIGTERM, and later with SIGKILL. If `stop` is called several times,
   * `finish` throws the reason passed to the first call.
   */
  stop(reason: unknown): void {
    if (this.stopped) return;
    this.stopped = { reason };
    this.child.stdout?.destroy();
    if (this.isOver) return;
    this.kill('SIGTERM');
    this.timers.push(setTimeout(() => this.kill('SIGKILL'), this.killMs));
    this.timers.push(setTimeout(() => this.giveUp(), this.killMs + GIVE_UP_MS));
  }

  /**
   * Waits until the script has ended.
   * @throws the reason passed to `stop`
   * @throws LibraryError if the operating system could not start the script
   */
  async finish(): Promise<ScriptEnd> {
    const end = await this.ended;
    if (this.stopped) throw this.stopped.reason;
    return end;
  }

  async close(): Promise<void> {
    this.stop(undefined);
    await this.ended.catch(() => {});
  }

  private watch(program: string): Promise<ScriptEnd> {
    const { child } = this;
    return new Promise((resolve, reject) => {
      const end = (code: number | null, signal: string | null) => {
        this.isOver = true;
        for (const timer of this.timers) clearTimeout(timer);
        child.stderr?.destroy();
        resolve({ code, signal, said: this.tail.toString() });
      };
      this.giveUp = () => end(null, null);
      child.once('error', (error) => {
        this.isOver = true;
        reject(notStarted(program, error));
      });
      child.once('exit', (code, signal) => {
        this.isOver = true;
        if (child.stdout) this.drain(child.stdout);
        // kill the remaining processes in the group; the kernel does not reuse the group's id while a process is in the
        // group
        this.kill('SIGKILL');
        whenClosed(child.stderr, () => end(code, signal));
        this.timers.push(setTimeout(() => end(code, signal), TAIL_MS));
      });
    });
  }

  private kill(signal: 'SIGTERM' | 'SIGKILL'): void {
    if (this.child.pid === undefined) return;
    try {
      process.kill(-this.child.pid, signal);
    } catch {
      // ignore the error, because all processes of the group have exited
    }
  }
}

function whenClosed(stream: Readable | null, then: () => void): void {
  if (!stream || stream.closed) then();
  else stream.once('close', then);
}
