/** The lines of an import: unzipped where they are gzipped, and checked to be UTF-8. */
import { isUtf8 } from 'node:buffer';
import { pipeline, type Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { messageOf } from '../../errors.js';

/** A physical line, from 1, without its line feed; a carriage return before it is still there. */
export interface Line {
  number: number;
  text: string;
}

/** A fault of one row, told by the line on which the row begins. */
export class RowError extends Error {
  readonly line: number;
  readonly problem: string;

  constructor(line: number, problem: string) {
    super(`line ${line}: ${problem}`);
    this.line = line;
    this.problem = problem;
  }
}

/** Longer than any row can be: a file without line ends must not fill the memory. */
export const MAX_LINE_BYTES = 1024 * 1024;

const LINE_FEED = 0x0a;

/**
 * The lines of a file, some at a time, without the mark of UTF-8 that may stand before the first.
 * @throws RowError when a line is not UTF-8 or too long, or where gzipped data break off; what the input itself throws
 */
export async function* readLines(input: Readable): AsyncGenerator<Line[]> {
  let number = 0;
  let rest: Buffer = Buffer.alloc(0);
  try {
    for await (const chunk of unzip(input)) {
      const bytes = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
      const end = bytes.lastIndexOf(LINE_FEED) + 1;
      rest = bytes.subarray(end);
      if (end > 0) {
        const lines = splitLines(bytes.subarray(0, end - 1), number + 1);
        number += lines.length;
        yield lines;
      }
      if (rest.length > MAX_LINE_BYTES) throw new RowError(number + 1, `longer than ${MAX_LINE_BYTES} bytes`);
    }
  } catch (error) {
    throw error instanceof GzipError ? new RowError(number + 1, error.message) : error;
  }
  if (rest.length > 0) yield splitLines(rest, number + 1);
}

/** No byte of a longer character is a line feed, so bytes may be cut there. */
function splitLines(bytes: Buffer, first: number): Line[] {
  if (!isUtf8(bytes)) throw new RowError(first + findBadLine(bytes), 'is not valid UTF-8');
  const text = bytes.toString('utf8');
  return (first === 1 ? text.replace(/^\uFEFF/, '') : text)
    .split('\n')
    .map((line, index) => ({ number: first + index, text: line }));
}

/** The index of the first line that is not UTF-8. */
function findBadLine(bytes: Buffer): number {
  for (let index = 0, start = 0; ; index++) {
    const end = bytes.indexOf(LINE_FEED, start);
    if (end < 0 || !isUtf8(bytes.subarray(start, end))) return index;
    start = end + 1;
  }
}

class GzipError extends Error {}

/** Gzip is known by its first two bytes, which a pipe may bring one by one. */
async function* unzip(input: Readable): AsyncGenerator<Buffer> {
  const chunks: AsyncIterator<Buffer> = input[Symbol.asyncIterator]();
  const waiting: Buffer[] = [];
  let head: Buffer = Buffer.alloc(0);
  while (head.length < 2) {
    const next = await chunks.next();
    if (next.done) break;
    waiting.push(next.value);
    head = Buffer.concat(waiting);
  }
  const whole = async function* () {
    yield* waiting;
    yield* { [Symbol.asyncIterator]: () => chunks } as AsyncIterable<Buffer>;
  };
  if (head[0] !== 0x1f || head[1] !== 0x8b) {
    yield* whole();
    return;
  }
  const gunzip = createGunzip();
  try {
    yield* pipeline(whole, gunzip, () => {}) as AsyncIterable<Buffer>; // an error reaches the reader
  } catch (error) {
    if (input.errored) throw error;
    throw new GzipError(`the gzipped data are damaged here: ${messageOf(error)}`);
  }
}
