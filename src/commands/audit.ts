/** `audit`: who asked for which change, for people, and for what keeps it elsewhere. */
import type { Command } from 'commander';
import { parseZonedTime } from '../time.js';
import { limitHelp, readLimit } from './arguments.js';
import { ask, askPages, type Page, readUrl } from './client.js';
import { UsageError } from './failure.js';
import { jsonOption, noteLine, type OutputOptions, printable, printJson, printTable, printText } from './output.js';
import { formatTime } from './times.js';

export function registerAudit(program: Command): void {
  program
    .command('audit')
    .description('who asked for which change, and what came of it, oldest first')
    .option(...jsonOption)
    .option('--csv', 'print CSV for scripts, with a header')
    .option('--since <date>', 'from this time on: a UTC date or time')
    .option('--until <date>', 'before this time')
    .option('--who <name>', 'of this caller only')
    .option('--operation <name>', 'this only, such as createRequest')
    .option('--limit <n>', limitHelp('list at most so many', '--json, --csv'))
    .action((options: AuditOptions) => listAudit(readUrl(), options));
}

interface AuditOptions extends OutputOptions {
  csv?: boolean;
  since?: string;
  until?: string;
  who?: string;
  operation?: string;
  limit?: string;
}

interface AuditNode {
  at: string;
  who: string;
  way: string;
  tokenId: number | null;
  address: string | null;
  operation: string;
  objectKind: string;
  object: string;
  given: string;
  result: string;
  count: number;
}

const columns = [
  ...(['at', 'who', 'way', 'tokenId', 'address', 'operation'] as const),
  ...(['objectKind', 'object', 'given', 'result', 'count'] as const),
];

const LIST = `query ($who: String, $operation: String, $since: DateTime, $until: DateTime, $first: Int, $after: String) {
  audit(who: $who, operation: $operation, since: $since, until: $until, first: $first, after: $after) {
    edges { node { ${columns.join(' ')} } }
    pageInfo { hasNextPage endCursor }
  }
}`;

/** Page by page as it comes, however much there is. */
async function listAudit(url: string, options: AuditOptions): Promise<void> {
  const { json = false, csv = false, who, operation } = options;
  if (json && csv) throw new UsageError('give one of --json and --csv');
  const since = readTime('--since', options.since);
  const until = readTime('--until', options.until);
  const limit = readLimit({ ...options, json: json || csv });
  const pages = askPages(Math.max(limit, 1), async (page) => {
    const answer = await ask<{ audit: Page<AuditNode> }>(url, LIST, { who, operation, since, until, ...page });
    return answer.audit;
  });
  if (csv) printText(`${columns.join(',')}\n`);
  const rows: string[][] = [];
  let isCut = false;
  for await (const { edges, pageInfo } of pages) {
    isCut = pageInfo.hasNextPage;
    for (const { node } of edges) {
      if (json) printJson({ ...node, given: JSON.parse(node.given) });
      else if (csv) printText(`${columns.map((column) => formatCsv(node[column])).join(',')}\n`);
      else rows.push(cellsOf(node));
    }
  }
  if (!json && !csv) printTable(['AT', 'WHO', 'FROM', 'WHAT', 'OF', 'RESULT'], rows);
  if (isCut) noteLine('there is more; --limit shows it');
}

function cellsOf({ at, who, way, address, operation, objectKind, object, result, count }: AuditNode): string[] {
  const repeats = count > 1 ? ` (${count} times)` : '';
  const what = objectKind === 'NONE' ? '-' : `${objectKind.toLowerCase()} ${object}`.trimEnd();
  return [formatTime(at), who === '' ? '-' : who, `${address ?? '-'} (${way})`, operation, what, `${result}${repeats}`];
}

/**
 * RFC 4180, which knows no control characters: what was asked for in vain may be any text, and may move the cursor of a terminal. What a
 * spreadsheet would run as a formula is a text there.
 */
function formatCsv(value: string | number | null): string {
  if (value === null) return '';
  const shown = printable(String(value));
  const text = /^[=+@-]/.test(shown) ? `'${shown}` : shown;
  return /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function readTime(option: string, text: string | undefined): string | undefined {
  if (text === undefined || parseZonedTime(text) !== undefined) return text;
  throw new UsageError(`${option} must be YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS (UTC), not ${JSON.stringify(text)}`);
}
