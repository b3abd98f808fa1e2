/** `mail`: the letters that wait to be sent. */
import type { Command } from 'commander';
import { limitHelp, readLimit } from './arguments.js';
import { askNodes, readUrl } from './client.js';
import { jsonOption, type OutputOptions, printRows } from './output.js';
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

const reasons: Record<MailNode['waitsFor'], string> = {
  ENGINE: 'an engine with a mail server',
  RETRY: 'the next try',
  USER_RATE: 'the rate of the user',
  RATE: 'the rate of all mail',
};

async function listMail(url: string, options: MailOptions): Promise<void> {
  const fields = 'user letters since waitsFor nextAt lastError';
  const users = await askNodes<MailNode>(url, ['waitingMail', fields], {}, readLimit(options));
  printRows(users, options, {
    none: 'no letter waits to be sent',
    header: ['USER', 'LETTERS', 'SINCE', 'WAIT FOR', 'NEXT', 'ERROR'],
    cells: ({ user, letters, since, waitsFor, nextAt, lastError }) => [
      user,
      String(letters),
      formatTime(since),
      reasons[waitsFor],
      formatTime(nextAt),
      lastError ?? '-',
    ],
  });
}
