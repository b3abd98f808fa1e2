/** Reads catalogue rows from CSV or JSON Lines, plain or gzipped, and reports each invalid row with its line number. */
import type { Readable } from 'node:stream';
import { messageOf, quote } from '../../core/errors.js';
import { type Stage, stageLetters, stageOfLetter } from '../../core/stages.js';
import { parseTime } from '../../core/time.js';
import { parseFileTime, parseMode, parseOwner } from '../catalogue/attributes.js';
import { findNamesake, findPathProblem } from '../input.js';
import {
  createCsvReader,
  ImportError,
  JSON_ARRAY,
  type Line,
  type LineReader,
  MAX_FAULTS,
  RowError,
  readLines,
} from './import-lines.js';

/** A row of an import. An undefined field keeps the value in the catalogue, and a null field clears it. */
export interface CatalogueRow {
  line: number;
  /**
   * Path of a file or a directory. A directory's path ends with a slash. A directory's row contains only a mode and a
   * group.
   */
  path: string;
  size: bigint;
  /**
   * Stage that the import sets, such as ONTAPE. If it is null, a file that the catalogue already contains keeps its
   * stage, and a new file becomes UNVERIFIED.
   */
  stage: Stage | null;
  verified: string | null | undefined;
  spotName: string | null | undefined;
  volume: string | null | undefined;
  /** Library to which a new volume is added. Default: the first library. */
  library?: string | null | undefined;
  position: bigint | null | undefined;
  checksum: string | null | undefined;
  /**
   * Adler-32 checksum that the command `archive` computes. If the row has no Adler-32 checksum and its `checksum`
   * equals the catalogue's, the catalogue keeps the file's Adler-32 checksum.
   */
  adler32?: string | undefined;
  /** Volume of a second copy of the same bytes. */
  copyVolume?: string | null | undefined;
  copyPosition?: bigint | null | undefined;
  mode?: number | null | undefined;
  mtime?: string | null | undefined;
  uid?: bigint | null | undefined;
  gid?: bigint | null | undefined;
  /**
   * Whether this row stands for a skipped row whose path was invalid. The field `path` then contains the valid form of
   * the skipped path. A complete list does not withdraw the file at this path.
   */
  isNamesake?: boolean;
}

const columns = [
  ...(['path', 'size', 'stage', 'verified', 'spot_name', 'volume', 'library', 'position', 'checksum'] as const),
  ...(['copy_volume', 'copy_position', 'mode', 'mtime', 'uid', 'gid'] as const),
] as const;

type Column = (typeof columns)[number];
/** Text of each field in a row. An empty field is null. If the input has no such column, the field is undefined. */
export type Fields = Partial<Record<Column, string | null>>;

export type RowReader = LineReader<CatalogueRow>;

export type RowSource = AsyncIterable<CatalogueRow | RowError> | Iterable<CatalogueRow | RowError>;

/**
 * Yields the rows of an import's input, and an error in place of each invalid row. Closes the input, even after an
 * error.
 */
export async function* readRows(input: Readable): AsyncGenerator<CatalogueRow | RowError> {
  let reader: RowReader | undefined;
  yield* readWith(input, {
    read: (line) => {
      if (!reader && line.text.trim() === '') return undefined;
      if (!reader && line.text.trimStart().startsWith('[')) throw new RowError(line.number, JSON_ARRAY);
      reader ??= line.text.trimStart().startsWith('{') ? jsonReader : createCatalogueReader();
      return reader.read(line);
    },
    end: () => (reader ?? createCatalogueReader()).end(),
  });
}

/**
 * Yields the rows that a reader returns, and then closes the input. `offset` is added to all line numbers.
 * @returns the number of lines in the input
 */
export async function* readWith(
  input: Readable,
  reader: RowReader,
  offset = 0,
): AsyncGenerator<CatalogueRow | RowError, number> {
  let count = 0;
  /** The first line of the current row that is not valid UTF-8; undefined if all its lines are valid. */
  let bad: Line | undefined;
  try {
    for await (const lines of readLines(input, offset)) {
      for (const line of lines) {
        if (line.notUtf8 !== undefined) bad ??= line;
        const row = reader.read(line);
        if (row) yield bad ? notUtf8(bad, row) : row;
        if (row) bad = undefined;
      }
      count += lines.length;
    }
    const fault = reader.end();
    if (bad) yield notUtf8(bad, undefined);
    else if (fault) yield fault;
  } catch (error) {
    if (!(error instanceof RowError)) throw error;
    yield bad ? notUtf8(bad, undefined) : error;
  } finally {
    input.destroy();
  }
  return count;
}

/**
 * Returns the error for a line that is not UTF-8. `row` is the result of reading the line with replacement characters.
 */
