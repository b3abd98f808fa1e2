/** Where restored files are: told to people, and printed for scripts, a path each. */
import { Option } from 'commander';
import { ask, askPages, type Page } from './client.js';
import { CommandError, UnknownRequestError } from './failure.js';
import { stdout } from './io.js';
import { printable, printLine } from './output.js';

/** For `.addOption(createPathsOption())` and `.addOption(createNullOption())`, in commands that know where files are. */
export function createPathsOption(): Option {
  const help = "print nothing but where the files are on disk, a path a line, for xargs -d '\\n'";
  return new Option('--print-paths', help).conflicts('json');
}

export function createNullOption(): Option {
  return new Option('-0, --null', 'the same, each path ended by NUL, for xargs -0').implies({ printPaths: true });
}

export interface PathsOptions {
  printPaths?: boolean;
  null?: boolean;
}

/** A file as it is asked for to tell its place: `file { path restoredPath }`. */
export interface PlacedFile {
  path: string;
  /** Of its copy in the restore area; null where it has none there, as a file at its primary place. */
  restoredPath: string | null;
}

/** Where a file that is on disk can be read. */
export function placeOf({ path, restoredPath }: PlacedFile): string {
  return restoredPath ?? path;
}

/** @throws CommandError for a path of several lines, unless NUL ends each */
export function printPath(path: string, { null: endsWithNul = false }: PathsOptions): void {
  if (!endsWithNul && /[\n\r]/.test(path)) {
    throw new CommandError(`${JSON.stringify(path)} has several lines: -0 prints paths for xargs -0`);
  }
  const text = stdout().isTTY ? printable(path) : path;
  stdout().write(`${text}${endsWithNul ? '\0' : '\n'}`);
}

const ON_DISK = `query ($id: Int!, $first: Int!, $after: String) { request(id: $id) {
  holds(states: [ON_DISK], first: $first, after: $after) {
    edges { node { file { path restoredPath } } } pageInfo { hasNextPage endCursor }
  }
} }`;

/** Prints where the files of a request are that are on disk. @throws CommandError */
export async function printPaths(url: string, id: number, options: PathsOptions): Promise<void> {
  const pages = askPages(Number.POSITIVE_INFINITY, async (page) => {
    type Answer = { request: { holds: Page<{ file: PlacedFile }> } | null };
    const { request } = await ask<Answer>(url, ON_DISK, { id, ...page });
    if (!request) throw new UnknownRequestError(id);
    return request.holds;
  });
  for await (const { edges } of pages) for (const { node } of edges) printPath(placeOf(node.file), options);
}

/** The end of a line that counts files on disk: some of them are on no restore disk, which nothing else of it says. */
export function atPrimaryPlace(files: number): string {
  return files === 0 ? '' : `, ${files} of them at their primary place`;
}

/** Of a request that has ended: what it had is no longer its own, whether it is on disk or not. */
export const hasLetGo = ({ state }: { state: string }): boolean => state === 'EXPIRED' || state === 'CANCELLED';

interface Places {
  restoredBelow: readonly string[];
  /** On restore disks. */
  copies: number;
}

/** Says below which directories restored files are; where some of them were renamed, how to learn it. */
export function printPlaces(id: number, { restoredBelow, copies }: Places): void {
  for (const mountpoint of restoredBelow) printLine(`restored below ${mountpoint}, each at its archive path`);
  if (restoredBelow.length === 0 && copies > 0) printLine(whereTold(id));
}

export const whereTold = (id: number) =>
  `not all of its files are at their archive paths: \`tapegate show ${id} --print-paths\` says where they are`;

const PLACES = 'query ($id: Int!) { request(id: $id) { restoredBelow filesOnDisk filesAtPrimaryPlace } }';

/** The same of a request. */
export async function tellPlaces(url: string, id: number): Promise<void> {
  type Placed = { restoredBelow: string[]; filesOnDisk: number; filesAtPrimaryPlace: number };
  const { request } = await ask<{ request: Placed | null }>(url, PLACES, { id });
  if (!request) return;
  const { restoredBelow, filesOnDisk, filesAtPrimaryPlace } = request;
  printPlaces(id, { restoredBelow, copies: filesOnDisk - filesAtPrimaryPlace });
}
