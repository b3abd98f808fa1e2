/** Reports on the files of a request: paths on disk, missing files, failed files, and the reasons why files wait. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Command, Option } from 'commander';
import { present } from '../../../clients/typescript/responses.js';
import { describeNoRequest } from '../../core/errors.js';
import { plural } from '../../core/text/plural.js';
import { printable } from '../../core/text/printable.js';
import {
  type EndFragment,
  FilesDocument,
  FilesOnDiskDocument,
  MissingFilesDocument,
  RequestDetailsDocument,
  RequestFilesDocument,
  WaitingRequestDocument,
} from '../../generated/operations.js';
import { ask, askPages } from '../connection/gateway-client.js';
import { CommandError, exitCodes } from '../terminal/failure.js';
import { stdout } from '../terminal/io.js';
import { printLine } from '../terminal/output.js';
import { formatWholeTime } from '../terminal/times.js';

/** Adds the options `--print-paths` and `--null` to a command. */
export function addPathsOptions(command: Command): Command {
  const help = "print only paths on disk, one per line, for xargs -d '\\n'";
  return command.addOption(new Option('--print-paths', help).conflicts('json')).addOption(
    new Option('-0, --null', 'print only paths on disk, each followed by a NUL character, for xargs -0').implies({
      printPaths: true,
    }),
  );
}

export interface PathsOptions {
  printPaths?: boolean;
  null?: boolean;
}

/**
 * Returns the path of a file on disk: the path of the copy in the restore area, or of the original file. Returns null
 * if the file is not on disk.
 */
export function pathOnDisk(file: {
  path: string;
  restoredPath: string | null;
  isAtPrimaryPath: boolean;
}): string | null {
  return file.isAtPrimaryPath ? file.path : file.restoredPath;
}

/** @throws CommandError if the path contains a line break, unless paths in the output end with NUL */
export function printPath(path: string, { null: endsWithNul = false }: PathsOptions): void {
  if (!endsWithNul && /[\n\r]/.test(path)) {
    throw new CommandError(`path ${JSON.stringify(path)} contains a line break: use the option -0, and xargs -0`);
  }
  const text = stdout().isTTY ? printable(path) : path;
  stdout().write(`${text}${endsWithNul ? '\0' : '\n'}`);
}

/** @throws CommandError if the server's answer does not contain the request */
export function requireRequest<Request>(id: number, request: Request | null): Request {
  if (request) return request;
  throw new CommandError(describeNoRequest(id));
}

/**
 * Prints the paths of a request's files on disk. Prints nothing for a released request, because Tapegate may remove the
 * files of a released request from disk.
 * @returns the reasons why paths are not printed, with the number of files for each reason
 */
export async function printPaths(url: string, id: number, options: PathsOptions): Promise<Map<string, number>> {
  const lost = new Map<string, number>();
  let state = '';
  const pages = askPages(url, FilesOnDiskDocument, { id }, ({ request }) => {
    const found = requireRequest(id, request);
    state = found.state;
    return found.files;
  });
  for await (const { edges } of pages) {
    for (const { node } of edges) {
      const path = isReleased({ state }) ? null : pathOnDisk(node.file);
      if (path !== null) {
        printPath(path, options);
        continue;
      }
      const { mountpoint, suspension } = node.file.disk ?? {};
      const reason = isReleased({ state })
        ? `released because the request is ${state.toLowerCase()}`
        : suspension?.nextTryAt
          ? `on ${mountpoint}, which is failing: ${suspension.reason}`
          : 'no longer on disk';
      lost.set(reason, (lost.get(reason) ?? 0) + 1);
    }
  }
  return lost;
}

/** @throws CommandError if files of a request are no longer on disk, or their disks cannot be read */
export function requireAllOnDisk(id: number, lost: ReadonlyMap<string, number>): void {
  if (lost.size === 0) return;
  const lines = [...lost].map(
    ([reason, files]) => `${plural(files, 'file')} of request ${id} ${files === 1 ? 'is' : 'are'} ${reason}`,
  );
  throw new CommandError(lines.map(printable).join('\n'), exitCodes.incomplete);
}

/** Returns the text to append to a line about files on disk, such as `, 3 of them at their primary path`. */
export function atPrimaryPath(files: number): string {
  return files === 0 ? '' : `, ${files} of them at their primary path`;
}

/** Returns whether all files of a request have been released. Released files might still be on disk. */
export const isReleased = ({ state }: { state: string }): boolean => state === 'EXPIRED' || state === 'CANCELLED';

interface Directories {
  restoredBelow: readonly string[];
  copies: number;
}

/**
 * Prints the directories below which all files were restored at their archive paths. If some files are elsewhere,
 * prints the command that lists all paths.
 */