function notUtf8({ number, notUtf8: shown = '' }: Line, row: CatalogueRow | RowError | undefined): RowError {
  const isName = row !== undefined && (!(row instanceof RowError) || row.badName !== undefined);
  const namesake = row instanceof RowError ? row.badName?.namesake : row?.path;
  return new RowError(number, `is not valid UTF-8: ${quote(shown)}`, isName ? { namesake } : undefined);
}

function createCatalogueReader(): RowReader {
  const csv = createCsvReader<Column>({ known: columns, needed: ['path', 'size'] });
  return {
    read: (line) => {
      const row = csv.read(line);
      return !row || row instanceof RowError ? row : checkRow(row.line, row.fields);
    },
    end: csv.end,
  };
}

const jsonReader: RowReader = {
  read: ({ number, text }) => (text.trim() === '' ? undefined : parseLine(number, text)),
  end: () => undefined,
};

function parseLine(line: number, text: string): CatalogueRow | RowError {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return new RowError(line, `not JSON: ${messageOf(error)}`);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return new RowError(line, `must be a JSON object, not ${quote(text)}`);
  }
  if ('namesake' in value) return namesakeRow(line, String(value.namesake));
  const fields: Fields = {};
  for (const [name, field] of Object.entries(value)) {
    const problem = findFieldProblem(name, field);
    if (problem !== undefined) return new RowError(line, problem);
    fields[name as Column] = field === null || field === '' ? null : String(field);
  }
  return checkRow(line, fields);
}

function findFieldProblem(name: string, field: unknown): string | undefined {
  if (!columns.includes(name as Column)) {
    return `there is no column ${quote(name)}; the columns are ${columns.join(',')}`;
  }
  if (typeof field === 'string' || field === null) return undefined;
  if (typeof field !== 'number') return `${name} must be text or a number, not ${quote(JSON.stringify(field))}`;
  if (name === 'mode') return `mode must be text, with ${MODE}, not the number ${field}`;
  if (!Number.isInteger(field) || Number.isSafeInteger(field)) return undefined;
  return `${name} must be a quoted string, because JSON numbers beyond 2^53 are rounded`;
}

const TIME = 'a UTC date-time YYYY-MM-DDTHH:MM:SS[.ffffff]';
const MODE = 'up to four octal digits such as 0640';
const OWNER = 'a number from 0 to 4294967294';
const NAME = 'a name of at most 255 characters';

/** Description of the valid values, which follows "must be" in an error message. */
type Expected = string | ((text: string) => string);

/**
 * Returns the row, or an error for its first invalid field. Checks fields without a zod schema, which would be 2.7
 * times slower.
 */
export function checkRow(line: number, fields: Fields): CatalogueRow | RowError {
  let fault: RowError | undefined;
  const fail = (column: Column, expected: string) => {
    fault ??= new RowError(line, `${column} must be ${expected}, not ${quote(fields[column] ?? '')}`);
  };
  const read = <Value>(column: Column, parse: (text: string) => Value | undefined, expected: Expected) => {
    const text = fields[column];
    if (!text) return text === undefined ? undefined : null;
    const value = parse(text);
    if (value === undefined) fail(column, typeof expected === 'string' ? expected : expected(text));
    return value;
  };
  const path = fields.path ?? '';
  if (path === '') fail('path', 'given');
  const isDirectory = path.length > 1 && path.endsWith('/');
  const problem = fault ? undefined : findPathProblem(isDirectory ? path.slice(0, -1) : path);
  if (problem !== undefined) {
    return new RowError(line, `path ${problem}`, { namesake: isDirectory ? undefined : findNamesake(path) });
  }
  if (isDirectory && !fields.mode) fail('mode', `${MODE}, for a directory`);
  if (!isDirectory && !fields.size) fail('size', 'a whole number of bytes');
  const row: CatalogueRow = {
    line,
    path,
    size: read('size', parseInteger, 'a whole number of bytes') ?? 0n,
    stage: read('stage', stageOfLetter, 'one of the letters U, D, T, A, R') ?? null,
    verified: read('verified', parseTime, `${TIME} without a zone`),
    spotName: read('spot_name', parseName, NAME),
    volume: read('volume', parseName, NAME),
    library: read('library', parseName, NAME),
    position: read('position', parseInteger, 'a whole number'),
    checksum: read('checksum', parseChecksum, expectChecksum),
    copyVolume: read('copy_volume', parseName, NAME),
    copyPosition: read('copy_position', parseInteger, 'a whole number'),
    mode: read('mode', parseMode, MODE),
    mtime: read('mtime', parseFileTime, `${TIME}, or seconds since 1970`),
    uid: read('uid', parseOwner, OWNER),
    gid: read('gid', parseOwner, OWNER),
  };
  if (row.library && !row.volume) {
    fault ??= new RowError(line, `library ${quote(row.library)} requires a volume`);
  }
  const { copyVolume, copyPosition, volume } = row;
  if (copyVolume && volume === null) fail('copy_volume', 'empty if the row has no volume');
  if (copyVolume && copyVolume === volume) fail('copy_volume', "different from the file's volume");
  if (copyVolume === null && copyPosition === undefined) row.copyPosition = null;
  if (typeof copyPosition === 'bigint' && !copyVolume) fail('copy_position', 'empty if the row has no copy_volume');
  return fault ?? row;
}

