/** `migrate`: the database is brought to the current schema. */
import type { Command } from 'commander';
import type { Config } from '../config.js';
import { readEnvironment, withMigrated } from './context.js';
import { type OutputOptions, printJson, printLine } from './output.js';

export function registerMigrate(program: Command): void {
  program.command('migrate').action(async (options) => migrateDatabase(await readEnvironment(), options));
}

async function migrateDatabase(config: Config, options: OutputOptions): Promise<void> {
  const makes = config.databaseUrl === undefined ? 'schema' : 'database';
  const migrated = await withMigrated(config, makes, async (_ctx, names) => names);
  if (options.json) printJson({ migrated });
  else printLine(migrated.length === 0 ? 'the schema is current' : `applied: ${migrated.join(', ')}`);
}
