/** The command `verify` lists tape copies that failed verification, and verifies them again. */
import type { Command } from 'commander';
import { plural } from '../../core/text/plural.js';
import { VerificationsDocument, type VerificationsQuery, VerifyFilesDocument } from '../../generated/operations.js';
import { askChange, askPages } from '../connection/gateway-client.js';
import { findSite } from '../connection/where.js';
import { limitHelp, readLimit } from '../terminal/arguments.js';
import { UsageError } from '../terminal/failure.js';
import { type OutputOptions, printNote, printResult, printRows } from '../terminal/output.js';
import { formatTime } from '../terminal/times.js';

export function register(program: Command): void {
  program
    .command('verify [match]')
    .option('--again', 'retry the failed verifications now')
    .option(
      '--staged',
      'with --again: also verify copies in staging libraries (each read may need a mount or cost money)',
    )
    .option('--limit <n>', limitHelp('list at most n copies'))
    .action((match, options: VerifyOptions) => {
      if (options.staged && !options.again) throw new UsageError('--staged needs --again');
      return options.again
        ? verifyFiles(findSite(), match ?? '', options)
        : listVerifications(findSite(), match, options);
    });
}

interface VerifyOptions extends OutputOptions {
  again?: boolean;
  staged?: boolean;
  limit?: string;
}

async function listVerifications(url: string, match: string | undefined, options: VerifyOptions): Promise<void> {
  const limit = Math.max(readLimit(options), 1);
  const verifications: NonNullable<VerificationsQuery['list']>['edges'][number]['node'][] = [];
  let total = 0;
  for await (const { edges, totalCount } of askPages(url, VerificationsDocument, { match }, ({ list }) => list, {
    limit,
  })) {
    verifications.push(...edges.map(({ node }) => node));
    total = totalCount;
  }
  printRows(verifications, options, {
    none: 'no verification has failed',
    header: ['PATH', 'VOLUME', 'POSITION', 'TRIES', 'NEXT TRY', 'REASON'],
    cells: ({ file, attempts, error, nextTryAt: nextTry }) => [
      file.path,
      file.volume?.name ?? null,
      file.position,
      attempts,
      nextTry === null ? 'none' : formatTime(nextTry),
      error,
    ],
  });
  if (verifications.length < total) {
    printNote(`${verifications.length} of ${plural(total, 'file')}; --limit shows more`, options);
  }
}

async function verifyFiles(url: string, match: string, options: VerifyOptions): Promise<void> {
  const again = await askChange(url, VerifyFilesDocument, { match, staged: options.staged });
  printResult(
    again,
    `${plural(again.fileCount, 'file will be verified again', 'files will be verified again')}`,
    options,
  );
}
