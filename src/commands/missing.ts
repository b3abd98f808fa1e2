/** What a request has no file for, so that a typo does not pass for a request that is complete. */
import { ask, type Page } from './client.js';
import { CommandError, exitCodes, UnknownRequestError } from './failure.js';
import { printable } from './output.js';

/** Paths that are named. */
const NAMED = 20;

interface MissingNode {
  pattern: string;
  filesTotal: number;
  filesReleased: number;
  filesUnknown: number;
  filesRefused: number;
  awaited: Page<{ path: string; reason: string }>;
}

const MISSING = `query ($id: Int!, $first: Int!) { request(id: $id) {
  pattern filesTotal filesReleased filesUnknown filesRefused
  awaited(first: $first) { edges { node { path reason } } pageInfo { hasNextPage endCursor } }
} }`;

/**
 * What a request has no file for, a line each: a pattern that matches nothing, paths that the catalogue does not know, and
 * what found no room in the quota. What is beyond the request's own limits was meant to be.
 */
export async function findMissing(url: string, id: number): Promise<string[]> {
  const { request } = await ask<{ request: MissingNode | null }>(url, MISSING, { id, first: NAMED });
  if (!request) throw new UnknownRequestError(id);
  const { pattern, filesTotal, filesReleased, filesUnknown, filesRefused, awaited } = request;
  const pathsOf = (reason: string) =>
    awaited.edges.filter(({ node }) => node.reason === reason).map(({ node }) => node.path);
  const lines: string[] = [];
  const isEmpty = filesTotal + filesReleased === 0 && awaited.edges.length === 0;
  if (pattern !== '' && isEmpty) lines.push(describeNoMatch(pattern));
  if (filesUnknown > 0) {
    lines.push(...describeUnknown('of its paths are not in the catalogue', pathsOf('UNKNOWN'), filesUnknown));
  }
  if (filesRefused > 0) {
    lines.push(`${filesRefused} of its files found no room in the quota:`);
    lines.push(...listPaths(pathsOf('QUOTA_FULL'), filesRefused));
  }
  return lines;
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

/** How many paths are unknown, and which. */
export function describeUnknown(what: string, paths: readonly string[], count: number): string[] {
  return [`${count} ${what}${hintFor(paths)}:`, ...listPaths(paths, count)];
}

function hintFor(texts: readonly string[]): string {
  const wildcards = texts.some((text) => /[*?[\]]/.test(text)) ? ', and * ? [ ] stand for themselves' : '';
  return ` (upper and lower case differ${wildcards})`;
}

function listPaths(paths: readonly string[], count: number): string[] {
  const more = count > paths.length ? [`  and ${count - paths.length} more`] : [];
  return [...paths.map((path) => `  ${path}`), ...more];
}
