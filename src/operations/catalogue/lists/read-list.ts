/** Reads the rows of a list, and tells of which format a file is. */
import type { Readable } from 'node:stream';
import { RowError, readLines } from '../import-lines.js';
import type { CatalogueRow, RowReader } from '../import-rows.js';
import { FIND_LINE } from './find.js';

/** @param first the number of its first line, where it goes on after another file @returns how many lines it has */
export async function* readList(
  input: Readable,
  reader: RowReader,
  first = 1,
): AsyncGenerator<CatalogueRow | RowError, number> {
  const offset = first - 1;
  let last = 0;
  try {
    for await (const lines of readLines(input)) {
      for (const { number, text } of lines) {
        const row = reader.read({ number: number + offset, text });
        if (row) yield row;
        last = number;
      }
    }
    const fault = reader.end();
    if (fault) yield fault;
  } catch (error) {
    if (!(error instanceof RowError)) throw error;
    yield offset === 0 ? error : new RowError(error.line + offset, error.problem);
  } finally {
    input.destroy();
  }
  return last;
}

export const listFormats = ['csv', 'jsonl', 'ls', 's3-inventory'] as const;
export type ListFormat = (typeof listFormats)[number];

const LS_LINE = /^(?:total \d+|[-A-Za-z?][-rwxsStT]{9}[.+@]? +\d+ .*)$/;
/** Names of columns, of which the path is one. */
const CSV_HEADER = /^(?=.*\bpath\b)"?[a-z_]+"?(?:,"?[a-z_]+"?)*\r?$/;
const MANIFEST = /^\s*\{[^{}]*"(?:sourceBucket|fileSchema)"\s*:/;

/**
 * What a file is, by its first lines; undefined where that is not certain.
 * @param head its beginning, unzipped
 */
export function detectFormat(head: string): ListFormat | undefined {
  const lines = head
    .replace(/^\uFEFF/, '')
    .split('\n')
    .filter((line) => line.trim() !== '');
  const [first = '', second = ''] = lines;
  if (first.trimStart().startsWith('{')) return MANIFEST.test(head) ? 's3-inventory' : 'jsonl';
  if (CSV_HEADER.test(first)) return 'csv';
  if (FIND_LINE.test(first) || LS_LINE.test(first) || (first.endsWith(':') && LS_LINE.test(second))) return 'ls';
  return undefined;
}
