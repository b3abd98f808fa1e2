/** Commands that suspend and resume volumes, drives, libraries, users and disks. */
import { Argument, type Command } from 'commander';
import {
  ResumeDocument,
  SuspendDocument,
  type SuspensionKind,
  type SuspensionMode,
  SuspensionsDocument,
} from '../generated/operations.js';
import { askChange, askNodes } from './connection/gateway-client.js';
import { findSite } from './connection/where.js';
import { type OutputOptions, printResult, printRows } from './terminal/output.js';
import { formatTime } from './terminal/times.js';

export function register(program: Command): void {
  registerSuspend(program, 'suspend', 'IMMEDIATE');
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
    .option('--reason <text>', 'show this reason to users and operators')
    .addHelpText('after', SUSPEND_HELP)
    .action((kind, name, options) => suspend(findSite(), { kind, name, mode }, options));
}

function createKind(): Argument {
  return new Argument('<kind>', 'kind of object').choices(['volume', 'drive', 'library', 'user', 'disk', 'clock']);
}

const readKind = (kind: string) => kind.toUpperCase() as SuspensionKind;

const nameArgument = [
  '<name>',
  'name of the volume, drive, library or user; for a disk, its mount point; for the clock, "database"',
] as const;

const SUSPEND_HELP = `
Nothing new starts on a suspended or draining object until you resume it. Files
that need the object keep waiting.
suspend  stops running recalls; their files return to the queue, and the attempt is not counted
drain    lets running recalls finish

volume   its files wait
drive    the other drives keep working
user     the user's files wait, unless another user waits for them too
disk     a restore disk: recalls use the other disks, or wait; files on the disk remain
library  all drives of the tape system stop
clock    nothing expires or is removed, until "tapegate resume" confirms that the
         database server's time is correct`;

async function suspend(
  url: string,
  { kind, name, mode }: { kind: string; name: string; mode: SuspensionMode },
  options: OutputOptions & { reason?: string },
): Promise<void> {
  const input = { kind: readKind(kind), name, mode, reason: options.reason };
  const suspension = await askChange(url, SuspendDocument, { input });
  printResult(suspension, `${kind} ${suspension.name} is ${formatSuspension(suspension)}`, options);
}

/** Returns `suspended` or `draining`, followed by the reason for the suspension. */
export function formatSuspension({ mode, reason }: { mode: string; reason: string | null }): string {
  const state = mode === 'DRAINING' ? 'draining' : 'suspended';
  return !reason ? state : `${state}: ${reason}`;
}

async function resume(
  url: string,
  { kind, name }: { kind: string; name: string },
  options: OutputOptions,
): Promise<void> {
  const ended = await askChange(url, ResumeDocument, { input: { kind: readKind(kind), name } });
  printResult(ended, `${kind} ${ended.name} is in service again`, options);
}

async function listSuspensions(url: string, options: OutputOptions): Promise<void> {
  printRows(await askNodes(url, SuspensionsDocument, {}), options, {
    present: ({ nextTryAt: _, ...row }) => row,
    none: 'nothing is suspended',
    header: ['KIND', 'NAME', 'MODE', 'SINCE', 'REASON'],
    cells: ({ kind, name, mode, since, reason }) => [kind.toLowerCase(), name, mode, formatTime(since), reason],
  });
}
