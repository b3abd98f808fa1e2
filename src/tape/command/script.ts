/**
 * One run of a site's script: no shell, a process group that ends with it, and never more of what it says in memory than a little.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import type { Readable } from 'node:stream';
import { codeOf, messageOf } from '../../errors.js';
import { LibraryError } from '../backend.js';

export interface ScriptRun {
  /** Program and arguments, as the program gets them. */
  command: readonly string[];
  /** All of it: nothing comes from the environment of this process. */
  environment: Readonly<Record<string, string>>;
  /** What there is to read on standard input; else it is empty. */
  input?: string;
  /** Whether somebody reads its standard output; else it goes nowhere. */
  isRead: boolean;
  /** How long it may take to end after SIGTERM, in milliseconds. */
  killMs: number;
}

/** How a script has ended; both are null where it was not seen to end. */
export interface ScriptEnd {
  code: number | null;
  signal: string | null;
  /** The end of what it said on standard error. */
  said: string;
}

/** What is kept of standard error. */
const TAIL_BYTES = 8 * 1024;

/** After its end, for the rest of what it said: something that it has started may hold that open for good. */
const TAIL_MS = 1000;

/** After SIGKILL, for a process that hangs in its kernel: nobody waits longer for it. */
export const GIVE_UP_MS = 2000;

/** @throws LibraryError when it cannot be started */
export function startScript(run: ScriptRun): Script {
  const [program = '', ...args] = run.command;
  try {
    const child = spawn(program, args, {
      cwd: '/', // the folder in which Tapegate was started may be on a disk that is to be unmounted
      env: { ...run.environment },
      detached: true, // a group of its own
      stdio: [run.input === undefined ? 'ignore' : 'pipe', run.isRead ? 'pipe' : 'ignore', 'pipe'],
    });
    return new Script(child, run);
  } catch (error) {
    throw notStarted(program, error);
  }
}

/** It is not there, or not for this user: that does not pass by itself, as a lack of memory or of processes does. */
const NOT_HERE = ['ENOENT', 'EACCES', 'EPERM', 'ENOEXEC', 'ENOTDIR'];

function notStarted(program: string, cause: unknown): LibraryError {
  const errorClass = NOT_HERE.includes(codeOf(cause) ?? '') ? 'POLICY' : 'TRANSIENT';
  return new LibraryError(errorClass, `${program} could not be started: ${whyNotStarted(program, cause)}`, { cause });
}

/** In words: the system has one code for a script that is not there and for one whose interpreter is not. */
function whyNotStarted(program: string, cause: unknown): string {
  const code = codeOf(cause);
  if (code === 'ENOENT' && isAbsolute(program) && existsSync(program))
    return 'the program that its first line names is not on this host, or its lines end with CR LF (ENOENT)';
  if (code === 'ENOENT') return 'there is no such program on this host (ENOENT)';
  if (code === 'EACCES')
    return "Tapegate's user may not run it: look at its mode, and at the folders above it (EACCES)";
  return messageOf(cause);
}

export class Script {
  private readonly child: ChildProcess;
  /** Bytes of its standard output that were taken. */
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
    this.ended.catch(() => {}); // told by `finish`
    child.stderr?.on('data', (chunk: Buffer) => {
      this.tail = Buffer.from(Buffer.concat([this.tail, chunk]).subarray(-TAIL_BYTES));
    });
    // at the exit Node.js discards what nobody listens for, and the reader may begin later
    child.stdout?.on('readable', () => {});
    child.stdin?.on('error', () => {}); // it need not read what it is given
    child.stdin?.end(input);
  }

  /** Its standard output; ends when that does, and when the script is stopped. The script waits while nobody reads. */
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
   * Ends the output once it is read and nothing more comes: a process that the script has started outside its group may keep it open for good.
   * What a slow reader has not taken yet is left.
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

  /** Ends the script and all of its group: SIGTERM, and after a while SIGKILL. The first reason is that which `finish` throws. */
  stop(reason: unknown): void {
    if (this.stopped) return;
    this.stopped = { reason };
    this.child.stdout?.destroy();
    if (this.isOver) return;
    this.kill('SIGTERM');
    this.timers.push(setTimeout(() => this.kill('SIGKILL'), this.killMs));
    this.timers.push(setTimeout(() => this.giveUp(), this.killMs + GIVE_UP_MS));
  }

  /** How it ended. @throws the reason for which it was stopped; LibraryError when it could not be started */
  async finish(): Promise<ScriptEnd> {
    const end = await this.ended;
    if (this.stopped) throw this.stopped.reason;
    return end;
  }

  /** Nothing of it is left from then on. */
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
        this.kill('SIGKILL'); // what it has left in its group, whose number is taken for as long as anything is
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
      // nobody is left in it
    }
  }
}

function whenClosed(stream: Readable | null, then: () => void): void {
  if (!stream || stream.closed) then();
  else stream.once('close', then);
}