export function printDirectories(id: number, { restoredBelow, copies }: Directories): void {
  for (const mountpoint of restoredBelow) printLine(`restored below ${mountpoint}, each at its archive path`);
  if (restoredBelow.length === 0 && copies > 0) printLine(describeOtherPaths(id));
}

export const describeOtherPaths = (id: number) =>
  `some files are not at their archive paths: "tapegate show ${id} --print-paths" lists their actual paths`;

export async function printRequestDirectories(url: string, id: number): Promise<void> {
  const { request } = await ask(url, RequestDetailsDocument, { id });
  if (!request) return;
  const { restoredBelow, filesOnDisk, filesAtPrimaryPath } = request;
  printDirectories(id, { restoredBelow, copies: filesOnDisk - filesAtPrimaryPath });
}

const NAMED_FAILED = 2;

/** Returns the error for a request with failed files: the number of failed files, the first reasons, and the remedy. */
export async function describePartial(
  url: string,
  { requestId: id, filesTotal, filesFailed }: { requestId: number; filesTotal: number; filesFailed: number },
): Promise<CommandError> {
  const { request } = await ask(url, RequestFilesDocument, { id, states: ['FAILED'], first: NAMED_FAILED });
  const named = request?.files.edges.map(({ node }) => `${node.file.path}: ${node.error ?? 'failed'}`) ?? [];
  const lines = [
    `request ${id} is partial: ${filesFailed} of ${plural(filesTotal, 'file')} failed`,
    ...listPaths(named, named.length > 0 ? filesFailed : 0),
    `"tapegate show ${id}" lists the failed files, "tapegate retry ${id}" retries them`,
  ];
  return new CommandError(lines.map(printable).join('\n'), exitCodes.incomplete);
}

const NAMED_MISSING = 20;

const LIVE = ['QUEUED', 'RESTORING', 'COMPLETED', 'PARTIAL'];

/**
 * Returns lines about missing files: unknown paths, and files that do not fit into the quota. If the request's pattern
 * matches no file, returns a single line. For an active request, the last line says that Tapegate might still add
 * missing files. Files that exceed the request's own limits do not count as missing.
 */
export async function findMissing(url: string, id: number): Promise<string[]> {
  const request = requireRequest(id, (await ask(url, MissingFilesDocument, { id, first: NAMED_MISSING })).request);
  const { state, retention, pattern, filesTotal, filesReleased, filesUnknown, filesRefused, unresolved } = request;
  const pathsOf = (reason: string) =>
    unresolved.edges.filter(({ node }) => node.reason === reason).map(({ node }) => node.path);
  const lines: string[] = [];
  const isLive = LIVE.includes(state);
  const end = formatWholeTime(retention);
  if (pattern !== null && filesTotal + filesReleased === 0 && unresolved.edges.length === 0) {
    if (!isLive) return [describeNoMatch(pattern)];
    const nothing = `no path contains ${JSON.stringify(pattern)}${hintFor([pattern])}`;
    const later = `The request stays active until ${end}, and adds matching files that appear in the catalogue; "tapegate cancel ${id}" ends it`;
    return [`request ${id} matches no file yet: ${nothing}. ${later}`];
  }
  if (filesUnknown > 0) {
    const paths = pathsOf('UNKNOWN');
    const directories = await findDirectories(url, paths);
    const heading = `${filesUnknown} of the request's paths ${filesUnknown === 1 ? 'is' : 'are'} not in the catalogue`;
    lines.push(...describeUnknown(heading, { paths, count: filesUnknown, directories }));
  }
  if (filesRefused > 0) {
    lines.push(`${filesRefused} of the request's files did not fit into the quota:`);
    lines.push(...listPaths(pathsOf('QUOTA_FULL'), filesRefused));
  }
  if (lines.length > 0 && isLive) {
    const joins = [
      filesUnknown > 0 ? 'appear in the catalogue' : '',
      filesRefused > 0 ? 'fit into the quota' : '',
    ].filter(Boolean);
    const later = `files that later ${joins.join(' or ')} are added, and charged to the quota`;
    lines.push(`request ${id} stays active until ${end}: ${later}; "tapegate cancel ${id}" ends it`);
  }
  return lines;
}

/**
 * Limits for `findDirectories`: the maximum number of paths to check, and the maximum number of files to read for each
 * path.
 */
const CHECKED = { paths: 5, files: 20 };

