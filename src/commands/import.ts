/** `import`: rows of the catalogue from a file or from standard input. */
import { open } from 'node:fs/promises';
import { pipeline, type Readable, type Transform } from 'node:stream';
import type { Command } from 'commander';
import type { ImportResult } from '../operations/catalogue/import-incoming.js';
import { createImportView } from './import-progress.js';
import { jsonOption, type OutputOptions, printJson, printLine } from './output.js';
import { operate } from './where.js';

export function registerImport(program: Command): void {
  program
    .command('import <file>')
    .description('add or update catalogue rows from CSV or JSON Lines, plain or .gz; - is stdin')
    .option(...jsonOption)
    .option('--progress', 'say on standard error how far it is, also where that is no terminal')
    .action((file, options) => importFile(file, options));
}

async function importFile(file: string, options: OutputOptions & { progress?: boolean }): Promise<void> {
  const handle = file === '-' ? undefined : await open(file);
  const stat = await handle?.stat();
  const size = stat?.isFile() ? stat.size : undefined;
  const view = createImportView({ size, isAsked: options.progress });
  const read = () => handle?.createReadStream() ?? process.stdin;
  const result = await operate({
    here: async (ctx) => {
      const { importRows } = await import('../operations/catalogue/import.js');
      const { readRows } = await import('../operations/catalogue/import-rows.js');
      const source = read();
      return await importRows(ctx, readRows(view ? compose(source, view.meter()) : source), { tell: view?.tell });
    },
    afar: async (url) => {
      const { sendFile } = await import('./send-file.js');
      return await sendFile<ImportResult>(`${url}/import`, { url, source: read(), size, view });
    },
  }).finally(() => view?.end());
  if (options.json) return printJson(result);
  printLine(`${result.added} files added, ${result.updated} updated`);
  for (const line of tellWithoutStage(result)) printLine(line);
}

/** What fails in the source fails what reads it. */
function compose(source: Readable, meter: Transform): Readable {
  return pipeline(source, meter, () => {}) as Transform;
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
