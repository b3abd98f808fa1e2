/** Integrates with systemd: sets the priority of each journal line, and notifies systemd when a service is ready. */
import { execFile } from 'node:child_process';
import { fstatSync } from 'node:fs';
import { promisify } from 'node:util';
import type { Environment } from './environment.js';
import { messageOf } from './errors.js';

const STDERR = 2;

/** Syslog priorities for pino's levels: 60 is fatal, 50 error, 40 warn, 30 info. */
const PRIORITIES = [
  { from: 50, priority: 3 },
  { from: 40, priority: 4 },
  { from: 30, priority: 6 },
  { from: 0, priority: 7 },
];
const ERROR = 50;

/** Returns whether standard error is still connected to systemd's journal, and has not been redirected. */
function isJournal({ JOURNAL_STREAM: stream }: Environment): boolean {
  if (!stream) return false;
  try {
    const { dev, ino } = fstatSync(STDERR, { bigint: true });
    return stream === `${dev}:${ino}`;
  } catch {
    return false;
  }
}

/**
 * Returns a function that prefixes each line with the syslog priority for a pino level. If standard error is not the
 * journal, the function returns the text unchanged.
 */
export function createPrioritizer(env: Environment): (text: string, level?: number) => string {
  if (!isJournal(env)) return (text) => text;
  return (text, level = ERROR) => {
    const priority = PRIORITIES.find(({ from }) => level >= from)?.priority;
    return text.replace(/^(?=.)/gm, `<${priority}>`);
  };
}

export const levelOfLine = (line: string): number => Number(/^\{"level":(\d+)/.exec(line)?.[1] ?? ERROR);

const NOTIFY_MS = 10_000;

/**
 * Notifies systemd that this service is ready. Runs `systemd-notify`, because Node.js cannot send to systemd's socket.
 * The systemd unit must set `Type=notify` and `NotifyAccess=all`.
 * @returns the error message if the notification failed
 */
export async function notifyReady(env: Environment): Promise<string | undefined> {
  if (!env.NOTIFY_SOCKET) return undefined;
  try {
    await promisify(execFile)('systemd-notify', ['--ready'], { env, timeout: NOTIFY_MS });
    return undefined;
  } catch (error) {
    return `cannot notify systemd that this process is ready: ${messageOf(error)}`;
  }
}
