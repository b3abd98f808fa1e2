/** Reports on the files of a request: where they are, which are missing or failed, and why others wait. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Command, Option } from 'commander';
import { plural } from '../core/plural.js';
import { printable } from '../core/printable.js';
import {
  type EndFragment,
  FailedFiles,
  FilesBelow,
  FilesOnDisk,
  MissingFiles,
  RequestPlaces,
  WaitingParts,
} from '../generated/command-operations.js';
import { ask, askPages } from './connection/client.js';
import { CommandError, exitCodes } from './terminal/failure.js';
import { stdout } from './terminal/io.js';
import { printLine } from './terminal/output.js';
import { formatWholeTime } from './terminal/times.js';

/** Adds `--print-paths` and `--null` to a command that knows where files are. */
export function addPathsOptions(command: Command): Command {
  const help = "print only paths on disk, one per line, for xargs -d '\\n'";
  return command
    .addOption(new Option('--print-paths', help).conflicts('json'))
    .addOption(
      new Option('-0, --null', 'print only paths on disk, each ended by NUL, for xargs -0').implies({
        printPaths: true,
      }),
    );
}

export interface PathsOptions {
  printPaths?: boolean;
  null?: boolean;
}

/** Returns the path of a file on disk: its copy in the restore area, or its original place; null if it has neither. */
export function placeOf(file: { path: string; restoredPath: string | null; isAtPrimaryPlace: boolean }): string | null {
  return file.isAtPrimaryPlace ? file.path : file.restoredPath;
}

/** @throws CommandError for a path of several lines, unless NUL ends each */
export function printPath(path: string, { null: endsWithNul = false }: PathsOptions): void {
  if (!endsWithNul && /[\n\r]/.test(path)) {
    throw new CommandError(`${JSON.stringify(path)} has several lines: -0 prints paths for xargs -0`);
  }
  const text = stdout().isTTY ? printable(path) : path;
  stdout().write(`${text}${endsWithNul ? '\0' : '\n'}`);
}

/** Returns a request that an answer contains. @throws CommandError */
export function requireRequest<Request>(id: number, request: Request | null): Request {
  if (request) return request;
  throw new CommandError(`there is no request with id ${id}`);
}

/** Prints where the files of a request are that are on disk. @returns what became of others: the number of each */
export async function printPaths(url: string, id: number, options: PathsOptions): Promise<Map<string, number>> {
  const lost = new Map<string, number>();
  const pages = askPages(url, FilesOnDisk, { id }, ({ request }) => requireRequest(id, request).files);
  for await (const { edges } of pages) {
    for (const { node } of edges) {
      const path = placeOf(node.file);
      if (path !== null) {
        printPath(path, options);
        continue;
      }
      const { mountpoint, suspension } = node.file.disk ?? {};
      const what = suspension?.nextTry ? `on ${mountpoint}, which fails: ${suspension.reason}` : 'no longer on disk';
      lost.set(what, (lost.get(what) ?? 0) + 1);
    }
  }
  return lost;
}

/** @throws CommandError if files of a request were on disk, and are there no longer or cannot be read */
export function requireNoneLost(id: number, lost: ReadonlyMap<string, number>): void {
  if (lost.size === 0) return;
  const lines = [...lost].map(
    ([what, files]) => `${plural(files, 'file')} of request ${id} ${files === 1 ? 'is' : 'are'} ${what}`,
  );
  throw new CommandError(lines.map(printable).join('\n'), exitCodes.incomplete);
}

/** Returns the end of a line that counts files on disk. */
export function atPrimaryPlace(files: number): string {
  return files === 0 ? '' : `, ${files} of them at their primary place`;
}

/** Its files may be on disk, but no longer for this request. */
export const hasLetGo = ({ state }: { state: string }): boolean => state === 'EXPIRED' || state === 'CANCELLED';

interface Places {
  restoredBelow: readonly string[];
  copies: number;
}

/** Prints the directories with restored files; if some were renamed, the command that lists them. */
export function printPlaces(id: number, { restoredBelow, copies }: Places): void {
  for (const mountpoint of restoredBelow) printLine(`restored below ${mountpoint}, each at its archive path`);
  if (restoredBelow.length === 0 && copies > 0) printLine(whereTold(id));
}

