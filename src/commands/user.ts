/** `user forget`: what is kept of a person goes. */
import type { Command } from 'commander';
import type { Config } from '../config.js';
import { readEnvironment, withContext } from './context.js';
import { jsonOption, type OutputOptions, printJson, printLine } from './output.js';

export function registerUser(program: Command): void {
  program
    .command('user')
    .description('people')
    .command('forget <name>')
    .description('put a pseudonym in place of a user without live requests, and of its addresses, for good')
    .option(...jsonOption)
    .action((name, options) => forgetUser(readEnvironment(), name, options));
}

async function forgetUser(config: Config, name: string, options: OutputOptions): Promise<void> {
  const users = await import('../operations/users/forget.js');
  const result = await withContext(config, (ctx) => users.forgetUser(ctx, name));
  if (options.json) return printJson(result);
  const { pseudonym, requests, letters, tokens, auditRows } = result;
  printLine(
    `${pseudonym} stands for the user now, in ${requests} requests, ${letters} letters, ${tokens} tokens and ${auditRows} rows of the audit`,
  );
  printLine('logs, backups and mail that was sent are elsewhere: src/operations/users/PERSONAL-DATA.md says where');
}
