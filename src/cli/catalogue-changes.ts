/** `withdraw`, `reinstate`, `rename`, `purge`: changes of files of the catalogue. */
import type { Command } from 'commander';
import { formatBytes } from '../core/bytes.js';
import { plural } from '../core/plural.js';
import {
  type ChosenFragment,
  PurgeFiles,
  ReinstateFiles,
  RenameFiles,
  WithdrawFiles,
} from '../generated/command-operations.js';
import { askChange } from './connection/client.js';
import { findSite } from './connection/where.js';
import { dryRunOption, type OutputOptions, printJson, printLine, printResult } from './terminal/output.js';
import { tellRequests } from './volume.js';

export function register(program: Command): void {
  program
    .command('withdraw <path>')
    .option('--why <text>', 'for people: those who wait for one of the files are told')
    .option(...dryRunOption)
    .addHelpText('after', WITHDRAW_HELP)
    .action(async (path, options) => {
      const input = { path, dryRun: options.dryRun, why: options.why };
      printChosen(await askChange(findSite(), WithdrawFiles, { input }, { path: '<path>' }), 'withdrawn', options);
    });
  program
    .command('reinstate <path>')
    .option(...dryRunOption)
    .action(async (path, options) => {
      const input = { path, dryRun: options.dryRun };
      printChosen(await askChange(findSite(), ReinstateFiles, { input }, { path: '<path>' }), 'back', options);
    });
  program
    .command('rename <from> <to>')
    .option('--in-library', 'a library that finds files by their paths calls them so as well by now')
    .option(...dryRunOption)
    .addHelpText('after', RENAME_HELP)
    .action(async (from, to, options) => {
      const input = { from, to, dryRun: options.dryRun, inLibrary: options.inLibrary };
      const own = { from: '<from>', to: '<to>' };
      printChosen(await askChange(findSite(), RenameFiles, { input }, own), 'renamed', options);
    });
  program
    .command('purge <path>')
    .option(...dryRunOption)
    .addHelpText('after', PURGE_HELP)
    .action((path, options) => purgeFiles(path, options));
}

const WITHDRAW_HELP = `
Who waits for one of the files is told why it does not come, unless a drive reads it just then. What is on disk stays there as long as
requests have it. \`tapegate reinstate\` brings back what is withdrawn.`;

const RENAME_HELP = `
Requests keep the files, and copies that are on disk stay where they are. Libraries that find files by their paths are asked for
them by the names of before, unless --in-library says that they were renamed there as well.`;

const PURGE_HELP = `
Nothing brings it back. What is still on disk, or in a live request, is passed over: ask again when it has gone.`;

interface ChangeOptions extends OutputOptions {
  dryRun?: boolean;
}

function printChosen(chosen: ChosenFragment, done: string, { json = false, dryRun }: ChangeOptions): void {
  const { files, bytes, requests } = chosen;
  const line = `${plural(files, 'file')}, ${formatBytes(bytes)}, ${dryRun ? 'would be ' : ''}${done}`;
  printResult(chosen, line, { json });
  if (!json) tellRequests(requests);
}

async function purgeFiles(path: string, { json, dryRun }: ChangeOptions): Promise<void> {
  const purged = await askChange(findSite(), PurgeFiles, { input: { path, dryRun } }, { path: '<path>' });
  if (json) return printJson(purged);
  const { files, bytes, kept } = purged;
  printLine(`${plural(files, 'file')}, ${formatBytes(bytes)}, ${dryRun ? 'would be ' : ''}purged`);
  if (kept > 0) printLine(`${plural(kept, 'file is', 'files are')} still on disk or in live requests, and passed over`);
}
