/** `plan`: what the drives do and will do, and where a request stands in it. */
import { formatBytes } from '../bytes.js';
import { secondsBetween } from '../time.js';
import { readId, readNumber } from './arguments.js';
import { ask } from './client.js';
import { UnknownRequestError } from './failure.js';
import { type OutputOptions, printJson, printLine, printTable } from './output.js';

interface EndRange {
  earliest: string;
  planned: string;
  latest: string;
}

interface PlanNode {
  at: string;
  drives: {
    name: string;
    isClaimed: boolean;
    isOpen: boolean;
    volume: string | null;
    filesRunning: number;
    bytesRunning: bigint | number;
  }[];
  filesWaiting: number;
  bytesWaiting: bigint | number;
  queue: { edges: { node: VolumeNode }[]; pageInfo: { hasNextPage: boolean } };
}

interface VolumeNode {
  place: number | null;
  volume: string;
  files: number;
  bytes: bigint | number;
  users: { user: string }[];
  drive: string | null;
  isMounted: boolean;
  reason: string | null;
  start: string | null;
  end: string | null;
}

const PLAN = `query ($first: Int) { plan {
  at filesWaiting bytesWaiting
  drives { name isClaimed isOpen volume filesRunning bytesRunning }
  queue(first: $first) {
    edges { node { place volume files bytes users { user files bytes } drive isMounted reason start end } }
    pageInfo { hasNextPage }
  }
} }`;

export async function plan(
  url: string,
  id: string | undefined,
  options: OutputOptions & { limit: string },
): Promise<void> {
  if (id !== undefined) return await planOf(url, id, options);
  const first = readPageSize(options.limit);
  const { plan } = await ask<{ plan: PlanNode }>(url, PLAN, { first });
  if (options.json) return printJson({ ...plan, queue: plan.queue.edges.map(({ node }) => node) });
  printTable(
    ['DRIVE', 'DOES'],
    plan.drives.map((drive) => [drive.name, describeDrive(drive)]),
  );
  const volumes = plan.queue.edges.map(({ node }) => node);
  if (volumes.length > 0) {
    printLine('');
    const end = Math.max(...volumes.map((volume) => (volume.end ? secondsBetween(plan.at, volume.end) : 0)));
    printTable(
      ['PLACE', 'VOLUME', 'FILES', 'SIZE', 'USERS', 'DRIVE', 'FROM', 'TO', `NOW TO ${span(end).toUpperCase()}`],
      volumes.map((volume) => [
        volume.place === null ? '-' : String(volume.place),
        volume.volume,
        String(volume.files),
        formatBytes(volume.bytes),
        nameUsers(volume.users.map(({ user }) => user)),
        volume.drive ?? '-',
        volume.start ? span(secondsBetween(plan.at, volume.start)) : '-',
        volume.end ? span(secondsBetween(plan.at, volume.end)) : '-',
        drawBar(plan.at, volume, end) ?? volume.reason ?? '',
      ]),
    );
  }
  const more = plan.queue.pageInfo.hasNextPage ? ` (${volumes.length} volumes shown; --limit shows more)` : '';
  printLine(`${plan.filesWaiting} files wait, ${formatBytes(plan.bytesWaiting)}${more}`);
}

/** The server takes no page of nothing, and none longer. */
function readPageSize(text: string): number {
  return readNumber('--limit', text, { from: 1, to: 1000, digits: 4, expected: 'from 1 to 1000' });
}

function describeDrive(drive: PlanNode['drives'][number]): string {
  if (!drive.isOpen) return 'is out of service';
  if (!drive.isClaimed) return 'belongs to no engine';
  if (drive.volume === null) return 'is idle';
  return `reads ${drive.volume}: ${drive.filesRunning} files, ${formatBytes(drive.bytesRunning)} in hand`;
}

const MAX_NAMED = 3;

function nameUsers(users: string[]): string {
  const names = [...new Set(users)];
  const more = names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : '';
  return `${names.slice(0, MAX_NAMED).join(', ')}${more}`;
}

const BAR_WIDTH = 30;

function drawBar(now: string, volume: VolumeNode, end: number): string | undefined {
  if (!volume.start || !volume.end) return undefined;
  const at = (time: string) => Math.round((BAR_WIDTH * Math.max(secondsBetween(now, time), 0)) / Math.max(end, 1));
  const from = Math.min(at(volume.start), BAR_WIDTH - 1);
  return `${'·'.repeat(from)}${'█'.repeat(Math.max(at(volume.end) - from, 1))}`.padEnd(BAR_WIDTH, '·');
}

/** A time from now, as people say it. */
export function span(seconds: number): string {
  if (seconds < 1) return 'now';
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 48 * 3600 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86_400).toFixed(1)} days`;
}

export function describeEnd(now: string, end: EndRange | null): string {
  if (!end) return 'when it will be done cannot be told: something is out of service, or no engine works';
  const [earliest, planned, latest] = [end.earliest, end.planned, end.latest].map((t) => span(secondsBetween(now, t)));
  return planned === 'now' ? 'done at once' : `done in ${planned} by the plan, from ${earliest} to ${latest}`;
}

interface WaitingNode {
  files: number;
  bytes: bigint | number;
  place: number | null;
  end: EndRange | null;
  parts: {
    edges: {
      node: {
        volume: string | null;
        place: number | null;
        reason: string;
        explanation: string;
        files: number;
        bytes: bigint | number;
        nextTry: string | null;
      };
    }[];
    pageInfo: { hasNextPage: boolean };
  };
}

const REQUEST = `query ($id: Int!, $first: Int) { plan { at } request(id: $id) { requestId state waiting {
  files bytes place end { earliest planned latest }
  parts(first: $first) {
    edges { node { volume place reason explanation files bytes nextTry } } pageInfo { hasNextPage }
  }
} } }`;

async function planOf(url: string, text: string, options: OutputOptions & { limit: string }): Promise<void> {
  const id = readId(text);
  type Answer = { plan: { at: string }; request: { state: string; waiting: WaitingNode | null } | null };
  const { plan, request } = await ask<Answer>(url, REQUEST, { id, first: readPageSize(options.limit) });
  if (!request) throw new UnknownRequestError(id);
  const { state, waiting } = request;
  if (options.json) {
    const parts = waiting?.parts.edges.map(({ node }) => node);
    return printJson({ requestId: id, state, waiting: waiting && { ...waiting, parts } });
  }
  if (!waiting) return printLine(`request ${id} is ${state.toLowerCase()}: nothing of it waits`);
  printLine(
    `request ${id}: ${waiting.files} files wait, ${formatBytes(waiting.bytes)}; ${describeEnd(plan.at, waiting.end)}`,
  );
  const parts = waiting.parts.edges.map(({ node }) => node);
  printTable(
    ['PLACE', 'VOLUME', 'FILES', 'SIZE', 'NEXT TRY', 'WHY'],
    parts.map((part) => [
      part.place === null ? '-' : String(part.place),
      part.volume ?? '-',
      String(part.files),
      formatBytes(part.bytes),
      part.nextTry ? `in ${span(secondsBetween(plan.at, part.nextTry))}` : '-',
      part.explanation,
    ]),
  );
  if (waiting.parts.pageInfo.hasNextPage) printLine(`${parts.length} volumes shown; --limit shows more`);
}
