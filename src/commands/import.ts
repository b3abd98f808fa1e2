/** `import`: rows of the catalogue from a file or from standard input. */
import { open } from 'node:fs/promises';
import type { Command } from 'commander';
import type { Config } from '../config.js';
import { readEnvironment, withContext } from './context.js';
import { jsonOption, type OutputOptions, printJson, printLine } from './output.js';

export function registerImport(program: Command): void {
  program
    .command('import <file>')
    .description('add or update catalogue rows from CSV or JSON Lines, plain or .gz; - is stdin')
    .option(...jsonOption)
    .action((file, options) => importFile(readEnvironment(), file, options));
}

async function importFile(config: Config, file: string, options: OutputOptions): Promise<void> {
  const { importRows } = await import('../operations/catalogue/import.js');
  const { readRows } = await import('../operations/catalogue/import-rows.js');
  const handle = file === '-' ? undefined : await open(file);
  const result = await withContext(config, (ctx) =>
    importRows(ctx, readRows(handle?.createReadStream() ?? process.stdin)),
  );
  if (options.json) printJson(result);
  else printLine(`${result.added} files added, ${result.updated} updated`);
}