export const whereTold = (id: number) =>
  `not all of its files are at their archive paths: \`tapegate show ${id} --print-paths\` says where they are`;

export async function tellPlaces(url: string, id: number): Promise<void> {
  const { request } = await ask(url, RequestPlaces, { id });
  if (!request) return;
  const { restoredBelow, filesOnDisk, filesAtPrimaryPlace } = request;
  printPlaces(id, { restoredBelow, copies: filesOnDisk - filesAtPrimaryPlace });
}

/** Failed files that an error names; `show` lists all. */
const NAMED_FAILED = 2;

/** Returns the error of a partly failed request: the count, the first reasons, and what to do. */
export async function describePartial(
  url: string,
  { requestId: id, filesTotal, filesFailed }: { requestId: number; filesTotal: number; filesFailed: number },
): Promise<CommandError> {
  const { request } = await ask(url, FailedFiles, { id, first: NAMED_FAILED });
  const named = request?.files.edges.map(({ node }) => `${node.file.path}: ${node.error ?? 'failed'}`) ?? [];
  const lines = [
    `request ${id} is partial: ${filesFailed} of ${plural(filesTotal, 'file')} failed`,
    ...listPaths(named, named.length > 0 ? filesFailed : 0),
    `"tapegate show ${id}" tells of each, "tapegate retry ${id}" has them tried again`,
  ];
  return new CommandError(lines.map(printable).join('\n'), exitCodes.incomplete);
}

const NAMED_MISSING = 20;

const LIVE = ['QUEUED', 'RESTORING', 'COMPLETED', 'PARTIAL'];

/**
 * Returns lines about missing files: a pattern without matches, unknown paths, and files without room in the quota. For
 * an active request, says what happens to them. Files beyond the request's own limits are not missing.
 */
export async function findMissing(url: string, id: number): Promise<string[]> {
  const request = requireRequest(id, (await ask(url, MissingFiles, { id, first: NAMED_MISSING })).request);
  const { state, retention, pattern, filesTotal, filesReleased, filesUnknown, filesRefused, unresolved } = request;
  const pathsOf = (reason: string) =>
    unresolved.edges.filter(({ node }) => node.reason === reason).map(({ node }) => node.path);
  const lines: string[] = [];
  const isEmpty = pattern !== '' && filesTotal + filesReleased === 0 && unresolved.edges.length === 0;
  if (isEmpty) lines.push(describeNoMatch(pattern));
  if (filesUnknown > 0) {
    const paths = pathsOf('UNKNOWN');
    const folders = await findFolders(url, paths);
    const what = `${filesUnknown} of its paths ${filesUnknown === 1 ? 'is' : 'are'} not in the catalogue`;
    lines.push(...describeUnknown(what, { paths, count: filesUnknown, folders }));
  }
  if (filesRefused > 0) {
    lines.push(`${filesRefused} of its files found no room in the quota:`);
    lines.push(...listPaths(pathsOf('QUOTA_FULL'), filesRefused));
  }
  if (lines.length > 0 && LIVE.includes(state)) {
    const joins = [isEmpty || filesUnknown > 0 ? 'appears' : '', filesRefused > 0 ? 'finds room' : ''].filter(Boolean);
    const what = `what ${joins.join(' or ')} later joins it and is charged to its quota`;
    lines.push(`request ${id} stays until ${formatWholeTime(retention)}: ${what}; "tapegate cancel ${id}" ends it`);
  }
  return lines;
}

/** Limits of `findFolders`. */
const CHECKED = { paths: 5, files: 20 };

/** Returns those of the first unknown paths that are directories of known files. Errors are ignored. */
export async function findFolders(url: string, paths: readonly string[]): Promise<Set<string>> {
  const folders = new Set<string>();
  for (const path of paths.slice(0, CHECKED.paths)) {
    const match = `${path}/`;
    try {
      const { tapeFiles } = await ask(url, FilesBelow, { match, first: CHECKED.files });
      if (tapeFiles.edges.some(({ node }) => node.path.startsWith(match))) folders.add(path);
    } catch (error) {
      if (!(error instanceof CommandError)) throw error; // with its slash a path may be too long for a search
    }
  }
  return folders;
}

