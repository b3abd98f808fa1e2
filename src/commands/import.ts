/** `import`: rows of the catalogue from a file or from standard input. */
import { open } from 'node:fs/promises';
import type { Command } from 'commander';
import type { ImportResult } from '../operations/catalogue/import-incoming.js';
import { jsonOption, type OutputOptions, printJson, printLine } from './output.js';
import { operate } from './where.js';

export function registerImport(program: Command): void {
  program
    .command('import <file>')
    .description('add or update catalogue rows from CSV or JSON Lines, plain or .gz; - is stdin')
    .option(...jsonOption)
    .action((file, options) => importFile(file, options));
}

async function importFile(file: string, options: OutputOptions): Promise<void> {
  const handle = file === '-' ? undefined : await open(file);
  const read = () => handle?.createReadStream() ?? process.stdin;
  const result = await operate({
    here: async (ctx) => {
      const { importRows } = await import('../operations/catalogue/import.js');
      const { readRows } = await import('../operations/catalogue/import-rows.js');
      return await importRows(ctx, readRows(read()));
    },
    afar: async (url) => {
      const { sendFile } = await import('./send-file.js');
      const stat = await handle?.stat();
      const size = stat?.isFile() ? stat.size : undefined;
      return await sendFile<ImportResult>(`${url}/import`, { url, source: read(), size });
    },
  });
  if (options.json) return printJson(result);
  printLine(`${result.added} files added, ${result.updated} updated`);
  for (const line of tellWithoutStage(result)) printLine(line);
}

/** A row that leaves the stage out may mean a file that is on tape: what became of it is said. */
function tellWithoutStage({ addedWithoutStage, knownWithoutStage, addedWithoutCopy }: ImportResult): string[] {
  const lines: string[] = [];
  if (addedWithoutStage > 0) {
    lines.push(
      `${addedWithoutStage} new files without a stage are U: on disk at their primary place, and not recalled`,
    );
  }
  if (knownWithoutStage > 0) lines.push(`${knownWithoutStage} known files without a stage stay at the one they had`);
  if (addedWithoutCopy > 0)
    lines.push(`${addedWithoutCopy} new files at A or R are T: there is no copy of them in the restore area`);
  return lines;
}
