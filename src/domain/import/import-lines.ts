/** Reads the lines and CSV records of an import, plain or gzipped, and reports invalid lines. */
import { isUtf8 } from 'node:buffer';
import { pipeline, type Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { messageOf, quote } from '../../core/errors.js';
import { describeEncoding, isUtf16 } from '../../core/text/file-names.js';

/**
 * A line of the import's input, numbered from 1. Its text does not contain the line feed, but can end with a carriage
 * return.
 */
export interface Line {
  number: number;
  /** Text of the line, in which U+FFFD replaces bytes that are not valid UTF-8. */
  text: string;
  /**
   * Printable form of a line that is not valid UTF-8, with escapes such as `\xe9`; absent if the line is valid UTF-8.
   */
  notUtf8?: string;
}

export const MAX_FAULTS = 20;

/** Error for a rejected import, with a line of text for each fault in the input. */
export class ImportError extends Error {
  readonly faults: string[];

  /**
   * @param faults descriptions of the faults; MAX_FAULTS + 1 descriptions if the input contains more than MAX_FAULTS
   *   faults
   * @param options.hasNames whether some faults are invalid names, which an import can skip
   */
  constructor(faults: string[], { hasNames = false } = {}) {
    const listed = faults.slice(0, MAX_FAULTS);
    const more = faults.length > MAX_FAULTS ? `\n  … (only the first ${MAX_FAULTS} errors are listed)` : '';
    const hint = hasNames ? '\nuse --skip-invalid to skip rows with names that cannot be restored' : '';
    super(`nothing was imported:\n${listed.map((fault) => `  ${fault}`).join('\n')}${more}${hint}`);
    this.faults = listed;
  }
}

/** A file name that is not allowed on restore disks. */
export interface BadName {
  /**
   * Valid form of the invalid path; undefined if the path has no valid form. The catalogue might already contain a file
   * at the valid path, because another list might contain the path in its valid form.
   */
  namesake: string | undefined;
}

export class RowError extends Error {
  readonly line: number;
  readonly problem: string;
  /** The row's invalid name. If this field is set, the row's remaining fields were not checked. */
  readonly badName: BadName | undefined;

  constructor(line: number, problem: string, badName?: BadName) {
    super(`line ${line}: ${problem}`);
    this.line = line;
    this.problem = problem;
    this.badName = badName;
  }
}

/**
 * Maximum length of a line in bytes. A valid row is never that long. Without the limit, an input without line feeds
 * would fill the memory.
 */
const MAX_LINE_BYTES = 1024 * 1024;

const LINE_FEED = 0x0a;

/**
 * Yields a file's lines in batches, without a byte order mark. `offset` is added to all line numbers.
 * @throws RowError if a line is too long, or gzipped data are damaged
 */
export async function* readLines(input: Readable, offset = 0): AsyncGenerator<Line[]> {
  let number = offset;
  let rest: Buffer = Buffer.alloc(0);
  const take = (bytes: Buffer): Line[] => {
    if (isUtf16(bytes)) throw new RowError(number + 1, describeEncoding(bytes));
    const text = number === offset ? bytes.toString().replace(/^\uFEFF/, '') : bytes.toString();
    const bad = isUtf8(bytes) ? undefined : findBadLines(bytes);
    return text.split('\n').map((line, n) => {
      const notUtf8 = bad?.get(n);
      return { number: ++number, text: line, ...(notUtf8 !== undefined && { notUtf8 }) };
    });
  };
  try {
    for await (const chunk of unzip(input)) {
      const bytes = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
      const end = bytes.lastIndexOf(LINE_FEED) + 1;
      rest = bytes.subarray(end);
      if (end > 0) yield take(bytes.subarray(0, end - 1));
      if (rest.length > MAX_LINE_BYTES) throw new RowError(number + 1, describeLongLine(rest));
    }
  } catch (error) {
    throw error instanceof GzipError ? new RowError(number + 1, error.message) : error;
  }
  if (rest.length > 0) yield take(rest);
}

export const JSON_ARRAY =
  'the input must not be a JSON array; write each row as an object on its own line (JSON Lines), for example with jq -c ".[]"';

const describeLongLine = (line: Buffer): string =>
  /^(\uFEFF)?\s*\[/.test(line.toString('utf8', 0, 64)) ? JSON_ARRAY : `the line is longer than ${MAX_LINE_BYTES} bytes`;

/**
 * Returns the lines that are not UTF-8, as printable text. A key of the map is the number of the line in `bytes`,
 * counted from 0.
 */
function findBadLines(bytes: Buffer): Map<number, string> {
  const bad = new Map<number, string>();
  for (let index = 0, start = 0; start <= bytes.length; index++) {
    const end = bytes.indexOf(LINE_FEED, start);
    const line = bytes.subarray(start, end < 0 ? bytes.length : end);
    const escapeByte = (character: string) => `\\x${character.charCodeAt(0).toString(16)}`;
    if (!isUtf8(line)) bad.set(index, line.toString('latin1').replace(/[\u0080-\u00ff]/g, escapeByte));
    start += line.length + 1;
  }
  return bad;
}

class GzipError extends Error {}

/** Yields the input, after decompressing gzip. Detects gzip by its first two bytes. */
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
    yield* pipeline(whole, gunzip, () => {}) as AsyncIterable<Buffer>;
  } catch (error) {
    if (input.errored) throw error;
    throw new GzipError(`the gzip data is damaged here: ${messageOf(error)}`);
  }
}

