/** `migrate`: the database is brought to the current schema. */
import type { Command } from 'commander';
import type { Config } from '../config.js';
import { readEnvironment, withContext } from './context.js';
import { type OutputOptions, printJson, printLine } from './output.js';

export function registerMigrate(program: Command): void {
  program.command('migrate').action(async (options) => migrateDatabase(await readEnvironment(), options));
}

async function migrateDatabase(config: Config, options: OutputOptions): Promise<void> {
  const makes = config.databaseUrl === undefined ? 'nothing' : 'database';
  const migrated = await withContext(config, async (_ctx, names) => names, makes);
  if (options.json) printJson({ migrated });
  else printLine(migrated.length === 0 ? 'the schema is current' : `applied: ${migrated.join(', ')}`);
}
