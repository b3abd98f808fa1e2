/** Lists that `ls` or `find` has printed: the first line says which of the two it was. */
import { RowError } from '../import-lines.js';
import type { RowReader } from '../import-rows.js';
import { createFindReader, FIND_LINE } from './find.js';
import type { ListSettings, Skipped } from './list-rows.js';
import { createLsReader } from './ls.js';

/** @param skipped is told what was left out */
export function createPlainReader(settings: ListSettings, skipped: Skipped): RowReader {
  let reader: RowReader | undefined;
  return {
    read: (line) => {
      if (!reader && line.text === '') return undefined;
      reader ??= FIND_LINE.test(line.text) ? createFindReader(settings) : createLsReader(settings, skipped);
      return reader.read(line);
    },
    end: () => (reader ? reader.end() : new RowError(1, 'the list is empty')),
  };
}
