/** Commands that change files in the catalogue. */
import type { Command } from 'commander';
import { formatBytes } from '../../core/text/bytes.js';
import { plural } from '../../core/text/plural.js';
import {
  type ChosenFragment,
  PurgeFilesDocument,
  ReinstateFilesDocument,
  RenameFilesDocument,
  WithdrawFilesDocument,
} from '../../generated/operations.js';
import { askChange } from '../connection/gateway-client.js';
import { findSite } from '../connection/where.js';
import { dryRunOption, type OutputOptions, printJson, printLine, printResult } from '../terminal/output.js';
import { printAffected } from '../volume.js';

export function register(program: Command): void {
  program
    .command('withdraw <path>')
    .option('--reason <text>', 'reason shown to users who wait for the files')
    .option(...dryRunOption)
    .addHelpText('after', WITHDRAW_HELP)
    .action(async (path, options) => {
      const input = { path, dryRun: options.dryRun, reason: options.reason };
      printChosen(
        await askChange(findSite(), WithdrawFilesDocument, { input }, { path: '<path>' }),
        'withdrawn',
        options,
      );
    });
  program
    .command('reinstate <path>')
    .option(...dryRunOption)
    .action(async (path, options) => {
      const input = { path, dryRun: options.dryRun };
      printChosen(
        await askChange(findSite(), ReinstateFilesDocument, { input }, { path: '<path>' }),
        'restored to the catalogue',
        options,
      );
    });
  program
    .command('rename <from> <to>')
    .option(
      '--in-library',
      'record that the files are already renamed in the library (only for libraries that find files by path)',
    )
    .option(...dryRunOption)
    .addHelpText('after', RENAME_HELP)
    .action(async (from, to, options) => {
      const input = { from, to, dryRun: options.dryRun, inLibrary: options.inLibrary };
      const own = { from: '<from>', to: '<to>' };
      printChosen(await askChange(findSite(), RenameFilesDocument, { input }, own), 'renamed', options);
    });
  program
    .command('purge <path>')
    .option(...dryRunOption)
    .addHelpText('after', PURGE_HELP)
    .action((path, options) => purgeFiles(path, options));
}

const WITHDRAW_HELP = `
Users who wait for a file receive the reason. A file that a drive is already
reading is still restored. Copies on disk stay until no request contains the
file. "tapegate reinstate" restores withdrawn files to the catalogue.`;

const RENAME_HELP = `
Requests keep the files, and copies on disk stay where they are. Libraries that
find files by path still receive the old paths, unless you give --in-library.`;

const PURGE_HELP = `
A purge cannot be undone. It skips files that are on disk or in an active
request. To purge these files, repeat the command later.`;

interface ChangeOptions extends OutputOptions {
  dryRun?: boolean;
}

function printChosen(chosen: ChosenFragment, done: string, { json = false, dryRun }: ChangeOptions): void {
  const { fileCount, bytes, requestCount } = chosen;
  const line = `${plural(fileCount, 'file')}, ${formatBytes(bytes)}, ${dryRun ? 'would be ' : ''}${done}`;
  printResult(chosen, line, { json });
  if (!json) printAffected(requestCount);
}

async function purgeFiles(path: string, { json, dryRun }: ChangeOptions): Promise<void> {
  const purged = await askChange(findSite(), PurgeFilesDocument, { input: { path, dryRun } }, { path: '<path>' });
  if (json) return printJson(purged);
  const { fileCount: files, bytes, filesKept: kept } = purged;
  printLine(`${plural(files, 'file')}, ${formatBytes(bytes)}, ${dryRun ? 'would be ' : ''}purged`);
  if (kept > 0) printLine(`${plural(kept, 'file')} skipped: still on disk or in active requests`);
}
