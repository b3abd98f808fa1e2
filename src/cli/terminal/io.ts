/**
 * Streams, environment and state of the current command. Commands must use this module instead of `process`, because
 * `runWith` can run several commands concurrently in one process.
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
  /** Signal that interrupts the command. If unset, SIGINT interrupts the command. */
  signal?: AbortSignal | undefined;
}

interface CommandState extends CommandIo {
  hideSecrets: (text: string) => string;
  exitCode: number;
  options: readonly string[];
  /**
   * Whether to print times in the local time zone, followed by the time span from now. Output for scripts contains
   * times in UTC.
   */
  isForPeople: boolean;
  isWide: boolean;
  context?: Promise<Context>;
  close?: () => Promise<void>;
}

const ownState: CommandState = {
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
  isForPeople: false,
  isWide: false,
};

/**
 * Storage for the state of a command that `runWith` runs. A server does not store its state here, because on Node.js 20
 * a stored value slows down every promise.
 */
const replaced = new AsyncLocalStorage<CommandState>();

export const commandState = (): CommandState => replaced.getStore() ?? ownState;

/** Runs a command with its own streams and environment. */
export async function runWith<T>(io: CommandIo, run: () => Promise<T>): Promise<T> {
  const fresh = { exitCode: 0, options: [], isForPeople: false, isWide: false };
  return await replaced.run({ ...io, hideSecrets: createHider(io.env), ...fresh }, run);
}

export const environment = (): Environment => commandState().env;

export const stdin = (): CommandIo['stdin'] => commandState().stdin;

export const stdout = (): Output => commandState().stdout;

export const stderr = (): Output => commandState().stderr;

/** Hides secrets in a text: secrets from the command's environment, and any text that looks like a secret. */
export const hideSecrets = (text: string): string => commandState().hideSecrets(text);

/**
 * Calls `interrupt` when the command is interrupted for the first time.
 * @param signals the process signals that interrupt a command
 * @returns a function that removes the handler
 */
export function onInterrupt(interrupt: () => void, signals: readonly NodeJS.Signals[] = ['SIGINT']): () => void {
  const { signal } = commandState();
  if (signal) {
    signal.addEventListener('abort', interrupt, { once: true });
    return () => signal.removeEventListener('abort', interrupt);
  }
  for (const each of signals) process.once(each, interrupt);
  return () => {
    for (const each of signals) process.off(each, interrupt);
  };
}

/**
 * Two signals within this many milliseconds count as one. If a command runs under npm, a Ctrl-C arrives twice: once
 * from the terminal and once from npm.
 */
const SAME_SIGNAL_MS = 500;

/** Waits for the first signal that asks the process to stop. A second signal ends the process immediately. */
export function whenStopped(): Promise<void> {
  const { signal: abort } = commandState();
  return new Promise((resolve) => {
    if (abort) return abort.addEventListener('abort', () => resolve(), { once: true });
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

/**
 * Returns where a command writes its log. A command that `runWith` runs writes its log to the command's own standard
 * error.
 */
export function ownLog(): { logTo?: { write(line: string): void } } {
  const { signal, stderr, hideSecrets } = commandState();
  return signal ? { logTo: { write: (line) => void stderr.write(hideSecrets(line)) } } : {};
}
