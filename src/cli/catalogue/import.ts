/** The command `import` imports catalogue rows from a file or from standard input. */
import { Readable } from 'node:stream';
import { type Command, Option } from 'commander';
import { messageOf } from '../../core/errors.js';
import { plural } from '../../core/text/plural.js';
import type { ImportResult } from '../../domain/import/import-incoming.js';
import type { RowSource } from '../../domain/import/import-rows.js';
import type { ListFormat } from '../../domain/import/lists.js';
import { operate } from '../connection/where.js';
import { toNumber } from '../terminal/arguments.js';
import { CommandError, UsageError } from '../terminal/failure.js';
import { dryRunOption, type OutputOptions, printJson, printLine } from '../terminal/output.js';
import type { ListOptions, OpenList } from './import-list.js';
import { createImportView } from './import-progress.js';
import { Rejects, type SkipOptions } from './rejects.js';

export function register(program: Command): void {
  program
    .command('import <file>')
    .option('--progress', 'report progress on standard error, even without a terminal')
    .addOption(
      new Option('--format <name>', 'format of the file; if omitted, csv or jsonl is detected').choices([
        'csv',
        'jsonl',
        'find',
        's3-inventory',
      ]),
    )
    .option('--volume <name>', 'volume that contains all files in the list')
    .option('--library <name>', 'library of a new volume (default: the first library)')
    .option('--prefix <directory>', 'prefix to add to each path in a list')
    .option('--strip <directory>', 'prefix to remove from each path in a list, before --prefix is added')
    .option('--spot <name>', 'storage spot of the files in the list')
    .option('--storage-class <names>', 'import only S3 objects of these classes, for example GLACIER,DEEP_ARCHIVE')
    .option('--skip-invalid', 'skip files whose names cannot be restored, and write these names to a file')
    .option(
      '--rejects <file>',
      'with --skip-invalid: file for the skipped names (default: <file>.rejects, which each import replaces)',
    )
    .option('--complete <directory>', 'withdraw files that are below the directory but not in the list')
    .option(
      '--max-withdrawn <percent>',
      'with --complete: fail if more than this percentage of files would be withdrawn (default: 5; 100: no limit)',
      toPercent,
    )
    .option(...dryRunOption)
    .action((file, options) => importFile(file, options));
}

const toPercent = toNumber('--max-withdrawn', { to: 100, expected: 'a whole number from 0 to 100' });

interface ImportOptions extends OutputOptions, ListOptions, SkipOptions {
  progress?: boolean;
  format?: 'csv' | 'jsonl' | ListFormat;
  complete?: string;
  maxWithdrawn?: number;
  dryRun?: boolean;
}

async function importFile(file: string, options: ImportOptions): Promise<void> {
  const { openList, openSource, refuseListOptions } = await import('./import-list.js');
  const { format = 'csv' } = options;
  const isList = format !== 'csv' && format !== 'jsonl';
  if (!isList) refuseListOptions(options);
  const source = await openSource(file);
  if (isList) return await importList(await openList(source, format, options), pathOfList(source), options);
  const { readRows, toJsonLines } = await import('../../domain/import/import-rows.js');
  const rejects = await Rejects.open(options, pathOfList(source));
  const rows = (meter: Meter) => {
    const all = readRows(meter(source.read()));
    return rejects ? rejects.filter(all) : all;
  };
  const body = (meter: Meter) => (rejects ? toBody(toJsonLines(rows(meter))) : meter(source.read()));
  const bodySize = rejects ? undefined : source.size;
  printImport(await send(options, { size: source.size, rows, body, bodySize, rejects }), options, { rejects });
}

const toBody = (lines: AsyncIterable<string>) => Readable.from(lines, { objectMode: false });

/**
 * Returns the path of the imported list; undefined for standard input. By default, the file of rejects is in the same
 * directory.
 */
const pathOfList = ({ file }: { file: string }) => (file === '-' ? undefined : file);

/**
 * Imports a list that another system wrote. If a gateway runs the import, sends parsed rows to the gateway, which
 * cannot read files on this host.
 */
