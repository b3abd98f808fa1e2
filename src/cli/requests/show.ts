/** The command `show` shows a request, and the state of each file that is not on disk. */
import type { Command } from 'commander';
import { formatBytes } from '../../core/text/bytes.js';
import { plural } from '../../core/text/plural.js';
import { formatFiles, formatMissing } from '../../core/text/requested-files.js';
import {
  FirstPathsDocument,
  RequestDetailsDocument,
  type RequestDetailsFragment,
  type UnfinishedFileFragment,
  UnfinishedFilesDocument,
} from '../../generated/operations.js';
import { ask, askPages } from '../connection/gateway-client.js';
import { findSite } from '../connection/where.js';
import { formatSuspension } from '../suspensions.js';
import { limitHelp, readId, readLimit } from '../terminal/arguments.js';
import { type OutputOptions, printFacts, printJson, printLine, printNote, printTable } from '../terminal/output.js';
import { formatTime } from '../terminal/times.js';
import { ONLY_LOGGED } from './email-note.js';
import {
  addPathsOptions,
  atPrimaryPath,
  describeOtherPaths,
  findMissing,
  isReleased,
  type PathsOptions,
  printPaths,
  readReasons,
  requireAllOnDisk,
  requireRequest,
} from './request-files.js';

export function register(program: Command): void {
  addPathsOptions(program.command('show <id>'))
    .option('--limit <n>', limitHelp('show at most n files', '--json or --print-paths'))
    .action((id, options) => {
      const show = options.printPaths ? showPaths : showRequest;
      return show(findSite(), readId(id), options);
    });
}

async function showPaths(url: string, id: number, options: PathsOptions): Promise<void> {
  requireAllOnDisk(id, await printPaths(url, id, options));
}

interface ShowOptions extends OutputOptions, PathsOptions {
  limit?: string;
}

async function showRequest(url: string, id: number, options: ShowOptions): Promise<void> {
  const limit = readLimit(options);
  const { request: found, isEmailSent } = await ask(url, RequestDetailsDocument, { id });
  const request = requireRequest(id, found);
  if (options.json) printJson(request);
  else {
    const [reasons, selection] = [await readReasons(url, id), await describeSelection(url, request)];
    printRequest(request, { reasons, selection, isEmailSent });
  }
  const { files, isWhole } = await readRequestFiles(url, id, limit);
  const cut = `the first ${files.length === 1 ? 'file that is' : `${files.length} files that are`} not on disk; --limit shows more`;
  if (options.json) {
    files.forEach(printJson);
    if (!isWhole) printNote(cut, options);
    return;
  }
  if (files.length > 0) {
    printLine('');
    printRequestFiles(files);
  }
  if (!isWhole) printLine(cut);
  const missing = await findMissing(url, id);
  if (missing.length > 0) printLine('');
  for (const line of missing) printLine(line);
}

/**
 * Describes which files the user requested. Returns undefined if the request's label already shows the pattern or the
 * paths.
 */
async function describeSelection(url: string, request: RequestDetailsFragment): Promise<string | undefined> {
  const { requestId: id, pattern, label } = request;
  if (pattern === label) return undefined;
  if (pattern !== null) return `all files whose path contains ${JSON.stringify(pattern)}`;
  const { request: first } = await ask(url, FirstPathsDocument, { id });
  const path = first?.files.edges[0]?.node.file.path ?? first?.unresolved.edges[0]?.node.path;
  const { filesTotal, filesReleased, filesUnknown, filesRefused, filesOverLimit } = request;
  const more = filesTotal + filesReleased + filesUnknown + filesRefused + filesOverLimit - 1;
  if (path === undefined || (path === label && more === 0)) return undefined;
  return more > 0 ? `${path} and ${plural(more, 'other path')}` : path;
}

