/** What GNU `find -type f -printf '%s %T@ %p\n'` prints: the size in bytes, the time of modification in seconds since 1970, and the path. */
import { quote } from '../../../errors.js';
import { RowError } from '../import-lines.js';
import type { RowReader } from '../import-rows.js';
import { type ListSettings, makeEntryRow } from './list-rows.js';
import { findReturn, toPath } from './ls.js';

export const FIND_LINE = /^(\d+) (-?\d+(?:\.\d+)?) (.+)$/;

export function createFindReader(settings: ListSettings): RowReader {
  return {
    read: ({ number, text }) => {
      if (text === '') return undefined;
      const problem = findReturn(text);
      if (problem !== undefined) return new RowError(number, problem);
      const [, size, mtime, path] = FIND_LINE.exec(text) ?? [];
      if (size === undefined || mtime === undefined || path === undefined) {
        return new RowError(number, `${quote(text)} is not what find -printf '%s %T@ %p\\n' prints`);
      }
      return makeEntryRow(number, { path: toPath(path), fields: { size, mtime } }, settings);
    },
    end: () => undefined,
  };
}