const MAX_INTEGER = 2n ** 63n - 1n;

function parseInteger(text: string): bigint | undefined {
  if (!/^\d{1,19}$/.test(text)) return undefined;
  const value = BigInt(text);
  return value <= MAX_INTEGER ? value : undefined;
}

function parseName(text: string): string | undefined {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: names with control characters are rejected
  return /^[^\u0000-\u001f\u007f]{1,255}$/.test(text) && text.isWellFormed() ? text : undefined;
}

const DIGITS: Readonly<Record<string, number>> = { sha256: 64, adler32: 8, md5: 32 };
const CHECKSUM = /^(sha256|adler32|md5):([0-9a-f]*)$/;

function parseChecksum(text: string): string | undefined {
  const checksum = text.toLowerCase();
  const [, algorithm = '', digits = ''] = CHECKSUM.exec(checksum) ?? [];
  return digits !== '' && digits.length === DIGITS[algorithm] ? checksum : undefined;
}

function expectChecksum(text: string): string {
  const [, algorithm = '', digits = ''] = CHECKSUM.exec(text.toLowerCase()) ?? [];
  const count = DIGITS[algorithm];
  if (count === undefined) return 'sha256:…, adler32:… or md5:… in hex';
  return `${algorithm}: followed by ${count} hex digits, including leading zeros (found ${digits.length} digits)`;
}

/** Yields rows, but skips rows with invalid names. Calls `reject` with the error for each skipped row. */
export async function* skipBadNames(
  rows: RowSource,
  reject: (fault: RowError) => Promise<void> | void,
): AsyncGenerator<CatalogueRow | RowError> {
  for await (const row of rows) {
    if (!(row instanceof RowError && row.badName)) {
      yield row;
      continue;
    }
    await reject(row);
    const { namesake } = row.badName;
    if (namesake !== undefined) yield namesakeRow(row.line, namesake);
  }
}

function namesakeRow(line: number, path: string): CatalogueRow | RowError {
  const row = checkRow(line, { path, size: '0' });
  return row instanceof RowError ? row : { ...row, isNamesake: true };
}

const BATCH_CHARACTERS = 64 * 1024;

/**
 * Yields rows as text, in batches.
 * @throws ImportError if rows are invalid. Throws the error after the last row, or as soon as more than MAX_FAULTS rows
 * are invalid.
 */
export async function* batchRows(rows: RowSource, format: (row: CatalogueRow) => string): AsyncGenerator<string> {
  const faults: string[] = [];
  let hasNames = false;
  let batch = '';
  for await (const row of rows) {
    if (row instanceof RowError) {
      faults.push(row.message);
      hasNames ||= row.badName !== undefined;
      if (faults.length > MAX_FAULTS) break;
    } else if (faults.length === 0) {
      batch += format(row);
      if (batch.length > BATCH_CHARACTERS) {
        yield batch;
        batch = '';
      }
    }
  }
  if (faults.length > 0) throw new ImportError(faults, { hasNames });
  yield batch;
}

/**
 * Yields rows as JSON Lines. Adds empty lines so that each row keeps its original line number. When a gateway reads the
 * JSON Lines, it can therefore report errors with the line numbers of the original input.
 */
export async function* toJsonLines(rows: RowSource): AsyncGenerator<string> {
  let line = 1;
  const format = (row: CatalogueRow) => {
    const text = `${'\n'.repeat(row.line - line)}${toJson(row)}\n`;
    line = row.line + 1;
    return text;
  };
  yield* batchRows(rows, format);
}

/** Returns a row as JSON. Writes bigints as strings, because JSON parsers round large numbers. */
function toJson({
  line: _,
  isNamesake,
  spotName,
  stage,
  mode,
  copyVolume,
  copyPosition,
  ...row
}: CatalogueRow): string {
  if (isNamesake) return JSON.stringify({ namesake: row.path });
  const columns = {
    ...row,
    spot_name: spotName,
    stage: stage && stageLetters[stage],
    mode: typeof mode === 'number' ? mode.toString(8).padStart(4, '0') : mode,
    copy_volume: copyVolume,
    copy_position: copyPosition,
  } satisfies Partial<Record<Column, unknown>>;
  return JSON.stringify(columns, (_key, value) => (typeof value === 'bigint' ? String(value) : value));
}