interface CsvRow<Column extends string> {
  line: number;
  fields: Partial<Record<Column, string | null>>;
}

export interface LineReader<Row> {
  /**
   * Returns the row that ends on the given line, or an error if the row is invalid. Returns undefined if no row ends on
   * the line, for example because the row continues on the next line.
   * @throws RowError if the reader cannot parse the rest of the input
   */
  read(line: Line): Row | RowError | undefined;
  end(): RowError | undefined;
}

interface CsvColumns<Column extends string> {
  known: readonly Column[];
  needed: readonly Column[];
  /**
   * Column names (`names`) for a file without a header. `from` describes the source of these names in error messages.
   */
  header?: { names: readonly Column[]; from: string };
}

/** Creates a reader of CSV (RFC 4180). The first record contains the column names, unless `columns.header` is given. */
export function createCsvReader<Column extends string>(columns: CsvColumns<Column>): LineReader<CsvRow<Column>> {
  const { known, needed, header: { names: given, from } = { names: undefined, from: 'the first line' } } = columns;
  const splitter = createCsvSplitter();
  let header = given;
  return {
    read: (line) => {
      const record = splitter.read(line);
      if (!record) return undefined;
      if (record instanceof RowError) {
        if (header) return record;
        throw record;
      }
      if (!header) {
        const problem = findHeaderProblem(record.fields, { known, needed });
        if (problem !== undefined) throw new RowError(record.line, problem);
        header = record.fields as Column[];
        return undefined;
      }
      const { fields } = record;
      if (fields.length !== header.length) {
        const problem = `expected ${header.length} fields, as in ${from}, not ${fields.length}`;
        return new RowError(record.line, problem);
      }
      const row: CsvRow<Column> = { line: record.line, fields: {} };
      for (const [index, name] of header.entries()) row.fields[name] = fields[index] || null;
      return row;
    },
    end: () => {
      const fault = splitter.end();
      if (header || fault) return fault;
      return new RowError(1, `the file is empty; its first line must name the columns: ${known.join(',')}`);
    },
  };
}

function findHeaderProblem(names: readonly string[], { known, needed }: CsvColumns<string>): string | undefined {
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined) return `there is no column ${quote(unknown)}; the columns are ${known.join(',')}`;
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) return `the column ${twice} is given twice`;
  const missing = needed.find((name) => !names.includes(name));
  return missing && `the column ${missing} is missing`;
}

interface CsvRecord {
  line: number;
  fields: string[];
  open: string | undefined;
}

const NOT_CLOSED = 'this row contains a quoted field without a closing quote';

function createCsvSplitter(): LineReader<CsvRecord> {
  let open: CsvRecord | undefined;
  return {
    read: ({ number, text }) => {
      const end = text.endsWith('\r') ? '\r\n' : '\n';
      const line = text.slice(0, text.length + 1 - end.length);
      if (!open && line === '') return undefined;
      const record = open ?? { line: number, fields: [], open: undefined };
      const problem = readFields(record, line, end);
      open = problem === undefined && record.open !== undefined ? record : undefined;
      if (problem !== undefined) return new RowError(record.line, problem);
      return open ? undefined : record;
    },
    end: () => open && new RowError(open.line, NOT_CLOSED),
  };
}

function readFields(record: CsvRecord, line: string, end: string): string | undefined {
  for (let at = 0; ; ) {
    if (record.open === undefined && line[at] !== '"') {
      const comma = line.indexOf(',', at);
      const field = line.slice(at, comma < 0 ? line.length : comma);
      if (field.includes('"'))
        return 'a field that contains a double quote must be enclosed in double quotes, and each double quote in it must be doubled';
      record.fields.push(field);
      if (comma < 0) return undefined;
      at = comma + 1;
      continue;
    }
    if (record.open === undefined) at++;
    record.open ??= '';
    const close = line.indexOf('"', at);
    record.open += close < 0 ? line.slice(at) + end : line.slice(at, close);
    if (close < 0) return record.open.length > MAX_LINE_BYTES ? NOT_CLOSED : undefined;
    at = close + 1;
    if (line[at] === '"') {
      record.open += '"';
      at++;
      continue;
    }
    record.fields.push(record.open);
    record.open = undefined;
    if (at === line.length) return undefined;
    if (line[at] !== ',') return `expected a comma after a quoted field, not ${JSON.stringify(line[at])}`;
    at++;
  }
}