/** Returns which of the first few unknown paths are directories with files in the catalogue. Ignores server errors. */
export async function findDirectories(url: string, paths: readonly string[]): Promise<Set<string>> {
  const directories = new Set<string>();
  for (const path of paths.slice(0, CHECKED.paths)) {
    const match = `${path}/`;
    try {
      const { list } = await ask(url, FilesDocument, { match, first: CHECKED.files });
      if (present(list).edges.some(({ node }) => node.path.startsWith(match))) directories.add(path);
    } catch (error) {
      // ignore errors from the server, because the added slash might have made the path too long for a search
      if (!(error instanceof CommandError)) throw error;
    }
  }
  return directories;
}

export class IncompleteError extends CommandError {
  constructor(id: number, missing: readonly string[]) {
    const heading = missing.length > 1 ? [`request ${id} does not contain all requested files yet:`] : [];
    super([...heading, ...missing.map(printable)].join('\n'), exitCodes.incomplete);
  }
}

/** Returns the error message for a pattern that matches no file. */
export function describeNoMatch(text: string, hasStages = false): string {
  const where = hasStages ? 'at these stages' : 'in the catalogue';
  return `no file ${where} has a path that contains ${JSON.stringify(text)}${hintFor([text])}`;
}

interface UnknownPaths {
  paths: readonly string[];
  count: number;
  directories: ReadonlySet<string>;
}

/** Returns a heading line and lines that list the unknown paths. */
export function describeUnknown(heading: string, { paths, count, directories }: UnknownPaths): string[] {
  const named = paths.map((path) =>
    directories.has(path) ? `${path} (a directory: use --pattern ${JSON.stringify(`${path}/`)} for its files)` : path,
  );
  return [`${heading}${hintFor(paths)}:`, ...listPaths(named, count)];
}

function hintFor(texts: readonly string[]): string {
  const wildcards = texts.some((text) => /[*?[\]]/.test(text)) ? '; * ? [ ] are literal' : '';
  return ` (case-sensitive${wildcards})`;
}

function listPaths(paths: readonly string[], count: number): string[] {
  const more = count > paths.length ? [`  and ${count - paths.length} more`] : [];
  return [...paths.map((path) => `  ${path}`), ...more];
}

/** The plan for a request that is waiting for drives. */
export interface WaitingView {
  /** When the server made the plan, by the server's clock. */
  at: string;
  isReading: boolean;
  end: EndFragment | null;
  reason: string | undefined;
}

const PASSING_REASONS = ['READING', 'MOUNTED', 'QUEUED'];

/** Pause between two reads of the plan, in milliseconds. Each read scans the whole queue. */
const PAUSE_MS = 5000;

/**
 * Reads the plan for a request every few seconds until the signal aborts. Calls `report` with each plan, or with
 * undefined if no file of the request is waiting. While the server does not answer, does not call `report`.
 */
export async function followWaiting(
  url: string,
  id: number,
  { signal, report }: { signal: AbortSignal; report: (view: WaitingView | undefined) => void },
): Promise<void> {
  while (!signal.aborted) {
    try {
      const view = await readWaiting(url, id);
      if (!signal.aborted) report(view);
    } catch (error) {
      if (!(error instanceof CommandError)) throw error;
    }
    await sleep(PAUSE_MS, undefined, { signal }).catch(() => {}); // ignore an AbortError; the loop ends
  }
}

async function readWaiting(url: string, id: number): Promise<WaitingView | undefined> {
  const waiting = await readParts(url, id);
  if (!waiting) return undefined;
  const { at, end, parts } = waiting;
  const shown = parts.find(({ reason }) => !PASSING_REASONS.includes(reason)) ?? parts[0];
  const volume = shown?.volumeName ? `${shown.volumeName}: ` : '';
  const isReading = parts.some(({ reason }) => reason === 'READING');
  return { at, isReading, end, reason: shown && `${volume}${shown.explanation}` };
}

const MAX_PARTS = 100;

async function readParts(url: string, id: number) {
  const { request } = await ask(url, WaitingRequestDocument, { id, first: MAX_PARTS });
  const waiting = request?.waiting;
  return waiting ? { ...waiting, parts: waiting.parts.edges.map(({ node }) => node) } : undefined;
}

const QUEUE_REASONS = ['NO_DRIVE', 'NO_POSITION'];

/**
 * Returns why a request's files wait, with the number of files for each reason. Omits reasons that are not in
 * `QUEUE_REASONS`.
 */
export async function readReasons(url: string, id: number): Promise<string[]> {
  const files = new Map<string, number>();
  for (const part of (await readParts(url, id))?.parts ?? []) {
    if (QUEUE_REASONS.includes(part.reason))
      files.set(part.explanation, (files.get(part.explanation) ?? 0) + part.fileCount);
  }
  return [...files].map(([explanation, count]) => `${explanation} (${plural(count, 'file')})`);
}
