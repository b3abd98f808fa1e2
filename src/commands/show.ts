/** `show`: one request, and how it goes with each file of it that is not on disk. */
import type { Command } from 'commander';
import { formatBytes } from '../bytes.js';
import { plural } from '../plural.js';
import { limitHelp, readId, readLimit } from './arguments.js';
import { ask, askPages, type Page, readUrl } from './client.js';
import { UnknownRequestError } from './failure.js';
import { findMissing } from './missing.js';
import { jsonOption, noteLine, type OutputOptions, printFacts, printJson, printLine, printTable } from './output.js';
import {
  atPrimaryPlace,
  createNullOption,
  createPathsOption,
  hasLetGo,
  type PathsOptions,
  printPaths,
  whereTold,
} from './places.js';
import { formatSuspension } from './suspensions.js';
import { formatTime } from './times.js';
import { readReasons } from './waiting.js';

export function registerShow(program: Command): void {
  program
    .command('show <id>')
    .option(...jsonOption)
    .addOption(createPathsOption())
    .addOption(createNullOption())
    .option('--limit <n>', limitHelp('show at most so many files', '--json, --print-paths'))
    .action((id, options) =>
      options.printPaths ? printPaths(readUrl(), readId(id), options) : showRequest(readUrl(), readId(id), options),
    );
}

interface ShowOptions extends OutputOptions, PathsOptions {
  limit?: string;
}

interface HoldNode {
  state: 'WAITING' | 'FAILED';
  recallState: 'WAITING' | 'RUNNING' | null;
  attempts: number | null;
  lastErrorClass: string | null;
  lastError: string | null;
  nextTry: string | null;
  file: { path: string; size: bigint; volume: { name: string; suspension: SuspensionNode | null } | null };
}

interface SuspensionNode {
  mode: string;
  reason: string;
}

interface RequestNode {
  requestId: number;
  quota: { user: string; suspension: SuspensionNode | null };
  state: string;
  label: string;
  pattern: string;
  priority: number;
  requestDate: string;
  retention: string;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
  filesUnknown: number;
  filesRefused: number;
  filesOverLimit: number;
  filesReleased: number;
  bytesTotal: bigint;
  bytesOnDisk: bigint;
  restoredBelow: string[];
  filesAtPrimaryPlace: number;
}

const REQUEST = `query ($id: Int!) { request(id: $id) {
  requestId quota { user suspension { mode reason } } state label pattern priority requestDate retention
  filesTotal filesOnDisk filesFailed filesUnknown filesRefused filesOverLimit filesReleased bytesTotal bytesOnDisk
  restoredBelow filesAtPrimaryPlace
} }`;

const HOLDS = `query ($id: Int!, $first: Int!, $after: String) { request(id: $id) {
  holds(states: [WAITING, FAILED], first: $first, after: $after) {
    edges { node {
      state recallState attempts lastErrorClass lastError nextTry
      file { path size volume { name suspension { mode reason } } }
    } } pageInfo { hasNextPage endCursor }
  }
} }`;

async function showRequest(url: string, id: number, options: ShowOptions): Promise<void> {
  const limit = readLimit(options);
  const { request } = await ask<{ request: RequestNode | null }>(url, REQUEST, { id });
  if (!request) throw new UnknownRequestError(id);
  if (options.json) printJson(request);
  else printRequest(request, { reasons: await readReasons(url, id), wish: await describeWish(url, request) });
  const { holds, isWhole } = await readHolds(url, id, limit);
  const cut = `the first ${holds.length === 1 ? 'file that is' : `${holds.length} files that are`} not on disk; --limit shows more`;
  if (options.json) {
    holds.forEach(printJson);
    if (!isWhole) noteLine(cut);
    return;
  }
  if (holds.length > 0) {
    printLine('');
    printHolds(holds);
  }
  if (!isWhole) printLine(cut);
  const missing = await findMissing(url, id);
  if (missing.length > 0) printLine('');
  for (const line of missing) printLine(line);
}

const FIRST = `query ($id: Int!) { request(id: $id) {
  holds(first: 1) { edges { node { file { path } } } } awaited(first: 1) { edges { node { path } } }
} }`;

