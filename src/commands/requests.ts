/** `requests`: the requests of a user, or of all. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import { ask, askNodes, readUrl } from './client.js';
import { CommandError } from './failure.js';
import { jsonOption, type OutputOptions, printRows } from './output.js';
import { formatShortTime } from './times.js';

export function registerRequests(program: Command): void {
  program
    .command('requests')
    .option(...jsonOption)
    .option('--quota <user>', 'only of this user')
    .option('--all', 'expired and cancelled ones too')
    .action((options) => listRequests(readUrl(), options));
}

interface ListOptions extends OutputOptions {
  quota?: string;
  all?: boolean;
}

interface RequestNode {
  requestId: number;
  label: string;
  state: string;
  requestDate: string;
  retention: string;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
  bytesTotal: bigint;
  quota: { user: string };
}

const FIELDS =
  'requestId label state requestDate retention filesTotal filesOnDisk filesFailed bytesTotal quota { user }';

/** A user without requests is told from one that there is not. */
async function requireUser(url: string, user: string): Promise<void> {
  const query = 'query ($user: String!) { quota(user: $user) { user } }';
  const { quota } = await ask<{ quota: object | null }>(url, query, { user });
  if (!quota) throw new CommandError(`there is no quota for user ${JSON.stringify(user)}`);
}

const ALL_STATES = ['QUEUED', 'RESTORING', 'COMPLETED', 'PARTIAL', 'EXPIRED', 'CANCELLED'];

async function listRequests(url: string, options: ListOptions): Promise<void> {
  const filter = { quota: options.quota, states: options.all ? ALL_STATES : undefined };
  const list = 'requests(quota: String, states: [RequestState!])';
  const requests = await askNodes<RequestNode>(url, [list, FIELDS], filter);
  if (requests.length === 0 && options.quota !== undefined) await requireUser(url, options.quota);
  printRows(requests, options, {
    header: ['ID', 'USER', 'STATE', 'ON DISK', 'FAILED', 'FILES', 'SIZE', 'UNTIL', 'LABEL'],
    cells: (request) => [
      String(request.requestId),
      request.quota.user,
      request.state,
      String(request.filesOnDisk),
      String(request.filesFailed),
      String(request.filesTotal),
      formatBytes(request.bytesTotal),
      formatShortTime(request.retention),
      request.label,
    ],
  });
}
