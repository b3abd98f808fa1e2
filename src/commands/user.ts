/** `user forget`: what is kept of a person goes. */
import type { Command } from 'commander';
import { ForgetUser } from '../generated/command-operations.js';
import { plural } from '../plural.js';
import { askChange } from './client.js';
import { type OutputOptions, printJson, printLine } from './output.js';
import { findOperatedSite } from './where.js';

export function registerUser(program: Command): void {
  program
    .command('user')
    .command('forget <name>')
    .description('put a pseudonym in place of a user without live requests, and of its addresses, for good')
    .action((name, options) => forgetUser(name, options));
}

async function forgetUser(user: string, options: OutputOptions): Promise<void> {
  const result = await askChange(findOperatedSite(), ForgetUser, { user });
  if (options.json) return printJson(result);
  const { pseudonym, requests, letters, tokens, auditRows } = result;
  printLine(
    `${pseudonym} stands for the user now, in ${plural(requests, 'request')}, ${plural(letters, 'letter')}, ${plural(tokens, 'token')} and ${auditRows} rows of the audit`,
  );
  printLine('logs, backups and mail that was sent are elsewhere: src/operations/users/PERSONAL-DATA.md says where');
}
