/** Finds the files for a list of paths, and suggests paths and names that are similar to unknown ones. */

import { InvalidInputError } from '../../core/errors.js';
import { findNearest } from '../../core/text/edit-distance.js';
import { askSoon } from '../../db/lists/snapshot.js';
import { sql } from '../../db/sql.js';
import type { TapeFile } from '../../generated/prisma/client.js';
import { mayPath } from '../access/paths.js';
import { isOffered } from '../conditions.js';
import type { Context } from '../context.js';
import { checkPattern, findPathProblem } from '../input.js';
import { allow } from '../policy.js';
import { listDirectory, parseDirectory, readEntry } from './directories.js';
import { readFilesByPath } from './tape-files.js';

export interface PathMatch {
  path: string;
  /** The file; null if the catalogue contains no file with the path that can be requested. */
  file: TapeFile | null;
  /** Paths of files that are similar to an unknown path. */
  suggestions: string[];
}

const MAX_PATHS = 1000;
/** Maximum number of unknown paths that get suggestions, and of suggestions for each path. */
const MAX_SUGGESTED = 50;
const SUGGESTIONS = 3;
/** Time in milliseconds after which the other unknown paths get no suggestions. */
const SUGGESTING_MS = 5000;

/**
 * Finds the file with each path. Files that the caller may not list, and withdrawn files, count as unknown.
 * @throws InvalidInputError
 */
export async function matchPaths(ctx: Context, paths: readonly string[]): Promise<PathMatch[]> {
  allow(ctx, 'listFiles');
  if (paths.length > MAX_PATHS) {
    throw new InvalidInputError('paths', `must contain at most ${MAX_PATHS} paths, not ${paths.length}`);
  }
  const valid = paths.filter((path) => findPathProblem(path) === undefined);
  const files = await readFilesByPath(ctx, valid);
  const names = createNameReader(ctx);
  const end = performance.now() + SUGGESTING_MS;
  let left = MAX_SUGGESTED;
  const isValid = new Set(valid);
  const matches: PathMatch[] = [];
  for (const path of paths) {
    const file = files.get(path);
    const isKnown = file !== undefined && file.withdrawnAt === null;
    const isSuggested = !isKnown && isValid.has(path) && left-- > 0 && performance.now() < end;
    matches.push({
      path,
      file: isKnown ? file : null,
      suggestions: isSuggested ? await suggestPaths(names, path) : [],
    });
  }
  return matches;
}

type NameReader = (directory: string, name: string, kind: 'file' | 'directory') => Promise<string[]>;

/** Follows the path from the root, and keeps the most similar entries at each level. */
async function suggestPaths(read: NameReader, path: string): Promise<string[]> {
  const parts = path.slice(1).split('/');
  let found = [''];
  for (const [level, part] of parts.entries()) {
    const kind = level === parts.length - 1 ? 'file' : 'directory';
    const below: string[] = [];
    for (const directory of found) {
      for (const name of await read(directory, part, kind)) below.push(`${directory}/${name}`);
    }
    found = below.slice(0, SUGGESTIONS);
  }
  return found;
}

/** Number of entries of a directory that are compared with a name. */
const NEIGHBOURS = 1000;

/**
 * Returns a function that finds a directory's entries with the same name, or with similar names. Remembers the entries
 * of small directories.
 */
function createNameReader(ctx: Context): NameReader {
  const known = new Map<string, Promise<Named[]>>();
  const readFrom = (directory: string, prefix: string): Promise<Named[]> => {
    const key = `${directory}/${prefix}`;
    const entries = known.get(key) ?? readNames(ctx, directory, prefix);
    known.set(key, entries);
    return entries;
  };
  return async (directory, name, kind) => {
    const nearest = (entries: readonly Named[]) =>
      findNearest(
        name,
        entries.filter(({ isDirectory }) => isDirectory === (kind === 'directory')).map((entry) => entry.name),
        SUGGESTIONS,
      );
    const entry = kind === 'directory' ? await readEntry(ctx, `${directory}/${name}`) : undefined;
    if (entry?.isDirectory) return [name];
    const first = await readFrom(directory, '');
    if (first.length <= NEIGHBOURS) return nearest(first);
    for (const prefix of prefixesOf(name)) {
      const found = nearest(await readFrom(directory, prefix));
      if (found.length > 0) return found;
    }
    return nearest(first);
  };
}

/** Returns the beginnings of a name by which similar names are looked up. */
function prefixesOf(name: string): string[] {
  const [letter = ''] = name;
  const half = name.slice(0, Math.ceil(name.length / 2));
  return [
    ...new Set([half, half.toLowerCase(), half.toUpperCase(), letter, letter.toLowerCase(), letter.toUpperCase()]),
  ];
}

interface Named {
  name: string;
  isDirectory: boolean;
}

async function readNames(ctx: Context, directory: string, prefix: string): Promise<Named[]> {
  const after = prefix === '' ? undefined : { path: `${directory}/${prefix}`, isDirectory: false };
  const entries = await listDirectory(ctx, directory, { limit: NEIGHBOURS, after });
  return entries.map(({ path, isDirectory }) => ({ name: path.slice(directory.length + 1), isDirectory }));
}

/** Number of paths from which similar names are chosen. */
const SIMILAR_PATHS = 1000;

/**
 * Returns names that are similar to a word: names of files and directories, and words in these names. Compares the word
 * with the entries of a directory, and with names anywhere in the catalogue. Omits the latter if finding them takes
 * longer than a second.
 * @throws InvalidInputError
 */
export async function suggestNames(
  ctx: Context,
  { word, directory }: { word: string; directory: string },
): Promise<string[]> {
  allow(ctx, 'listFiles');
  const { db, share, reader } = ctx;
  const here = await readNames(ctx, parseDirectory(ctx, directory), '');
  const rows = await askSoon<{ path: string }>(
    { db, share, reader },
    sql`SELECT f.path FROM tape_file f WHERE f.path %> ${checkPattern('word', word)} AND ${isOffered} AND ${mayPath(ctx, 'LIST')}
        LIMIT ${SIMILAR_PATHS}`,
  );
  const names = [...here.map(({ name }) => name), ...(rows ?? []).flatMap(({ path }) => path.split('/'))];
  const all = new Set(names.flatMap((name) => [name, ...name.split(DELIMITER)]));
  all.delete('');
  all.delete(word);
  return findNearest(word, [...all], SUGGESTIONS);
}

const DELIMITER = /[_\-.+=,:@~ ]/;
