/** `mail`: the letters that wait to be sent. */
import type { Command } from 'commander';
import { limitHelp, readLimit } from './arguments.js';
import { ask, askPages, type Page, readUrl } from './client.js';
import { jsonOption, type OutputOptions, printJson, printLine, printTable } from './output.js';
import { formatTime } from './times.js';

export function registerMail(program: Command): void {
  program
    .command('mail')
    .option(...jsonOption)
    .option('--limit <n>', limitHelp('list at most so many', '--json'))
    .action((options) => listMail(readUrl(), options));
}

interface MailOptions extends OutputOptions {
  limit?: string;
}

interface MailNode {
  user: string;
  letters: number;
  since: string;
  waitsFor: 'ENGINE' | 'RETRY' | 'USER_RATE' | 'RATE';
  nextAt: string;
  lastError: string | null;
}

const MAIL = `query ($first: Int, $after: String) {
  waitingMail(first: $first, after: $after) {
    edges { node { user letters since waitsFor nextAt lastError } } pageInfo { hasNextPage endCursor }
  }
}`;

const reasons: Record<MailNode['waitsFor'], string> = {
  ENGINE: 'an engine with a mail server',
  RETRY: 'the next try',
  USER_RATE: 'the rate of the user',
  RATE: 'the rate of all mail',
};

async function listMail(url: string, options: MailOptions): Promise<void> {
  const pages = askPages(readLimit(options), async (page) => {
    return (await ask<{ waitingMail: Page<MailNode> }>(url, MAIL, page)).waitingMail;
  });
  const users: MailNode[] = [];
  for await (const { edges } of pages) users.push(...edges.map(({ node }) => node));
  if (options.json) return users.forEach(printJson);
  if (users.length === 0) return printLine('no letter waits to be sent');
  printTable(
    ['USER', 'LETTERS', 'SINCE', 'WAIT FOR', 'NEXT', 'ERROR'],
    users.map(({ user, letters, since, waitsFor, nextAt, lastError }) => [
      user,
      String(letters),
      formatTime(since),
      reasons[waitsFor],
      formatTime(nextAt),
      lastError ?? '-',
    ]),
  );
}
