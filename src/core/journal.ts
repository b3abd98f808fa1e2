/** Reports of a service to systemd: the priority of each journal line, and when it is ready. */
import { execFile } from 'node:child_process';
import { fstatSync } from 'node:fs';
import { promisify } from 'node:util';
import type { Environment } from './environment.js';
import { messageOf } from './errors.js';

const STDERR = 2;

/** Of syslog, by levels of pino: 60 is fatal, 50 error, 40 warn, 30 info. */
const PRIORITIES = [
  { from: 50, priority: 3 },
  { from: 40, priority: 4 },
  { from: 30, priority: 6 },
  { from: 0, priority: 7 },
];
const ERROR = 50;

/** Whether standard error is the journal, as systemd says: another process may have replaced it since. */
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
 * Returns a function that puts the priority before each line of a text, if standard error is the journal: otherwise
 * the text is unchanged.
 * @param level of pino
 */
export function createPrioritizer(env: Environment): (text: string, level?: number) => string {
  if (!isJournal(env)) return (text) => text;
  return (text, level = ERROR) => {
    const priority = PRIORITIES.find(({ from }) => level >= from)?.priority;
    return text.replace(/^(?=.)/gm, `<${priority}>`);
  };
}

/** Level of a log line of pino, which begins with it. */
export const levelOfLine = (line: string): number => Number(/^\{"level":(\d+)/.exec(line)?.[1] ?? ERROR);

/** Time for the program `systemd-notify`, which waits until systemd has read the message. */
const NOTIFY_MS = 10_000;

/**
 * Notifies systemd that a service of `Type=notify` is ready. Node.js cannot send to its socket, so `systemd-notify` does,
 * which the unit must allow by `NotifyAccess=all`.
 * @returns why that failed, if so
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
