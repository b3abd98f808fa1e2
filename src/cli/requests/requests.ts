/** The command `requests` lists the requests of one user, or of all users. */
import type { Command } from 'commander';
import { describeNoQuota } from '../../core/errors.js';
import { formatBytes } from '../../core/text/bytes.js';
import { formatFiles, formatMissing, type RequestedFiles } from '../../core/text/requested-files.js';
import { QuotaDocument, type RequestState, RequestsDocument } from '../../generated/operations.js';
import { ask, askNodes } from '../connection/gateway-client.js';
import { findSite } from '../connection/where.js';
import { CommandError } from '../terminal/failure.js';
import { type OutputOptions, printRows } from '../terminal/output.js';
import { formatShortTime } from '../terminal/times.js';

export function register(program: Command): void {
  program
    .command('requests')
    .option('--quota <user>', 'list only requests of this user')
    .option('--all', 'include expired and cancelled requests')
    .action((options) => listRequests(findSite(), options));
}

interface ListOptions extends OutputOptions {
  quota?: string;
  all?: boolean;
}

/**
 * Throws an error if the user has no quota. Otherwise, the command would print an empty list for a mistyped user name.
 */
async function requireUser(url: string, user: string): Promise<void> {
  const { quota } = await ask(url, QuotaDocument, { user });
  if (!quota) throw new CommandError(describeNoQuota(user));
}

const ALL_STATES: RequestState[] = ['QUEUED', 'RESTORING', 'COMPLETED', 'PARTIAL', 'EXPIRED', 'CANCELLED'];

async function listRequests(url: string, options: ListOptions): Promise<void> {
  const filter = { quota: options.quota, states: options.all ? ALL_STATES : undefined };
  const requests = await askNodes(url, RequestsDocument, filter);
  if (requests.length === 0 && options.quota !== undefined) await requireUser(url, options.quota);
  printRows(requests, options, {
    present: ({ pattern: _, bytesOnDisk: __, ...row }) => row,
    header: ['ID', 'USER', 'STATE', 'ON DISK', 'SIZE', 'UNTIL', 'LABEL'],
    cells: (request) => [
      request.requestId,
      request.quota.user,
      request.state,
      describeFiles(request),
      formatBytes(request.bytesTotal),
      formatShortTime(request.retention),
      request.label,
    ],
  });
}

/** Describes how many of a request's files are on disk, such as `17 of 20 files, 1 failed; 2 unresolved paths`. */
function describeFiles(request: RequestedFiles & { filesFailed: number }): string {
  const failed = request.filesFailed > 0 ? `, ${request.filesFailed} failed` : '';
  return [formatFiles(request) + failed, formatMissing(request)].filter(Boolean).join('; ');
}