export class IncompleteError extends CommandError {
  constructor(id: number, missing: readonly string[]) {
    super(
      `request ${id} has finished without all of its files:\n${missing.map(printable).join('\n')}`,
      exitCodes.incomplete,
    );
  }
}

/** Describes a pattern, or the text of `ls`, that matches no file. */
export function describeNoMatch(text: string, hasStages = false): string {
  const where = hasStages ? 'at these stages' : 'of the catalogue';
  return `no file ${where} has ${JSON.stringify(text)} in its path${hintFor([text])}`;
}

interface UnknownPaths {
  paths: readonly string[];
  count: number;
  folders: ReadonlySet<string>;
}

/** Lists unknown paths below a line that counts them. */
export function describeUnknown(what: string, { paths, count, folders }: UnknownPaths): string[] {
  const named = paths.map((path) =>
    folders.has(path) ? `${path} (a folder: --pattern ${JSON.stringify(`${path}/`)} takes the files below it)` : path,
  );
  return [`${what}${hintFor(paths)}:`, ...listPaths(named, count)];
}

function hintFor(texts: readonly string[]): string {
  const wildcards = texts.some((text) => /[*?[\]]/.test(text)) ? ', and * ? [ ] stand for themselves' : '';
  return ` (upper and lower case differ${wildcards})`;
}

function listPaths(paths: readonly string[], count: number): string[] {
  const more = count > paths.length ? [`  and ${count - paths.length} more`] : [];
  return [...paths.map((path) => `  ${path}`), ...more];
}

/** What the plan says of a request that waits. */
export interface WaitingView {
  /** By the server's clock. */
  at: string;
  isReading: boolean;
  end: EndFragment | null;
  reason: string | undefined;
}

/** Reasons that pass as the drives work. */
const GOING = ['READING', 'MOUNTED', 'QUEUED'];

/** Reading the plan scans the whole queue. */
const PAUSE_MS = 5000;

/** Reports what the plan says, again and again until the signal aborts. Failed attempts report nothing. */
export async function followWaiting(
  url: string,
  id: number,
  { signal, tell }: { signal: AbortSignal; tell: (view: WaitingView | undefined) => void },
): Promise<void> {
  while (!signal.aborted) {
    const view = await readWaiting(url, id).catch((error: unknown) => {
      if (error instanceof CommandError) return undefined;
      throw error;
    });
    if (!signal.aborted) tell(view);
    await sleep(PAUSE_MS, undefined, { signal }).catch(() => {}); // woken by the end
  }
}

async function readWaiting(url: string, id: number): Promise<WaitingView | undefined> {
  const waiting = await readParts(url, id);
  if (!waiting) return undefined;
  const { at, end, parts } = waiting;
  const kept = parts.find(({ reason }) => !GOING.includes(reason)) ?? parts[0];
  const volume = kept?.volume ? `${kept.volume}: ` : '';
  const isReading = parts.some(({ reason }) => reason === 'READING');
  return { at, isReading, end, reason: kept && `${volume}${kept.explanation}` };
}

async function readParts(url: string, id: number) {
  const { request } = await ask(url, WaitingParts, { id });
  const waiting = request?.waiting;
  return waiting ? { ...waiting, parts: waiting.parts.edges.map(({ node }) => node) } : undefined;
}

/** Reasons that concern the whole queue, not a file. */
const OF_ALL = ['NO_DRIVE', 'NO_PLACE'];

/** Returns why files of a request wait without having been tried: each reason once, with the number of its files. */
export async function readReasons(url: string, id: number): Promise<string[]> {
  const files = new Map<string, number>();
  for (const part of (await readParts(url, id))?.parts ?? []) {
    if (OF_ALL.includes(part.reason)) files.set(part.explanation, (files.get(part.explanation) ?? 0) + part.files);
  }
  return [...files].map(([explanation, count]) => `${explanation} (${plural(count, 'file')})`);
}
