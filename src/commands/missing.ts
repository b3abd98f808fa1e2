/** What a request has no file for, so that a typo does not pass for a request that is complete. */
import { ask, type Page } from './client.js';
import { CommandError, exitCodes, UnknownRequestError } from './failure.js';
import { printable } from './output.js';
import { formatWholeTime } from './times.js';

/** Paths that are named. */
const NAMED = 20;

interface MissingNode {
  state: string;
  retention: string;
  pattern: string;
  filesTotal: number;
  filesReleased: number;
  filesUnknown: number;
  filesRefused: number;
  awaited: Page<{ path: string; reason: string }>;
}

const MISSING = `query ($id: Int!, $first: Int!) { request(id: $id) {
  state retention pattern filesTotal filesReleased filesUnknown filesRefused
  awaited(first: $first) { edges { node { path reason } } pageInfo { hasNextPage endCursor } }
} }`;

/**
 * What a request has no file for, a line each: a pattern that matches nothing, paths that the catalogue does not know, and
 * what found no room in the quota; and, while the request lives, what becomes of these. What is beyond the request's own
 * limits was meant to be.
 */
export async function findMissing(url: string, id: number): Promise<string[]> {
  const { request } = await ask<{ request: MissingNode | null }>(url, MISSING, { id, first: NAMED });
  if (!request) throw new UnknownRequestError(id);
  const { state, retention, pattern, filesTotal, filesReleased, filesUnknown, filesRefused, awaited } = request;
  const pathsOf = (reason: string) =>
    awaited.edges.filter(({ node }) => node.reason === reason).map(({ node }) => node.path);
  const lines: string[] = [];
  const isEmpty = pattern !== '' && filesTotal + filesReleased === 0 && awaited.edges.length === 0;
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

/** States in which files join a request. */
const LIVE = ['QUEUED', 'RESTORING', 'COMPLETED', 'PARTIAL'];

const BELOW = `query ($match: String!, $first: Int!) { tapeFiles(match: $match, first: $first) {
  edges { node { path } } pageInfo { hasNextPage endCursor }
} }`;

/** Paths that are looked at, and files that are looked at for each: the text may be anywhere in their paths. */
const LOOKED_AT = { paths: 5, files: 20 };

/** Those of the first unknown paths that are folders, of which files are known. It is a hint: what cannot be told is not. */
export async function findFolders(url: string, paths: readonly string[]): Promise<Set<string>> {
  const folders = new Set<string>();
  for (const path of paths.slice(0, LOOKED_AT.paths)) {
    const match = `${path}/`;
    type Answer = { tapeFiles: Page<{ path: string }> };
    try {
      const { tapeFiles } = await ask<Answer>(url, BELOW, { match, first: LOOKED_AT.files });
      if (tapeFiles.edges.some(({ node }) => node.path.startsWith(match))) folders.add(path);
    } catch (error) {
      if (!(error instanceof CommandError)) throw error; // a longest path and its slash, say, are no text to look for
    }
  }
  return folders;
}

/** A request that has finished and lacks files. */
export class IncompleteError extends CommandError {
  constructor(id: number, missing: readonly string[]) {
    super(
      `request ${id} has finished without all of its files:\n${missing.map(printable).join('\n')}`,
      exitCodes.incomplete,
    );
  }
}

/** Of a pattern, or of the text that `ls` was given. */
export function describeNoMatch(text: string, hasStages = false): string {
  const where = hasStages ? 'at these stages' : 'of the catalogue';
  return `no file ${where} has ${JSON.stringify(text)} in its path${hintFor([text])}`;
}

/** Paths that the catalogue does not know, as far as they are named. */
interface UnknownPaths {
  paths: readonly string[];
  count: number;
  folders: ReadonlySet<string>;
}

/** @param what tells how many there are @returns that, and which */
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