async function importList(
  { rows, size, skipped, nameLines }: OpenList,
  file: string | undefined,
  options: ImportOptions,
): Promise<void> {
  const { toJsonLines } = await import('../../domain/import/import-rows.js');
  const rejects = await Rejects.open(options, file, nameLines);
  const accepted = (meter: Meter) => (rejects ? rejects.filter(rows(meter)) : rows(meter));
  const body = (meter: Meter) => toBody(toJsonLines(accepted(meter)));
  const sending = { size, rows: accepted, body, bodySize: undefined, rejects };
  const result = await send(options, sending).catch((error: unknown) => {
    const [before, after] = [messageOf(error), nameLines(messageOf(error))];
    throw before === after ? error : new CommandError(after);
  });
  printImport(result, options, { rejects, skipped: Object.fromEntries(skipped) });
}

type Meter = (source: Readable) => Readable;

interface Sending {
  size: number | undefined;
  rows(meter: Meter): RowSource;
  body(meter: Meter): Readable;
  bodySize: number | undefined;
  rejects: Rejects | undefined;
}

async function send(options: ImportOptions, { size, rows, body, bodySize, rejects }: Sending): Promise<ImportResult> {
  const { progress, dryRun: isDryRun, skipInvalid } = options;
  if (options.maxWithdrawn !== undefined && options.complete === undefined) {
    throw new UsageError('--max-withdrawn needs --complete');
  }
  const view = createImportView({ size, isRequested: progress });
  let isImported = false;
  const sent = operate({
    local: async (ctx) => {
      const { importRows } = await import('../../domain/import/import.js');
      const { readComplete } = await import('../../domain/catalogue/withdrawals.js');
      const directory = options.complete;
      const complete =
        directory === undefined ? undefined : readComplete({ directory, mostPercent: options.maxWithdrawn });
      return await importRows(ctx, rows(view.meter), { complete, isDryRun, skipInvalid });
    },
    remote: async (url) => {
      const { sendFile } = await import('../connection/send-file.js');
      const target = `${url}/import${queryOf(options)}`;
      return await sendFile<ImportResult>(target, { url, source: body(view.meter), size: bodySize });
    },
  });
  try {
    const result = await sent;
    await rejects?.write(result.rejects ?? []);
    isImported = true;
    return result;
  } finally {
    view.end();
    await rejects?.end({ isImported });
  }
}

function queryOf({ complete, maxWithdrawn, dryRun, skipInvalid }: ImportOptions): string {
  const query = new URLSearchParams();
  if (complete !== undefined) query.set('complete', complete);
  if (maxWithdrawn !== undefined) query.set('maxWithdrawn', String(maxWithdrawn));
  if (dryRun) query.set('dryRun', 'true');
  if (skipInvalid) query.set('skipInvalid', 'true');
  return query.size === 0 ? '' : `?${query}`;
}

function printImport(
  { rejects: _, ...result }: ImportResult,
  options: OutputOptions & { dryRun?: boolean },
  { skipped, rejects }: { skipped?: Record<string, number>; rejects: Rejects | undefined },
): void {
  if (options.json) {
    printJson({ ...result, ...(skipped && { skipped }), ...rejects?.facts });
    return;
  }
  if (options.dryRun) printLine('nothing was imported; an import would make these changes:');
  printLine(`${plural(result.added, 'file')} added, ${result.updated} updated`);
  if (result.directories !== undefined) printLine(`modes of ${plural(result.directories, 'directory', 'directories')}`);
  for (const line of describeWithdrawn(result)) printLine(line);
  const { addedWithoutStage, addedWithoutCopy } = result;
  if (addedWithoutStage > 0) {
    printLine(
      `${plural(addedWithoutStage, 'new file')} without a stage in the list: added in stage U (on disk at the primary path)`,
    );
  }
  if (addedWithoutCopy > 0) {
    printLine(
      `${plural(addedWithoutCopy, 'new file')} added in stage T instead of A or R, because the restore area contains no copy`,
    );
  }
  for (const [kind, count] of Object.entries(skipped ?? {})) printLine(`skipped: ${count} ${kind}`);
  rejects?.print();
}

function describeWithdrawn({ withdrawn, known, reinstated, staysWithdrawn }: ImportResult): string[] {
  const lines: string[] = [];
  if (withdrawn !== undefined)
    lines.push(`${withdrawn} of ${known} files withdrawn, because the list does not contain them`);
  if (reinstated !== undefined)
    lines.push(
      `${plural(reinstated, 'withdrawn file')} restored to the catalogue, because the list contains them again`,
    );
  if (staysWithdrawn !== undefined) {
    lines.push(
      `${plural(staysWithdrawn, 'file stays', 'files stay')} withdrawn, because a command withdrew them: to restore them to the catalogue, run "tapegate reinstate"`,
    );
  }
  return lines;
}
