/** The command `plan` shows the current and planned work of the drives, or a request's position in the queue. */
import type { Command } from 'commander';
import { present } from '../../../clients/typescript/responses.js';
import { formatBytes } from '../../core/text/bytes.js';
import { plural } from '../../core/text/plural.js';
import { formatSpan } from '../../core/text/spans.js';
import {
  PlanDocument,
  type PlannedDriveFragment,
  type PlannedVolumeFragment,
  WaitingRequestDocument,
} from '../../generated/operations.js';
import { ask } from '../connection/gateway-client.js';
import { findSite } from '../connection/where.js';
import { readId, toNumber } from '../terminal/arguments.js';
import { type OutputOptions, printJson, printLine, printTable, printToStderr } from '../terminal/output.js';
import { formatEnd, formatFromNow, formatProblem, secondsBetween } from '../terminal/times.js';
import { requireRequest } from './request-files.js';

export function register(program: Command): void {
  program
    .command('plan [id]')
    .option('--limit <n>', 'show at most n volumes', toPageSize, 50)
    .action((id, options) => {
      const url = findSite();
      return id === undefined ? showPlan(url, options) : showPosition(url, readId(id), options);
    });
}

interface PlanOptions extends OutputOptions {
  limit: number;
}

async function showPlan(url: string, options: PlanOptions): Promise<void> {
  const plan = present((await ask(url, PlanDocument, { first: options.limit })).plan);
  const volumes = plan.queue.edges.map(({ node }) => node);
  if (options.json) {
    printJson({ ...plan, queue: volumes });
    if (plan.queue.pageInfo.hasNextPage) printToStderr(`${plural(volumes.length, 'volume')} shown; --limit shows more`);
    return;
  }
  printTable(
    ['DRIVE', 'HOST', 'STATUS'],
    plan.drives.map((drive) => [drive.name, drive.host, formatDrive(drive)]),
  );
  if (volumes.length > 0) {
    printLine('');
    printVolumes(plan.at, volumes);
  }
  const more = plan.queue.pageInfo.hasNextPage
    ? ` (${plural(volumes.length, 'volume')} shown; --limit shows more)`
    : '';
  printLine(`${plural(plan.filesWaiting, 'file waits', 'files wait')}, ${formatBytes(plan.bytesWaiting)}${more}`);
}

const toPageSize = toNumber('--limit', { from: 1, to: 1000, digits: 4, expected: 'from 1 to 1000' });

function formatDrive(drive: PlannedDriveFragment): string {
  if (drive.isOpen && drive.hasLibraryFailed) return 'the library has failed';
  if (!drive.isClaimed || drive.volumeName === null) {
    if (!drive.isOpen) return drive.suspensionMode === 'DRAINING' ? 'draining' : 'suspended';
    return drive.isClaimed ? 'idle' : 'no engine';
  }
  const rate = drive.bytesPerSecond ? `, ${formatBytes(Math.round(drive.bytesPerSecond))}/s` : '';
  return `reading ${drive.volumeName}: ${plural(drive.filesRunning, 'file')}, ${formatBytes(drive.bytesRunning)}${rate}${drive.isOpen ? '' : ', then suspended'}`;
}

function printVolumes(now: string, volumes: PlannedVolumeFragment[]): void {
  const fromNow = (time: string | null) => time && formatSpan(secondsBetween(now, time));
  printTable(
    ['POSITION', 'VOLUME', 'FILES', 'SIZE', 'USERS', 'DRIVE', 'START IN', 'END IN', 'REASON'],
    volumes.map((volume) => [
      volume.queuePosition,
      volume.volumeName,
      volume.fileCount,
      formatBytes(volume.bytes),
      formatUsers(volume.users.map(({ user }) => user)),
      volume.driveName,
      fromNow(volume.startsAt),
      fromNow(volume.endsAt),
      [
        volume.endsAt === null ? volume.reason : null,
        volume.problem && formatProblem(now, volume.problem, volume.nextTryAt),
      ]
        .filter(Boolean)
        .join('  '),
    ]),
  );
}

const MAX_NAMED = 3;

function formatUsers(users: string[]): string {
  const names = [...new Set(users)].sort();
  const more = names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : '';
  return `${names.slice(0, MAX_NAMED).join(', ')}${more}`;
}

async function showPosition(url: string, id: number, options: PlanOptions): Promise<void> {
  const { request } = await ask(url, WaitingRequestDocument, { id, first: options.limit });
  const { state, waiting } = requireRequest(id, request);
  const parts = waiting?.parts.edges.map(({ node }) => node) ?? [];
  const isCut = waiting?.parts.pageInfo.hasNextPage;
  const cut = `${plural(parts.length, 'volume')} shown; --limit shows more`;
  if (options.json) {
    const { at: _, ...shown } = waiting ?? {};
    printJson({ requestId: id, state, waiting: waiting && { ...shown, parts } });
    if (isCut) printToStderr(cut);
    return;
  }
  if (!waiting) return printLine(`request ${id} is ${state.toLowerCase()}: no file is waiting`);
  const { at } = waiting;
  const nextTry = parts.find((part) => part.nextTryAt !== null)?.nextTryAt ?? null;
  const end = formatEnd(at, waiting.end, { why: waiting.endUnknown, nextTry });
  printLine(
    `request ${id}: ${plural(waiting.fileCount, 'file waits', 'files wait')}, ${formatBytes(waiting.bytes)}; ${end}`,
  );
  printTable(
    ['POSITION', 'VOLUME', 'FILES', 'SIZE', 'NEXT TRY', 'REASON'],
    parts.map((part) => [
      part.queuePosition,
      part.volumeName,
      part.fileCount,
      formatBytes(part.bytes),
      part.nextTryAt && formatFromNow(secondsBetween(at, part.nextTryAt)),
      part.explanation,
    ]),
  );
  if (isCut) printLine(cut);
}
