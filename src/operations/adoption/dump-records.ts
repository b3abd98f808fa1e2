/** The lines of a dump, none of them longer than a row can be. */
import type { Readable } from 'node:stream';
import { SourceError } from './tables.js';

/** Of a line, and of a statement of several: a request of two million files has less. What has no line ends must not fill the memory. */
const MAX_RECORD_BYTES = 128_000_000;

/** @param of.name of the dump, for messages @throws SourceError where more bytes than a record may have came without its end */
export function checkRecord(bytes: number, of: { name: string; line: number }): void {
  if (bytes <= MAX_RECORD_BYTES) return;
  const most = `${MAX_RECORD_BYTES / 1e6} MB`;
  throw new SourceError(`${of.name}, line ${of.line}: it goes on for more than ${most}, which no row of a dump has`);
}

/**
 * At line feeds alone: texts of people hold what else may end a line. One may be as long as a statement of many rows. A character stands
 * for a byte: rows of other tables need be no text.
 */
export async function* readRecords(input: Readable, name: string): AsyncGenerator<string> {
  const open: string[] = [];
  let bytes = 0;
  let line = 1;
  input.setEncoding('latin1');
  for await (const chunk of input as AsyncIterable<string>) {
    const [first = '', ...others] = chunk.split('\n');
    open.push(first);
    bytes += first.length;
    checkRecord(bytes, { name, line });
    const last = others.pop();
    if (last === undefined) continue;
    yield open.splice(0).join('');
    yield* others;
    line += others.length + 1;
    open.push(last);
    bytes = last.length;
  }
  if (open.length > 0) yield open.join('');
}
