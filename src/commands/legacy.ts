/** `legacy`: who still asks without showing who it is. */
import type { Command } from 'commander';
import { limitHelp, readLimit } from './arguments.js';
import { askNodes, readUrl } from './client.js';
import { jsonOption, type OutputOptions, printRows } from './output.js';
import { formatTime } from './times.js';

export function registerLegacy(program: Command): void {
  program
    .command('legacy')
    .option(...jsonOption)
    .option('--limit <n>', limitHelp('list at most so many', '--json'))
    .action((options) => listLegacy(readUrl(), options));
}

interface LegacyOptions extends OutputOptions {
  limit?: string;
}

interface UseNode {
  day: string;
  endpoint: string;
  address: string;
  user: string;
  uses: bigint;
  refused: bigint;
  lastAt: string;
}

async function listLegacy(url: string, options: LegacyOptions): Promise<void> {
  const fields = 'day endpoint address user uses refused lastAt';
  const uses = await askNodes<UseNode>(url, ['legacyUses', fields], {}, readLimit(options));
  printRows(uses, options, {
    none: 'nobody has asked without showing who it is',
    header: ['DAY', 'ENDPOINT', 'FROM', 'USER', 'USES', 'REFUSED', 'LAST'],
    cells: ({ day, endpoint, address, user, uses: count, refused, lastAt }) => [
      day.slice(0, 10),
      endpoint,
      address || 'others',
      user || '-',
      String(count),
      String(refused),
      formatTime(lastAt),
    ],
  });
}
