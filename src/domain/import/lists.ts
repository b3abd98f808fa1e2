/**
 * Converts lists printed by the program `find` into import rows. The settings contain values that the lists do not
 * contain, such as the volume.
 */
import { quote } from '../../core/errors.js';
import { findPathProblem } from '../input.js';
import { RowError } from './import-lines.js';
import { type CatalogueRow, checkRow, type Fields, type RowReader } from './import-rows.js';

export interface ListSettings {
  volume: string;
  library?: string | undefined;
  spot?: string | undefined;
  /** Text to insert before each path, such as `/archive`; can be empty. */
  prefix: string;
  /**
   * Text to remove from the beginning of each path before the prefix is inserted, such as `/hpss/archive`; can be
   * empty.
   */
  strip: string;
}

export type Skipped = Map<string, number>;

/** Returns the import row for a file in a list, or an error if the row is invalid. */
export function makeEntryRow(
  line: number,
  { path, ...fields }: Fields & { path: string },
  { volume, library, spot, prefix, strip }: ListSettings,
): CatalogueRow | RowError {
  const whole = path.startsWith('/') ? path : `/${path}`;
  if (!whole.startsWith(`${strip}/`))
    return new RowError(line, `${quote(whole)} is not below ${quote(strip)} (--strip)`);
  if (whole.endsWith('/')) return new RowError(line, `path ${findPathProblem(whole)}`, { namesake: undefined });
  const fixed = { volume, ...(library !== undefined && { library }), ...(spot !== undefined && { spot_name: spot }) };
  return checkRow(line, { ...fields, ...fixed, path: prefix + whole.slice(strip.length), stage: 'T' });
}

export function countSkipped(skipped: Skipped, kind: string): undefined {
  skipped.set(kind, (skipped.get(kind) ?? 0) + 1);
  return undefined;
}

/** Returns the import row for a directory in a list; undefined for the archive's root. */
function makeDirectoryRow(
  line: number,
  { path, mode, gid }: { path: string; mode: string | undefined; gid: string | undefined },
  { prefix, strip }: ListSettings,
): CatalogueRow | RowError | undefined {
  const whole = `/${path.replace(/^(\.?\/)+|^\.$/, '')}/`.replace(/\/+/g, '/');
  if (!whole.startsWith(`${strip}/`))
    return new RowError(line, `${quote(whole)} is not below ${quote(strip)} (--strip)`);
  const named = prefix + whole.slice(strip.length);
  return named === '/' ? undefined : checkRow(line, { path: named, mode: mode ?? null, gid: gid ?? null });
}

/**
 * Output of GNU `find -type f,d -printf '%y %s %T@ %m %U %G %p\n'`: type, bytes, modification time in seconds since
 * 1970, mode, owner, group and path. The type is optional. A line may also omit the mode, owner and group, but only all
 * three together.
 */
const FIND_LINE =
  /^(?:(?<type>[fd]) )?(?<size>\d+) (?<mtime>-?\d+(?:\.\d+)?) (?:(?<mode>[0-7]{1,4}) (?<uid>\d+) (?<gid>\d+) )?(?<path>.+)$/;

export function createFindReader(settings: ListSettings): RowReader {
  let isEmpty = true;
  return {
    read: ({ number, text }) => {
      if (text === '') return undefined;
      isEmpty = false;
      if (text.endsWith('\r')) return new RowError(number, `${quote(text)} ends with a carriage return`);
      const { path = '', type, ...fields } = FIND_LINE.exec(text)?.groups ?? {};
      if (path === '') {
        return new RowError(number, `${quote(text)} is not in the format of find -printf '%s %T@ %m %U %G %p\\n'`);
      }
      if (type === 'd') return makeDirectoryRow(number, { path, mode: fields.mode, gid: fields.gid }, settings);
      // remove `./`, because `find .` prints the file `a` as `./a`
      return makeEntryRow(number, { ...fields, path: path.replace(/^(\.\/)+/, '') }, settings);
    },
    end: () => (isEmpty ? new RowError(1, 'the list is empty') : undefined),
  };
}

export const listFormats = ['find', 's3-inventory'] as const;
export type ListFormat = (typeof listFormats)[number];