/** What was asked for, where its label does not say it: one that nobody gave is the pattern or the first path. */
async function describeWish(url: string, request: RequestNode): Promise<string | undefined> {
  const { requestId: id, pattern, label } = request;
  if (pattern === label) return undefined;
  if (pattern !== '') return `all files with ${JSON.stringify(pattern)} in their path`;
  type Paths = { holds: { edges: { node: PathNode }[] }; awaited: { edges: { node: { path: string } }[] } };
  const { request: first } = await ask<{ request: Paths | null }>(url, FIRST, { id });
  const path = first?.holds.edges[0]?.node.file.path ?? first?.awaited.edges[0]?.node.path;
  const { filesTotal, filesReleased, filesUnknown, filesRefused, filesOverLimit } = request;
  const more = filesTotal + filesReleased + filesUnknown + filesRefused + filesOverLimit - 1;
  if (path === undefined || (path === label && more === 0)) return undefined;
  return more > 0 ? `${path} and ${plural(more, 'other path')}` : path;
}

interface PathNode {
  file: { path: string };
}

function printRequest(
  request: RequestNode,
  { reasons, wish }: { reasons: readonly string[]; wish: string | undefined },
): void {
  const { suspension, user } = request.quota;
  const facts: [string, string][] = [
    [`REQUEST ${request.requestId}`, request.state],
    ['LABEL', request.label],
    ...(wish === undefined ? [] : [['ASKED FOR', wish] satisfies [string, string]]),
    ['USER', suspension ? `${user}, ${formatSuspension(suspension)}` : user],
    ['PRIORITY', String(request.priority)],
    ['ASKED', formatTime(request.requestDate)],
    ['UNTIL', formatTime(request.retention)],
    [
      hasLetGo(request) ? 'HAD ON DISK' : 'ON DISK',
      `${request.filesOnDisk} of ${plural(request.filesTotal, 'file')}, ${formatBytes(request.bytesOnDisk)} of ${formatBytes(request.bytesTotal)}${atPrimaryPlace(request.filesAtPrimaryPlace)}`,
    ],
    ...(hasLetGo(request) ? [] : request.restoredBelow.map((mountpoint): [string, string] => ['BELOW', mountpoint])),
    ...(isElsewhere(request) ? [['WHERE', whereTold(request.requestId)] satisfies [string, string]] : []),
    ...reasons.map((reason): [string, string] => ['WAITS', reason]),
    ['FAILED', `${plural(request.filesFailed, 'file')}`],
    ['UNKNOWN', `${plural(request.filesUnknown, 'path')}`],
    ['REFUSED', `${plural(request.filesRefused, 'file')} without room in the quota`],
  ];
  printFacts(facts);
}

/** Of a request that lives, copies are not all at their archive paths. */
function isElsewhere(request: RequestNode): boolean {
  const { restoredBelow, filesOnDisk, filesAtPrimaryPlace } = request;
  return !hasLetGo(request) && restoredBelow.length === 0 && filesOnDisk > filesAtPrimaryPlace;
}

async function readHolds(url: string, id: number, limit: number): Promise<{ holds: HoldNode[]; isWhole: boolean }> {
  const pages = askPages(limit, async (page) => {
    const { request } = await ask<{ request: { holds: Page<HoldNode> } | null }>(url, HOLDS, { id, ...page });
    if (!request) throw new UnknownRequestError(id);
    return request.holds;
  });
  const holds: HoldNode[] = [];
  let isWhole = false;
  for await (const { edges, pageInfo } of pages) {
    holds.push(...edges.map(({ node }) => node));
    isWhole = !pageInfo.hasNextPage;
  }
  return { holds, isWhole };
}

function printHolds(holds: HoldNode[]): void {
  printTable(
    ['FILE', 'STATE', 'TRIES', 'NEXT TRY', 'WHY'],
    holds.map((hold) => [
      hold.file.path,
      hold.recallState === 'RUNNING' ? 'RUNNING' : hold.state,
      formatTries(hold),
      hold.nextTry === null ? '' : formatTime(hold.nextTry),
      formatReasons(hold),
    ]),
  );
}

/** Of a file that was given up nobody counts them any more: its reason ends with them where it was tried more than once. */
function formatTries({ attempts, lastError }: HoldNode): string {
  return attempts === null ? (/; given up after (\d+) tries$/.exec(lastError ?? '')?.[1] ?? '') : String(attempts);
}

/** What keeps a file from its place, the most telling first. */
function formatReasons({ state, lastErrorClass, lastError, file: { volume } }: HoldNode): string {
  const reasons: string[] = [];
  if (state === 'WAITING' && volume?.suspension) {
    reasons.push(`volume ${volume.name} is ${formatSuspension(volume.suspension)}`);
  }
  if (lastError !== null) reasons.push(`${lastErrorClass}: ${lastError}`);
  return reasons.join('; ');
}
