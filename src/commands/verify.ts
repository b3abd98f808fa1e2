/** `verify`: tape copies that could not be confirmed. */
import type { Command } from 'commander';
import { plural } from '../plural.js';
import { limitHelp, readLimit } from './arguments.js';
import { ask, askChange, askPages, type Page, readUrl } from './client.js';
import { UsageError } from './failure.js';
import { jsonOption, noteLine, type OutputOptions, printJson, printLine, printResult, printTable } from './output.js';
import { formatTime } from './times.js';

export function registerVerify(program: Command): void {
  program
    .command('verify [match]')
    .option(...jsonOption)
    .option('--again', 'have them tried again at once')
    .option('--staged', 'with --again: also those of libraries that stage files, which may cost a mount or money each')
    .option('--limit <n>', limitHelp('list at most so many'))
    .action((match, options: VerifyOptions) => {
      if (options.staged && !options.again) throw new UsageError('--staged is for --again');
      return options.again
        ? verifyAgain(readUrl(), match ?? '', options)
        : listVerifications(readUrl(), match, options);
    });
}

interface VerifyOptions extends OutputOptions {
  again?: boolean;
  staged?: boolean;
  limit?: string;
}

interface VerificationNode {
  file: { path: string; volume: { name: string } | null; position: bigint | null };
  attempts: number;
  errorClass: string;
  error: string;
  at: string;
  nextTry: string | null;
}

const LIST = `query ($match: String, $first: Int, $after: String) {
  verifications(match: $match, first: $first, after: $after) {
    totalCount
    edges { node { file { path volume { name } position } attempts errorClass error at nextTry } }
    pageInfo { hasNextPage endCursor }
  }
}`;

type VerificationPage = Page<VerificationNode> & { totalCount: number };

async function listVerifications(url: string, match: string | undefined, options: VerifyOptions): Promise<void> {
  const limit = Math.max(readLimit(options), 1);
  const pages = askPages(limit, async (page) => {
    return (await ask<{ verifications: VerificationPage }>(url, LIST, { match, ...page })).verifications;
  });
  const verifications: VerificationNode[] = [];
  let total = 0;
  for await (const { edges, totalCount } of pages) {
    verifications.push(...edges.map(({ node }) => node));
    total = totalCount;
  }
  const isCut = verifications.length < total;
  const cut = `${verifications.length} of ${plural(total, 'file')}; --limit shows more`;
  if (options.json) {
    verifications.forEach(printJson);
    if (isCut) noteLine(cut);
    return;
  }
  if (total === 0) return printLine('no tape copy has failed to be confirmed');
  printTable(
    ['PATH', 'VOLUME', 'POSITION', 'TRIES', 'NEXT TRY', 'WHY'],
    verifications.map(({ file, attempts, error, nextTry }) => [
      file.path,
      file.volume?.name ?? '-',
      String(file.position ?? '-'),
      String(attempts),
      nextTry === null ? 'none' : formatTime(nextTry),
      error,
    ]),
  );
  if (isCut) printLine(cut);
}

async function verifyAgain(url: string, match: string, options: VerifyOptions): Promise<void> {
  const call = ['verifyAgain(match: String!, staged: Boolean)', 'VerifyAgain { files }'] as const;
  const again = await askChange<{ files: number }>(url, call, { match, staged: options.staged });
  printResult(again, `${plural(again.files, 'file is tried again', 'files are tried again')}`, options);
}
