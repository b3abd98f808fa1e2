/** `hold`, `drain`, `resume`, `suspensions`: what is taken out of service and put back. */
import { Argument, type Command } from 'commander';
import {
  Resume,
  Suspend,
  type SuspensionKind,
  type SuspensionMode,
  Suspensions,
} from '../generated/command-operations.js';
import { askChange, askNodes } from './connection/client.js';
import { findSite } from './connection/where.js';
import { type OutputOptions, printResult, printRows } from './terminal/output.js';
import { formatTime } from './terminal/times.js';

export function register(program: Command): void {
  registerSuspend(program, 'hold', 'HELD');
  registerSuspend(program, 'drain', 'DRAINING');
  program
    .command('resume')
    .addArgument(createKind())
    .argument(...nameArgument)
    .action((kind, name, options) => resume(findSite(), { kind, name }, options));
  program.command('suspensions').action((options) => listSuspensions(findSite(), options));
}

function registerSuspend(program: Command, command: string, mode: SuspensionMode) {
  program
    .command(command)
    .addArgument(createKind())
    .argument(...nameArgument)
    .option('--reason <text>', 'why, for people')
    .addHelpText('after', SUSPEND_HELP)
    .action((kind, name, options) => suspend(findSite(), { kind, name, mode }, options));
}

function createKind(): Argument {
  return new Argument('<kind>', 'what it is').choices([
    'volume',
    'drive',
    'library',
    'user',
    'disk',
    'clock',
    'backend',
  ]);
}

/** Commander has checked the kind. A library has the name that it had when there was only one, too. */
function readKind(kind: string): SuspensionKind {
  return kind === 'library' ? 'BACKEND' : (kind.toUpperCase() as SuspensionKind);
}

const nameArgument = [
  '<name>',
  'of the volume, drive or library; the user; the mount point of the disk; "database" for its clock',
] as const;

const SUSPEND_HELP = `
Nothing new begins on what is held or draining, until it is resumed; what waits for it goes on waiting.
hold   stops the recalls that run: their files go back into the queue, and it does not count as a try
drain  lets the recalls that run end

volume   its files wait
drive    the other drives go on
user     the user's files wait, but for those that another user waits for too
disk     a restore disk: recalls go to the other disks, or wait; what is on it stays
library  all drives of a tape system; \`backend\` is the same
clock    of the database: nothing expires or is removed; \`resume\` confirms the time that it shows`;

async function suspend(
  url: string,
  { kind, name, mode }: { kind: string; name: string; mode: SuspensionMode },
  options: OutputOptions & { reason?: string },
): Promise<void> {
  const input = { kind: readKind(kind), name, mode, reason: options.reason };
  const suspension = await askChange(url, Suspend, { input });
  printResult(suspension, `${kind} ${suspension.name} is ${formatSuspension(suspension)}`, options);
}

/** `held`, or `held: why`. */
export function formatSuspension({ mode, reason }: { mode: string; reason: string }): string {
  return reason === '' ? mode.toLowerCase() : `${mode.toLowerCase()}: ${reason}`;
}

async function resume(
  url: string,
  { kind, name }: { kind: string; name: string },
  options: OutputOptions,
): Promise<void> {
  const ended = await askChange(url, Resume, { input: { kind: readKind(kind), name } });
  printResult(ended, `${kind} ${ended.name} is in service again`, options);
}

async function listSuspensions(url: string, options: OutputOptions): Promise<void> {
  printRows(await askNodes(url, Suspensions, {}), options, {
    none: 'everything is in service',
    header: ['KIND', 'NAME', 'MODE', 'SINCE', 'REASON'],
    cells: ({ kind, name, mode, since, reason }) => [kind.toLowerCase(), name, mode, formatTime(since), reason],
  });
}
