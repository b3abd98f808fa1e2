/** `plan`: what the drives do and will do, and where a request stands in it. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import { plural } from '../plural.js';
import { readId, readNumber } from './arguments.js';
import { ask, readUrl } from './client.js';
import { UnknownRequestError } from './failure.js';
import { jsonOption, noteLine, type OutputOptions, printJson, printLine, printTable } from './output.js';
import { type EndRange, formatEnd, formatFromNow, formatSpan, secondsBetween } from './times.js';

export function registerPlan(program: Command): void {
  program
    .command('plan [id]')
    .option(...jsonOption)
    .option('--limit <n>', 'show at most so many volumes', '50')
    .action((id, options) => {
      const url = readUrl();
      return id === undefined ? showPlan(url, options) : showPlace(url, readId(id), options);
    });
}

interface PlanOptions extends OutputOptions {
  limit: string;
}

interface PlanNode {
  at: string;
  drives: {
    name: string;
    isClaimed: boolean;
    host: string | null;
    isOpen: boolean;
    volume: string | null;
    filesRunning: number;
    bytesRunning: bigint;
    rate: number | null;
  }[];
  filesWaiting: number;
  bytesWaiting: bigint;
  queue: { edges: { node: VolumeNode }[]; pageInfo: { hasNextPage: boolean } };
}

interface VolumeNode {
  place: number | null;
  volume: string;
  files: number;
  bytes: bigint;
  users: { user: string }[];
  drive: string | null;
  isMounted: boolean;
  reason: string | null;
  problem: string | null;
  start: string | null;
  end: string | null;
}

const PLAN = `query ($first: Int) { plan {
  at filesWaiting bytesWaiting
  drives { name isClaimed host isOpen volume filesRunning bytesRunning rate }
  queue(first: $first) {
    edges { node { place volume files bytes users { user files bytes } drive isMounted reason problem start end } }
    pageInfo { hasNextPage }
  }
} }`;

async function showPlan(url: string, options: PlanOptions): Promise<void> {
  const first = readPageSize(options.limit);
  const { plan } = await ask<{ plan: PlanNode }>(url, PLAN, { first });
  const volumes = plan.queue.edges.map(({ node }) => node);
  if (options.json) {
    printJson({ ...plan, queue: volumes });
    if (plan.queue.pageInfo.hasNextPage) noteLine(`${plural(volumes.length, 'volume')} shown; --limit shows more`);
    return;
  }
  printTable(
    ['DRIVE', 'HOST', 'DOES'],
    plan.drives.map((drive) => [drive.name, drive.host ?? '-', formatDrive(drive)]),
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

/** The server takes no page of nothing, and none longer. */
function readPageSize(text: string): number {
  return readNumber('--limit', text, { from: 1, to: 1000, digits: 4, expected: 'from 1 to 1000' });
}

function formatDrive(drive: PlanNode['drives'][number]): string {
  if (!drive.isOpen) return 'is out of service';
  if (!drive.isClaimed) return 'belongs to no engine';
  if (drive.volume === null) return 'is idle';
  const rate = drive.rate ? `, ${formatBytes(Math.round(drive.rate))}/s` : '';
  return `reads ${drive.volume}: ${plural(drive.filesRunning, 'file')}, ${formatBytes(drive.bytesRunning)} in hand${rate}`;
}

function printVolumes(now: string, volumes: VolumeNode[]): void {
  const end = Math.max(...volumes.map((volume) => (volume.end ? secondsBetween(now, volume.end) : 0)));
  const fromNow = (time: string | null) => (time ? formatSpan(secondsBetween(now, time)) : '-');
  printTable(
    ['PLACE', 'VOLUME', 'FILES', 'SIZE', 'USERS', 'DRIVE', 'FROM', 'TO', `NOW TO ${formatSpan(end).toUpperCase()}`],
    volumes.map((volume) => [
      formatPlace(volume.place),
      volume.volume,
      String(volume.files),
      formatBytes(volume.bytes),
      formatUsers(volume.users.map(({ user }) => user)),
      volume.drive ?? '-',
      fromNow(volume.start),
      fromNow(volume.end),
      [formatBar(now, volume, end) ?? volume.reason, volume.problem].filter(Boolean).join('  '),
    ]),
  );
}

function formatPlace(place: number | null): string {
  return place === null ? '-' : String(place);
}

const MAX_NAMED = 3;

function formatUsers(users: string[]): string {
  const names = [...new Set(users)];
  const more = names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : '';
  return `${names.slice(0, MAX_NAMED).join(', ')}${more}`;
}

const BAR_WIDTH = 30;

function formatBar(now: string, volume: VolumeNode, end: number): string | undefined {
  if (!volume.start || !volume.end) return undefined;
  const at = (time: string) => Math.round((BAR_WIDTH * Math.max(secondsBetween(now, time), 0)) / Math.max(end, 1));
  const from = Math.min(at(volume.start), BAR_WIDTH - 1);
  return `${'·'.repeat(from)}${'█'.repeat(Math.max(at(volume.end) - from, 1))}`.padEnd(BAR_WIDTH, '·');
}

interface WaitingNode {
  files: number;
  bytes: bigint;
  place: number | null;
  end: EndRange | null;
  endUnknown: string | null;
  parts: {
    edges: {
      node: {
        volume: string | null;
        place: number | null;
        reason: string;
        explanation: string;
        files: number;
        bytes: bigint;
        nextTry: string | null;
      };
    }[];
    pageInfo: { hasNextPage: boolean };
  };
}

const REQUEST = `query ($id: Int!, $first: Int) { plan { at } request(id: $id) { requestId state waiting {
  files bytes place end { earliest planned latest } endUnknown
  parts(first: $first) {
    edges { node { volume place reason explanation files bytes nextTry } } pageInfo { hasNextPage }
  }
} } }`;

async function showPlace(url: string, id: number, options: PlanOptions): Promise<void> {
  type Answer = { plan: { at: string }; request: { state: string; waiting: WaitingNode | null } | null };
  const { plan, request } = await ask<Answer>(url, REQUEST, { id, first: readPageSize(options.limit) });
  if (!request) throw new UnknownRequestError(id);
  const { state, waiting } = request;
  const parts = waiting?.parts.edges.map(({ node }) => node) ?? [];
  const isCut = waiting?.parts.pageInfo.hasNextPage;
  const cut = `${plural(parts.length, 'volume')} shown; --limit shows more`;
  if (options.json) {
    printJson({ requestId: id, state, waiting: waiting && { ...waiting, parts } });
    if (isCut) noteLine(cut);
    return;
  }
  if (!waiting) return printLine(`request ${id} is ${state.toLowerCase()}: nothing of it waits`);
  const nextTry = parts.find((part) => part.nextTry !== null)?.nextTry ?? null;
  const end = formatEnd(plan.at, waiting.end, { why: waiting.endUnknown, nextTry });
  printLine(
    `request ${id}: ${plural(waiting.files, 'file waits', 'files wait')}, ${formatBytes(waiting.bytes)}; ${end}`,
  );
  printTable(
    ['PLACE', 'VOLUME', 'FILES', 'SIZE', 'NEXT TRY', 'WHY'],
    parts.map((part) => [
      formatPlace(part.place),
      part.volume ?? '-',
      String(part.files),
      formatBytes(part.bytes),
      part.nextTry ? formatFromNow(secondsBetween(plan.at, part.nextTry)) : '-',
      part.explanation,
    ]),
  );
  if (isCut) printLine(cut);
}
