/** `rename` and `forget`: files that get other paths, and withdrawn files that go for good. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import { plural } from '../plural.js';
import { askChange, readUrl } from './client.js';
import { dryRunOption, jsonOption, type OutputOptions, printJson, printLine } from './output.js';

export function registerRename(program: Command): void {
  program
    .command('rename <from> <to>')
    .option(...jsonOption)
    .option('--in-library', 'a library that finds files by their paths calls them so as well by now')
    .option(...dryRunOption)
    .addHelpText('after', RENAME_HELP)
    .action((from, to, options) => renameFiles(from, to, options));
  program
    .command('forget <path>')
    .option(...jsonOption)
    .option(...dryRunOption)
    .addHelpText('after', FORGET_HELP)
    .action((path, options) => forgetFiles(path, options));
}

const RENAME_HELP = `
Requests keep the files, and copies that are on disk stay where they are. Libraries that find files by their paths are asked for
them by the names of before, unless --in-library says that they were renamed there as well.`;

const FORGET_HELP = `
Nothing brings it back. What is still on disk, or in a live request, is passed over: ask again when it has gone.`;

interface ChangeOptions extends OutputOptions {
  dryRun?: boolean;
}

async function renameFiles(
  from: string,
  to: string,
  { json, dryRun, inLibrary }: ChangeOptions & { inLibrary?: boolean },
): Promise<void> {
  const input = { from, to, dryRun, inLibrary };
  const call = ['renameFiles(input: RenameFilesInput!)', 'ChosenFiles { files bytes requests }'] as const;
  type Renamed = { files: number; bytes: bigint; requests: number };
  const renamed = await askChange<Renamed>(readUrl(), call, { input }, { from: '<from>', to: '<to>' });
  if (json) return printJson(renamed);
  const { files, bytes, requests } = renamed;
  printLine(`${plural(files, 'file')}, ${formatBytes(bytes)}, ${dryRun ? 'would be ' : ''}renamed`);
  if (requests > 0) printLine(`${plural(requests, 'live request is', 'live requests are')} concerned`);
}

async function forgetFiles(path: string, { json, dryRun }: ChangeOptions): Promise<void> {
  type Forgotten = { files: number; bytes: bigint; kept: number };
  const call = ['forgetFiles(input: ForgetFilesInput!)', 'ForgottenFiles { files bytes kept }'] as const;
  const forgotten = await askChange<Forgotten>(readUrl(), call, { input: { path, dryRun } }, { path: '<path>' });
  if (json) return printJson(forgotten);
  const { files, bytes, kept } = forgotten;
  printLine(`${plural(files, 'file')}, ${formatBytes(bytes)}, ${dryRun ? 'would be ' : ''}forgotten`);
  if (kept > 0) printLine(`${plural(kept, 'file is', 'files are')} still on disk or in live requests, and passed over`);
}
