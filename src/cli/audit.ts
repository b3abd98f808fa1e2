/** The command `audit` lists the entries of the audit log as a table, CSV or JSON. */
import type { Command } from 'commander';
import { present } from '../../clients/typescript/responses.js';
import { printable } from '../core/text/printable.js';
import {
  AuditCursorsDocument,
  type AuditCursorsQuery,
  type AuditCursorsQueryVariables,
  AuditDocument,
  type AuditRowFragment,
} from '../generated/operations.js';
import { ask, askNow, askPages, PAGE_SIZE } from './connection/gateway-client.js';
import { findSite } from './connection/where.js';
import { limitHelp, readLimit, readPast } from './terminal/arguments.js';
import { UsageError } from './terminal/failure.js';
import { type OutputOptions, printJson, printTable, printText, printToStderr } from './terminal/output.js';
import { formatTime } from './terminal/times.js';

export function register(program: Command): void {
  program
    .command('audit')
    .option('--csv', 'print CSV with a header')
    .option('--since <date>', 'list entries since a UTC date or time, or for the last period, such as 10m or 3d')
    .option(
      '--until <date>',
      'list entries before a UTC date or time, or entries older than a period, such as 10m or 3d',
    )
    .option('--caller <name>', 'list only entries of this caller')
    .option('--operation <name>', 'list only this operation, for example createRequest')
    .option('--limit <n>', limitHelp('list only the latest n entries', '--json or --csv'))
    .action((options: AuditOptions) => listAudit(findSite(), options));
}

interface AuditOptions extends OutputOptions {
  csv?: boolean;
  since?: string;
  until?: string;
  caller?: string;
  operation?: string;
  limit?: string;
}

const columns = [
  ...(['at', 'caller', 'authentication', 'tokenId', 'address', 'operation'] as const),
  ...(['objectKind', 'object', 'input', 'result', 'errorCode', 'count'] as const),
];

async function listAudit(url: string, options: AuditOptions): Promise<void> {
  const { json = false, csv = false, caller, operation } = options;
  if (json && csv) throw new UsageError('give either --json or --csv, not both');
  const since = await readBound(url, '--since', options.since);
  const until = await readBound(url, '--until', options.until);
  const limit = readLimit({ ...options, json: json || csv });
  const filter = { caller, operation, since, until };
  const from = limit === Number.POSITIVE_INFINITY ? null : await findLatest(url, filter, limit);
  const pages = askPages(url, AuditDocument, filter, ({ list }) => list, { limit, from });
  if (csv) printText(`${columns.join(',')}\n`);
  const rows: string[][] = [];
  for await (const { edges } of pages) {
    for (const { node } of edges) {
      if (json) printJson({ ...node, input: JSON.parse(node.input) });
      else if (csv) printText(`${columns.map((column) => formatCsv(node[column])).join(',')}\n`);
      else rows.push(cellsOf(node));
    }
  }
  if (!json && !csv) printTable(['AT', 'CALLER', 'FROM', 'OPERATION', 'OBJECT', 'RESULT'], rows);
  if (from !== null) printToStderr('older entries are not shown; --limit shows more');
}

/** Returns the cursor before the latest `count` entries; null if the log has no earlier entries. */
async function findLatest(url: string, filter: AuditCursorsQueryVariables, count: number): Promise<string | null> {
  let before: string | null = null;
  for (let left = count + 1; ; ) {
    const answer: AuditCursorsQuery = await ask(url, AuditCursorsDocument, {
      ...filter,
      last: Math.min(PAGE_SIZE, left),
      before,
    });
    const { edges, pageInfo } = present(answer.auditEntries);
    left -= edges.length;
    if (left <= 0) return edges[0]?.cursor ?? null;
    if (!pageInfo.hasPreviousPage) return null;
    before = pageInfo.startCursor;
  }
}

function cellsOf(row: AuditRowFragment): string[] {
  const { at, caller, authentication, address, operation, objectKind, object, result, errorCode, count } = row;
  const isDrain = operation === 'suspend' && JSON.parse(row.input).mode === 'DRAINING';
  const repeats = count > 1 ? ` (${count} times)` : '';
  const target = objectKind === 'NONE' ? '-' : `${objectKind.toLowerCase()} ${object ?? ''}`.trimEnd();
  return [
    formatTime(at),
    caller ?? '-',
    `${address ?? '-'} (${authentication.toLowerCase()})`,
    isDrain ? `${operation} (draining)` : operation,
    target,
    `${errorCode ?? result}${repeats}`,
  ];
}

/**
 * Returns a value as a CSV field (RFC 4180). Replaces control characters, because rejected input can contain terminal
 * escape sequences. Puts an apostrophe before a value that a spreadsheet would run as a formula.
 */
function formatCsv(value: string | number | null): string {
  if (value === null) return '';
  const shown = printable(String(value));
  const text = /^[=+@-]/.test(shown) ? `'${shown}` : shown;
  return /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

async function readBound(url: string, option: string, text: string | undefined): Promise<string | undefined> {
  return text === undefined ? undefined : await readPast(option, text, () => askNow(url));
}
