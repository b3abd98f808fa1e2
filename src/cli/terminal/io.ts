/**
 * The streams, environment and state of the current command: those of the process unless `runWith` replaces them, so
 * that one process can run several commands at once. Other files here do not read them from `process`, except in
 * long-running processes.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Readable, Writable } from 'node:stream';
import {
  type Environment,
  hideSecrets as hideSecretsOfProcess,
  environment as processEnvironment,
} from '../../core/environment.js';
import { createHider } from '../../core/secrets.js';
import type { Context } from '../../domain/context.js';

export type Output = Writable & { isTTY?: boolean; columns?: number; fd?: number };

export interface CommandIo {
  env: Environment;
  stdin: Readable & { isTTY?: boolean };
  stdout: Output;
  stderr: Output;
  /** Interrupts the command when it aborts; SIGINT does so unless given. */
  signal?: AbortSignal | undefined;
}

interface Present extends CommandIo {
  hideSecrets: (text: string) => string;
  exitCode: number;
  /** The names of the command's options, such as `--quota`. */
  options: readonly string[];
  /** Print times in the local zone, relative to now; otherwise in UTC for scripts. */
  tellsPeople: boolean;
  /** Print tables whole in a terminal. */
  isWide: boolean;
  /** Set while the command has a database open. */
  context?: Promise<Context>;
  /** Closes that database. */
  close?: () => Promise<void>;
}

const ofProcess: Present = {
  env: processEnvironment,
  get stdin() {
    return process.stdin;
  },
  get stdout() {
    return process.stdout;
  },
  get stderr() {
    return process.stderr;
  },
  hideSecrets: hideSecretsOfProcess,
  exitCode: 0,
  options: [],
  tellsPeople: false,
  isWide: false,
};

/** Empty outside `runWith`: on Node.js 20 it would slow down each promise of a server. */
const others = new AsyncLocalStorage<Present>();

export const present = (): Present => others.getStore() ?? ofProcess;

/** Runs a command with streams and an environment of its own. */
export async function runWith<T>(io: CommandIo, run: () => Promise<T>): Promise<T> {
  const fresh = { exitCode: 0, options: [], tellsPeople: false, isWide: false };
  return await others.run({ ...io, hideSecrets: createHider(io.env), ...fresh }, run);
}

export const environment = (): Environment => present().env;

export const stdin = (): CommandIo['stdin'] => present().stdin;

export const stdout = (): Output => present().stdout;

export const stderr = (): Output => present().stderr;

/** Hides the secrets of the present environment in a text, and all that looks like one. */
export const hideSecrets = (text: string): string => present().hideSecrets(text);

/**
 * Calls `interrupt` once when the command is interrupted.
 * @param signals for a program of its own
 * @returns a function that removes the handler
 */
export function onInterrupt(interrupt: () => void, signals: readonly NodeJS.Signals[] = ['SIGINT']): () => void {
  const { signal } = present();
  if (signal) {
    signal.addEventListener('abort', interrupt, { once: true });
    return () => signal.removeEventListener('abort', interrupt);
  }
  for (const each of signals) process.once(each, interrupt);
  return () => {
    for (const each of signals) process.off(each, interrupt);
  };
}

/** npm repeats a Ctrl-C that the process already got from the terminal: within this time it counts once. */
const SAME_SIGNAL_MS = 500;

/** Resolves at the first signal; a second one ends the process at once, which is safe. */
export function whenStopped(): Promise<void> {
  const { signal: given } = present();
  return new Promise((resolve) => {
    if (given) return given.addEventListener('abort', () => resolve(), { once: true });
    let stoppedAt: number | undefined;
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      process.on(signal, () => {
        if (stoppedAt !== undefined && performance.now() - stoppedAt > SAME_SIGNAL_MS) process.exit(1);
        stoppedAt ??= performance.now();
        resolve();
      });
    }
  });
}

/** Redirects logs to the command's standard error if it runs in another program. */
export function ownLog(): { logTo?: { write(line: string): void } } {
  const { signal, stderr, hideSecrets } = present();
  return signal ? { logTo: { write: (line) => void stderr.write(hideSecrets(line)) } } : {};
}
