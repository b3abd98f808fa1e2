/** Commands that list running processes, waiting emails, and unauthenticated requests. */
import type { Command } from 'commander';
import { present } from '../../clients/typescript/responses.js';
import {
  LegacyUsesDocument,
  StatusDocument,
  WaitingMailDocument,
  type WaitingMailQuery,
} from '../generated/operations.js';
import { ask, askNodes } from './connection/gateway-client.js';
import { findSite } from './connection/where.js';
import { limitHelp, readLimit } from './terminal/arguments.js';
import { type OutputOptions, printJson, printRows, printToStderr } from './terminal/output.js';
import { formatTime } from './terminal/times.js';

export function register(program: Command): void {
  program.command('status').action((options) => showStatus(findSite(), options));
  program
    .command('mail')
    .option('--limit <n>', limitHelp('list at most n entries'))
    .action((options) => listMail(findSite(), options));
  program
    .command('legacy')
    .option('--limit <n>', limitHelp('list at most n entries'))
    .action((options) => listLegacy(findSite(), options));
}

const CONFIRM = '"tapegate resume clock database" confirms the database time';

async function showStatus(url: string, options: OutputOptions): Promise<void> {
  const { processes, suspensions, restoreDisks, fence } = await ask(url, StatusDocument);
  for (const { node } of present(suspensions).edges) {
    if (node.kind === 'CLOCK')
      printToStderr(
        `${node.reason || 'the database clock is suspended'}, since ${formatTime(node.since)} (${CONFIRM})`,
      );
  }
  for (const { node } of present(restoreDisks).edges) {
    if (node.comparison) printToStderr(describeComparison(node.mountpoint, node.comparison));
  }
  if (fence !== null)
    printToStderr(
      `this Tapegate is fenced: ${fence.reason} ("tapegate takeover" takes over the restore disks and libraries)`,
    );
  if (options.json) return printJson({ fence, processes });
  printRows(present(processes), options, {
    none: 'no gateway or engine is running',
    header: ['KIND', 'HOST', 'PID', 'VERSION', 'STATE', 'LAG', 'STARTED', 'SEEN'],
    cells: ({ kind, host, pid, version, isAlive, lagSeconds, startedAt, seenAt }) => [
      kind.toLowerCase(),
      host,
      pid,
      version,
      isAlive ? 'alive' : 'silent',
      `${lagSeconds.toFixed(1)} s`,
      formatTime(startedAt),
      formatTime(seenAt),
    ],
  });
}

const describeComparison = (
  mountpoint: string,
  { filesCompared, filesTotal }: { filesCompared: number; filesTotal: number },
) =>
  `disk ${mountpoint}: the disk has changed; checksums of its copies are being verified, ${filesCompared.toLocaleString('en-US')} of ${filesTotal.toLocaleString('en-US')} done`;

interface ListOptions extends OutputOptions {
  limit?: string;
}

const reasons: Record<NonNullable<WaitingMailQuery['list']>['edges'][number]['node']['waitsFor'], string> = {
  ENGINE: 'an engine with a mail server',
  RETRY: 'the next try',
  USER_RATE: "the user's rate limit",
  RATE: 'the rate limit for all email',
};

async function listMail(url: string, options: ListOptions): Promise<void> {
  printRows(await askNodes(url, WaitingMailDocument, {}, readLimit(options)), options, {
    none: 'no email is waiting',
    header: ['USER', 'EMAILS', 'SINCE', 'WAITING FOR', 'NEXT', 'ERROR'],
    cells: ({ user, emailCount: emails, since, waitsFor, nextAt, lastError }) => [
      user,
      emails,
      formatTime(since),
      reasons[waitsFor],
      formatTime(nextAt),
      lastError,
    ],
  });
}

async function listLegacy(url: string, options: ListOptions): Promise<void> {
  printRows(await askNodes(url, LegacyUsesDocument, {}, readLimit(options)), options, {
    none: 'no anonymous requests',
    header: ['DAY', 'ENDPOINT', 'FROM', 'USER', 'ACCEPTED', 'REJECTED', 'LAST'],
    cells: ({ day, endpoint, address, user, accepted, rejected, lastAt }) => [
      day.slice(0, 10),
      endpoint,
      address || 'others',
      user || '-',
      accepted,
      rejected,
      formatTime(lastAt),
    ],
  });
}
