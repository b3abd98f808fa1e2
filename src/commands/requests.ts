/** `ls`, `request`, `requests`, `watch`, `cancel`: what users do, over GraphQL. */

import { formatBytes } from '../bytes.js';
import { stageLetters, stageOfLetter } from '../stages.js';
import { readId, readLimit, readNumber, readPaths, readSize, readTime } from './arguments.js';
import { ask } from './client.js';
import { dryRun } from './dry-run.js';
import { CommandError, UsageError } from './failure.js';
import { type OutputOptions, printJson, printLine, printTable } from './output.js';
import { watchRequest } from './watch.js';

interface Page<Node> {
  totalCount: number;
  edges: { node: Node }[];
  pageInfo: { hasNextPage: boolean; endCursor: string | null };
}

interface FileNode {
  path: string;
  size: bigint | number;
  stage: keyof typeof stageLetters;
  verified: string | null;
  spotName: string | null;
}

const FILES = `query ($match: String, $stages: [Stage!], $first: Int, $after: String) {
  tapeFiles(match: $match, stages: $stages, first: $first, after: $after) {
    totalCount edges { node { path size stage verified spotName } } pageInfo { hasNextPage endCursor }
  }
}`;

export async function ls(
  url: string,
  match: string | undefined,
  options: OutputOptions & { stages?: string; limit: string },
): Promise<void> {
  const stages = options.stages === undefined ? undefined : [...options.stages].map(readStage);
  const limit = readLimit(options.limit);
  let shown = 0;
  let total = 0;
  for (let after: string | null = null; ; ) {
    const first = Math.min(1000, limit - shown);
    const variables = { match, stages, first: Math.max(first, 1), after };
    const tapeFiles: Page<FileNode> = (await ask<{ tapeFiles: Page<FileNode> }>(url, FILES, variables)).tapeFiles;
    total = tapeFiles.totalCount;
    for (const { node } of tapeFiles.edges) {
      if (shown === limit) break;
      shown++;
      if (options.json) printJson(node);
      else printLine(`${stageLetters[node.stage]}  ${formatBytes(node.size).padStart(9)}  ${node.path}`);
    }
    after = tapeFiles.pageInfo.endCursor;
    if (!tapeFiles.pageInfo.hasNextPage || shown >= limit) break;
  }
  if (!options.json && shown < total) printLine(`${shown} of ${total} files; --limit shows more`);
}

function readStage(letter: string): string {
  const stage = stageOfLetter(letter);
  if (stage) return stage;
  throw new UsageError(`--stages takes letters of U, D, T, A, R, not ${JSON.stringify(letter)}`);
}

export interface RequestOptions extends OutputOptions {
  quota: string;
  pattern?: string;
  file?: string[];
  retention?: string;
  label?: string;
  maxFiles?: string;
  maxBytes?: string;
  notifyFirst?: string;
  notifyLast?: string;
  watch?: boolean;
  dryRun?: boolean;
}

const CREATE = `mutation ($input: CreateRequestInput!) {
  createRequest(input: $input) {
    __typename
    ... on Request { requestId label state filesTotal bytesTotal filesUnknown retention }
    ... on Failure { message }
  }
}`;

interface CreatedNode {
  __typename: string;
  message?: string;
  requestId: number;
  filesTotal: number;
  bytesTotal: bigint | number;
  filesUnknown: number;
  retention: string;
}

export async function request(url: string, options: RequestOptions): Promise<void> {
  if ((options.pattern === undefined) === (options.file === undefined)) {
    throw new UsageError('give either --pattern or --file');
  }
  const input = {
    quota: options.quota,
    pattern: options.pattern,
    retention: options.retention === undefined ? undefined : readTime('--retention', options.retention),
    files: options.file && (await readPaths(options.file)),
    label: options.label,
    maxFiles: options.maxFiles === undefined ? undefined : readNumber('--max-files', options.maxFiles),
    maxBytes: options.maxBytes === undefined ? undefined : readSize('--max-bytes', options.maxBytes),
    notifyOnFirstFile: options.notifyFirst,
    notifyOnLastFile: options.notifyLast,
  };
  if (options.dryRun) return await dryRun(url, input, options);
  const { createRequest } = await ask<{ createRequest: CreatedNode }>(url, CREATE, { input });
  if (createRequest.__typename !== 'Request') throw new CommandError(createRequest.message ?? createRequest.__typename);
  const { __typename: _, ...made } = createRequest;
  if (options.json) printJson(made);
  else {
    const unknown = made.filesUnknown > 0 ? `, ${made.filesUnknown} paths unknown to the catalogue` : '';
    printLine(
      `request ${made.requestId}: ${made.filesTotal} files, ${formatBytes(made.bytesTotal)}${unknown}, kept until ${made.retention}`,
    );
  }
  if (options.watch) await watchRequest(url, made.requestId, options);
}

const REQUESTS = `query ($quota: String, $states: [RequestState!], $after: String) {
  requests(quota: $quota, states: $states, first: 1000, after: $after) {
    totalCount
    edges { node { requestId label state requestDate retention filesTotal filesOnDisk filesFailed bytesTotal quota { user } } }
    pageInfo { hasNextPage endCursor }
  }
}`;

interface RequestNode {
  requestId: number;
  label: string;
  state: string;
  requestDate: string;
  retention: string;
  filesTotal: number;
  filesOnDisk: number;
  filesFailed: number;
  bytesTotal: bigint | number;
  quota: { user: string };
}

const ALL_STATES = ['QUEUED', 'RESTORING', 'COMPLETED', 'PARTIAL', 'EXPIRED', 'CANCELLED'];

export async function requests(url: string, options: OutputOptions & { quota?: string; all?: boolean }): Promise<void> {
  const nodes: RequestNode[] = [];
  for (let after: string | null = null; ; ) {
    const variables = { quota: options.quota, states: options.all ? ALL_STATES : undefined, after };
    const page: Page<RequestNode> = (await ask<{ requests: Page<RequestNode> }>(url, REQUESTS, variables)).requests;
    nodes.push(...page.edges.map((edge) => edge.node));
    after = page.pageInfo.endCursor;
    if (!page.pageInfo.hasNextPage) break;
  }
  if (options.json) return nodes.forEach(printJson);
  printTable(
    ['ID', 'USER', 'STATE', 'ON DISK', 'FAILED', 'FILES', 'SIZE', 'UNTIL', 'LABEL'],
    nodes.map((node) => [
      String(node.requestId),
      node.quota.user,
      node.state,
      String(node.filesOnDisk),
      String(node.filesFailed),
      String(node.filesTotal),
      formatBytes(node.bytesTotal),
      node.retention.slice(0, 19),
      node.label,
    ]),
  );
}

export async function watch(url: string, id: string, options: OutputOptions): Promise<void> {
  await watchRequest(url, readId(id), options);
}

const CANCEL = `mutation ($id: Int!) {
  cancelRequest(id: $id) { __typename ... on Request { requestId state } ... on Failure { message } }
}`;

export async function cancel(url: string, id: string, options: OutputOptions): Promise<void> {
  type Result = { cancelRequest: { __typename: string; requestId: number; state: string; message?: string } };
  const { cancelRequest } = await ask<Result>(url, CANCEL, { id: readId(id) });
  if (cancelRequest.__typename !== 'Request') throw new CommandError(cancelRequest.message ?? cancelRequest.__typename);
  const { requestId, state } = cancelRequest;
  if (options.json) printJson({ requestId, state });
  else printLine(`request ${requestId} is ${state.toLowerCase()}`);
}
