/** `show`: one request, and how it goes with each file of it that is not on disk. */
import { formatBytes } from '../bytes.js';
import { readId, readLimit } from './arguments.js';
import { ask } from './client.js';
import { UnknownRequestError } from './failure.js';
import { type OutputOptions, printJson, printLine, printTable } from './output.js';

interface HoldNode {
  state: 'WAITING' | 'FAILED';
  recallState: 'WAITING' | 'RUNNING' | null;
  attempts: number | null;
  lastErrorClass: string | null;
  lastError: string | null;
  nextTry: string | null;
  file: { path: string; size: bigint | number; volume: { name: string; suspension: SuspensionNode | null } | null };
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
  priority: number;
  requestDate: string;
  retention: string;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
  filesUnknown: number;
  filesRefused: number;
  bytesTotal: bigint | number;
  bytesOnDisk: bigint | number;
}

interface HoldPage {
  edges: { node: HoldNode }[];
  pageInfo: { hasNextPage: boolean; endCursor: string | null };
}

const REQUEST = `query ($id: Int!) { request(id: $id) {
  requestId quota { user suspension { mode reason } } state label priority requestDate retention
  filesTotal filesOnDisk filesFailed filesUnknown filesRefused bytesTotal bytesOnDisk
} }`;

const HOLDS = `query ($id: Int!, $first: Int!, $after: String) { request(id: $id) {
  holds(states: [WAITING, FAILED], first: $first, after: $after) {
    edges { node {
      state recallState attempts lastErrorClass lastError nextTry
      file { path size volume { name suspension { mode reason } } }
    } } pageInfo { hasNextPage endCursor }
  }
} }`;

export async function show(url: string, text: string, options: OutputOptions & { limit: string }): Promise<void> {
  const id = readId(text);
  const limit = readLimit(options.limit);
  const { request } = await ask<{ request: RequestNode | null }>(url, REQUEST, { id });
  if (!request) throw new UnknownRequestError(id);
  if (options.json) printJson(request);
  else printRequest(request);
  const { holds, isWhole } = await readHolds(url, id, limit);
  if (options.json) return holds.forEach(printJson);
  if (holds.length > 0) {
    printLine('');
    printTable(
      ['FILE', 'STATE', 'TRIES', 'NEXT TRY', 'WHY'],
      holds.map((hold) => [
        hold.file.path,
        hold.recallState === 'RUNNING' ? 'RUNNING' : hold.state,
        hold.attempts === null ? '' : String(hold.attempts),
        hold.nextTry?.slice(0, 19) ?? '',
        explain(hold),
      ]),
    );
  }
  if (!isWhole) printLine(`the first ${holds.length} files that are not on disk; --limit shows more`);
}

function printRequest(request: RequestNode): void {
  const { suspension, user } = request.quota;
  const rows = [
    ['LABEL', request.label],
    ['USER', suspension ? `${user}, ${describe(suspension)}` : user],
    ['PRIORITY', String(request.priority)],
    ['ASKED', request.requestDate.slice(0, 19)],
    ['UNTIL', request.retention.slice(0, 19)],
    [
      'ON DISK',
      `${request.filesOnDisk} of ${request.filesTotal} files, ${formatBytes(request.bytesOnDisk)} of ${formatBytes(request.bytesTotal)}`,
    ],
    ['FAILED', `${request.filesFailed} files`],
    ['UNKNOWN', `${request.filesUnknown} paths`],
    ['REFUSED', `${request.filesRefused} files without room in the quota`],
  ];
  printTable([`REQUEST ${request.requestId}`, request.state], rows);
}

/** What keeps a file from its place, the most telling first. */
function explain({ state, lastErrorClass, lastError, file }: HoldNode): string {
  const error = lastError === null ? [] : [`${lastErrorClass}: ${lastError}`];
  const { volume } = file;
  const held =
    state === 'WAITING' && volume?.suspension ? [`volume ${volume.name} is ${describe(volume.suspension)}`] : [];
  return [...held, ...error].join('; ');
}

function describe({ mode, reason }: SuspensionNode): string {
  return reason === '' ? mode.toLowerCase() : `${mode.toLowerCase()}: ${reason}`;
}

async function readHolds(url: string, id: number, limit: number): Promise<{ holds: HoldNode[]; isWhole: boolean }> {
  const holds: HoldNode[] = [];
  for (let after: string | null = null; ; ) {
    const first = Math.min(1000, limit - holds.length);
    const answer: { request: { holds: HoldPage } | null } = await ask(url, HOLDS, { id, first, after });
    const page = answer.request?.holds;
    if (page) holds.push(...page.edges.map((edge) => edge.node));
    after = page?.pageInfo.endCursor ?? null;
    const isWhole = !page?.pageInfo.hasNextPage;
    if (isWhole || holds.length >= limit) return { holds, isWhole };
  }
}
