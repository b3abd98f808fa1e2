/** `rename` and `forget`: files that get other paths, and withdrawn files that go for good. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import { plural } from '../plural.js';
import { ask, FAILURE, type Result, readUrl, unwrapResult } from './client.js';
import { jsonOption, type OutputOptions, printJson, printLine } from './output.js';

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

const dryRunOption = ['--dry-run', 'say what would be done, and do nothing'] as const;

const RENAME_HELP = `
Requests keep the files, and copies that are on disk stay where they are. Libraries that find files by their paths are asked for
them by the names of before, unless --in-library says that they were renamed there as well.`;

const FORGET_HELP = `
Nothing brings it back. What is still on disk, or in a live request, is passed over: ask again when it has gone.`;

interface ChangeOptions extends OutputOptions {
  dryRun?: boolean;
}

const RENAME = `mutation ($input: RenameFilesInput!) {
  result: renameFiles(input: $input) { ... on ChosenFiles { files bytes requests } ${FAILURE} }
}`;

async function renameFiles(
  from: string,
  to: string,
  { json, dryRun, inLibrary }: ChangeOptions & { inLibrary?: boolean },
): Promise<void> {
  const input = { from, to, dryRun, inLibrary };
  type Renamed = { files: number; bytes: bigint; requests: number };
  const answer = await ask<{ result: Result<Renamed> }>(readUrl(), RENAME, { input });
  const renamed = unwrapResult(answer.result, { from: '<from>', to: '<to>' });
  if (json) return printJson(renamed);
  const { files, bytes, requests } = renamed;
  printLine(`${plural(files, 'file')}, ${formatBytes(bytes)}, ${dryRun ? 'would be ' : ''}renamed`);
  if (requests > 0) printLine(`${plural(requests, 'live request is', 'live requests are')} concerned`);
}

const FORGET = `mutation ($input: ForgetFilesInput!) {
  result: forgetFiles(input: $input) { ... on ForgottenFiles { files bytes kept } ${FAILURE} }
}`;

async function forgetFiles(path: string, { json, dryRun }: ChangeOptions): Promise<void> {
  type Forgotten = { files: number; bytes: bigint; kept: number };
  const answer = await ask<{ result: Result<Forgotten> }>(readUrl(), FORGET, { input: { path, dryRun } });
  const forgotten = unwrapResult(answer.result, { path: '<path>' });
  if (json) return printJson(forgotten);
  const { files, bytes, kept } = forgotten;
  printLine(`${plural(files, 'file')}, ${formatBytes(bytes)}, ${dryRun ? 'would be ' : ''}forgotten`);
  if (kept > 0) printLine(`${plural(kept, 'file is', 'files are')} still on disk or in live requests, and passed over`);
}