function printRequest(
  request: RequestDetailsFragment,
  {
    reasons,
    selection,
    isEmailSent,
  }: { reasons: readonly string[]; selection: string | undefined; isEmailSent: boolean | null },
): void {
  const { suspension, user } = request.quota;
  const missing = formatMissing(request);
  const facts: [string, string][] = [
    [`REQUEST ${request.requestId}`, request.state],
    ['LABEL', request.label],
    ...(selection === undefined ? [] : [['FILES', selection] satisfies [string, string]]),
    ['USER', suspension ? `${user}, ${formatSuspension(suspension)}` : user],
    ['PRIORITY', String(request.priority)],
    ['CREATED', formatTime(request.createdAt)],
    ['UNTIL', formatTime(request.retention)],
    ...formatEmails(request, isEmailSent),
    [
      isReleased(request) ? 'WAS ON DISK' : 'ON DISK',
      `${formatFiles(request)}, ${formatBytes(request.bytesOnDisk)} of ${formatBytes(request.bytesTotal)}${atPrimaryPath(request.filesAtPrimaryPath)}${missing && `; ${missing}`}`,
    ],
    ...(isReleased(request)
      ? []
      : request.restoredBelow.map((mountpoint): [string, string] => ['DIRECTORY', mountpoint])),
    ...(hasOtherPaths(request) ? [['PATHS', describeOtherPaths(request.requestId)] satisfies [string, string]] : []),
    ...reasons.map((reason): [string, string] => ['WAITING', reason]),
    ['FAILED', `${plural(request.filesFailed, 'file')}`],
    ['UNRESOLVED', `${plural(request.filesUnknown, 'path')}`],
    ['REFUSED', `${plural(request.filesRefused, 'file')} over the quota`],
  ];
  printFacts(facts);
}

function formatEmails(
  { notifyOnFirstFile, notifyOnLastFile }: RequestDetailsFragment,
  isEmailSent: boolean | null,
): [string, string][] {
  const first: [string, string][] = notifyOnFirstFile ? [['EMAIL', `${notifyOnFirstFile} (first file)`]] : [];
  const last: [string, string][] = notifyOnLastFile ? [['EMAIL', `${notifyOnLastFile} (end)`]] : [];
  const isLogged = isEmailSent === false && (notifyOnFirstFile || notifyOnLastFile);
  return [...first, ...last, ...(isLogged ? [['EMAIL', ONLY_LOGGED] satisfies [string, string]] : [])];
}

function hasOtherPaths(request: RequestDetailsFragment): boolean {
  const { restoredBelow, filesOnDisk, filesAtPrimaryPath } = request;
  return !isReleased(request) && restoredBelow.length === 0 && filesOnDisk > filesAtPrimaryPath;
}

async function readRequestFiles(url: string, id: number, limit: number) {
  const pages = askPages(url, UnfinishedFilesDocument, { id }, ({ request }) => requireRequest(id, request).files, {
    limit,
  });
  const files: UnfinishedFileFragment[] = [];
  let isWhole = false;
  for await (const { edges, pageInfo } of pages) {
    files.push(...edges.map(({ node }) => node));
    isWhole = !pageInfo.hasNextPage;
  }
  return { files, isWhole };
}

function printRequestFiles(files: UnfinishedFileFragment[]): void {
  printTable(
    ['FILE', 'STATE', 'TRIES', 'NEXT TRY', 'REASON'],
    files.map((requestFile) => [
      requestFile.file.path,
      requestFile.recallState === 'RUNNING' ? 'RUNNING' : requestFile.state,
      formatTries(requestFile),
      requestFile.nextTryAt === null ? '' : formatTime(requestFile.nextTryAt),
      formatReasons(requestFile),
    ]),
  );
}

/**
 * Returns how often Tapegate has tried to restore a file. For a failed file, only the error message contains this
 * number.
 */
function formatTries({ attempts, lastError }: UnfinishedFileFragment): string {
  return attempts === null ? (/; given up after (\d+) tries$/.exec(lastError ?? '')?.[1] ?? '') : String(attempts);
}

function formatReasons({ state, lastErrorClass, lastError, file: { volume } }: UnfinishedFileFragment): string {
  const reasons: string[] = [];
  const suspension = state === 'WAITING' ? volume?.suspension : null;
  if (suspension) reasons.push(`volume ${volume?.name} is ${formatSuspension(suspension)}`);
  if (lastError !== null && !suspension?.reason?.includes(lastError)) reasons.push(`${lastErrorClass}: ${lastError}`);
  return reasons.join('; ');
}
