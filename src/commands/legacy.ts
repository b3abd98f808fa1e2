/** `legacy`: who still asks without showing who it is. */
import type { Command } from 'commander';
import { limitHelp, readLimit } from './arguments.js';
import { ask, askPages, type Page, readUrl } from './client.js';
import { jsonOption, type OutputOptions, printJson, printLine, printTable } from './output.js';
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

const USES = `query ($first: Int, $after: String) {
  legacyUses(first: $first, after: $after) {
    edges { node { day endpoint address user uses refused lastAt } } pageInfo { hasNextPage endCursor }
  }
}`;

async function listLegacy(url: string, options: LegacyOptions): Promise<void> {
  const pages = askPages(readLimit(options), async (page) => {
    return (await ask<{ legacyUses: Page<UseNode> }>(url, USES, page)).legacyUses;
  });
  const uses: UseNode[] = [];
  for await (const { edges } of pages) uses.push(...edges.map(({ node }) => node));
  if (options.json) return uses.forEach(printJson);
  if (uses.length === 0) return printLine('nobody has asked without showing who it is');
  printTable(
    ['DAY', 'ENDPOINT', 'FROM', 'USER', 'USES', 'REFUSED', 'LAST'],
    uses.map(({ day, endpoint, address, user, uses: count, refused, lastAt }) => [
      day.slice(0, 10),
      endpoint,
      address || 'others',
      user || '-',
      String(count),
      String(refused),
      formatTime(lastAt),
    ]),
  );
}
