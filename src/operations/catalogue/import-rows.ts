/** Reads catalogue rows from CSV or JSON Lines, plain or gzipped, and says by line what is wrong with them. */
import type { Readable } from 'node:stream';
import { messageOf, quote } from '../../errors.js';
import { type Stage, stageOfLetter } from '../../stages.js';
import { parseTime } from '../../time.js';
import { findPathProblem } from '../input.js';
import { parseFileTime, parseMode, parseOwner } from './attributes.js';
import { createCsvSplitter } from './import-csv.js';
import { type Line, RowError, readLines } from './import-lines.js';

/** What one row says of a file. Undefined leaves what is known of the file, null takes it away. */
export interface CatalogueRow {
  /** On which the row begins, for messages; from 1. */
  line: number;
  path: string;
  size: bigint;
  /** Null leaves a known file where it is; a new one is UNVERIFIED. */
  stage: Stage | null;
  verified: string | null | undefined;
  spotName: string | null | undefined;
  volume: string | null | undefined;
  /** That the volume is in; known ones stay where they are, and new ones are in the first library unless told. */
  library?: string | null | undefined;
  position: bigint | null | undefined;
  checksum: string | null | undefined;
  /** Where else the same bytes are: on another volume. */
  copyVolume?: string | null | undefined;
  copyPosition?: bigint | null | undefined;
  /** Of the file that was archived, see attributes.ts. */
  mode?: number | null | undefined;
  mtime?: string | null | undefined;
  uid?: bigint | null | undefined;
  gid?: bigint | null | undefined;
}

const columns = [
  'path',
  'size',
  'stage',
  'verified',
  'spot_name',
  'volume',
  'library',
  'position',
  'checksum',
  'copy_volume',
  'copy_position',
  'mode',
  'mtime',
  'uid',
  'gid',
] as const;

type Column = (typeof columns)[number];
/** Null: empty; undefined: the row does not have the column. */
export type Fields = Partial<Record<Column, string | null>>;

export interface RowReader {
  /** @throws RowError when nothing that follows can be understood */
  read(line: Line): CatalogueRow | RowError | undefined;
  end(): RowError | undefined;
}

/** Yields a row or what is wrong with it, in order of the lines. Closes the input, also when it is not read to its end. */
export async function* readRows(input: Readable): AsyncGenerator<CatalogueRow | RowError> {
  let reader: RowReader | undefined;
  try {
    for await (const lines of readLines(input)) {
      for (const line of lines) {
        if (!reader && line.text.trim() === '') continue;
        reader ??= line.text.trimStart().startsWith('{') ? jsonReader : createCsvReader();
        const row = reader.read(line);
        if (row) yield row;
      }
    }
    const fault = (reader ?? createCsvReader()).end();
    if (fault) yield fault;
  } catch (error) {
    if (!(error instanceof RowError)) throw error;
    yield error;
  } finally {
    input.destroy();
  }
}

function createCsvReader(): RowReader {
  const splitter = createCsvSplitter();
  let header: Column[] | undefined;
  return {
    read: (line) => {
      const record = splitter.read(line);
      if (!record) return undefined;
      if (header) return record instanceof RowError ? record : readRecord(record.line, header, record.fields);
      if (record instanceof RowError) throw record;
      const problem = findHeaderProblem(record.fields);
      if (problem !== undefined) throw new RowError(record.line, problem);
      header = record.fields as Column[];
      return undefined;
    },
    end: () => {
      const fault = splitter.end();
      if (header || fault) return fault;
      return new RowError(1, `the file is empty; the first line names the columns: ${columns.join(',')}`);
    },
  };
}

function findHeaderProblem(names: string[]): string | undefined {
  const unknown = names.find((name) => !columns.includes(name as Column));
  if (unknown !== undefined) return `there is no column ${quote(unknown)}; the columns are ${columns.join(',')}`;
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) return `the column ${twice} is given twice`;
  const missing = ['path', 'size'].find((name) => !names.includes(name));
  return missing && `the column ${missing} is missing`;
}

function readRecord(line: number, header: Column[], values: string[]): CatalogueRow | RowError {
  if (values.length !== header.length) {
    return new RowError(line, `there must be ${header.length} fields, as in the first line, not ${values.length}`);
  }
  const fields: Fields = {};
  for (const [index, name] of header.entries()) fields[name] = values[index] || null;
  return checkRow(line, fields);
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
  const fields: Fields = {};
  for (const [name, field] of Object.entries(value)) {
    if (!columns.includes(name as Column)) {
      return new RowError(line, `there is no column ${quote(name)}; the columns are ${columns.join(',')}`);
    }
    if (!['string', 'number'].includes(typeof field) && field !== null) {
      return new RowError(line, `${name} must be text or a number, not ${quote(JSON.stringify(field))}`);
    }
    if (name === 'mode' && typeof field !== 'string' && field !== null) {
      return new RowError(line, `mode must be text, with ${MODE}, not the number ${field}`);
    }
    if (Number.isInteger(field) && !Number.isSafeInteger(field)) {
      return new RowError(line, `${name} must be text, in quotes, since JSON numbers beyond 2^53 are rounded`);
    }
    fields[name as Column] = field === null || field === '' ? null : String(field);
  }
  return checkRow(line, fields);
}

const MAX_INTEGER = 2n ** 63n - 1n;
const CHECKSUM = /^(sha256:[0-9a-f]{64}|adler32:[0-9a-f]{8}|md5:[0-9a-f]{32})$/;

/** What is wrong with a row, or the row. */
export function checkRow(line: number, fields: Fields): CatalogueRow | RowError {
  const fault = (name: Column, expected: string) =>
    new RowError(line, `${name} must be ${expected}, not ${quote(fields[name] ?? '')}`);
  if (!fields.path) return fault('path', 'given');
  const problem = findPathProblem(fields.path);
  if (problem) return new RowError(line, `path ${problem}`);
  const size = integer(fields.size ?? '');
  if (size === undefined) return fault('size', 'a whole number of bytes');
  const row: CatalogueRow = {
    line,
    path: fields.path,
    size,
    stage: null,
    verified: fields.verified,
    spotName: fields.spot_name,
    volume: fields.volume,
    library: fields.library,
    position: undefined,
    checksum: fields.checksum?.toLowerCase() ?? fields.checksum,
  };
  if (fields.stage) {
    const stage = stageOfLetter(fields.stage);
    if (!stage) return fault('stage', 'one of the letters U, D, T, A, R');
    row.stage = stage;
  }
  if (fields.verified) {
    row.verified = parseTime(fields.verified);
    if (!row.verified) return fault('verified', 'a UTC date-time YYYY-MM-DDTHH:MM:SS[.ffffff] without a zone');
  }
  if (fields.position !== undefined) {
    row.position = fields.position === null ? null : integer(fields.position);
    if (row.position === undefined) return fault('position', 'a whole number');
  }
  const wrongCopy = readSecondCopy(row, fields);
  if (wrongCopy) return fault(...wrongCopy);
  if (row.checksum && !CHECKSUM.test(row.checksum)) return fault('checksum', 'sha256:…, adler32:… or md5:… in hex');
  if (row.library && !row.volume)
    return new RowError(line, `library ${quote(row.library)} is that of a volume, and none is given`);
  for (const name of ['spot_name', 'volume', 'library', 'copy_volume'] as const) {
    const value = fields[name];
    // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
    if (value && (/[\u0000-\u001f\u007f]/.test(value) || !value.isWellFormed() || value.length > 255)) {
      return fault(name, 'a name of at most 255 characters');
    }
  }
  const wrong = readAttributes(row, fields);
  return wrong ? fault(...wrong) : row;
}

/** @returns the column that is wrong, and what it should be */
function readSecondCopy(row: CatalogueRow, fields: Fields): [Column, string] | undefined {
  const { copy_volume: volume, copy_position: position } = fields;
  if (volume !== undefined) row.copyVolume = volume;
  if (volume && row.volume === null) return ['copy_volume', 'left out where no volume is given'];
  if (volume && volume === row.volume) return ['copy_volume', 'another volume than that of the file'];
  if (volume === null && position === undefined) row.copyPosition = null;
  if (position === undefined) return undefined;
  row.copyPosition = position === null ? null : integer(position);
  if (row.copyPosition === undefined) return ['copy_position', 'a whole number'];
  if (position !== null && !volume) return ['copy_position', 'left out where no copy_volume is given'];
  return undefined;
}

const MODE = 'up to four octal digits such as 0640';
const OWNER = 'a number from 0 to 4294967294';

/** @returns the column that is wrong, and what it should be */
function readAttributes(row: CatalogueRow, { mode, mtime, uid, gid }: Fields): [Column, string] | undefined {
  row.mode = mode ? parseMode(mode) : empty(mode);
  if (mode && row.mode === undefined) return ['mode', MODE];
  row.mtime = mtime ? parseFileTime(mtime) : empty(mtime);
  if (mtime && !row.mtime) return ['mtime', 'a UTC date-time YYYY-MM-DDTHH:MM:SS[.ffffff], or seconds since 1970'];
  row.uid = uid ? parseOwner(uid) : empty(uid);
  if (uid && row.uid === undefined) return ['uid', OWNER];
  row.gid = gid ? parseOwner(gid) : empty(gid);
  if (gid && row.gid === undefined) return ['gid', OWNER];
  return undefined;
}

/** An empty field takes away what is known, one that is not there does not. */
function empty(field: string | null | undefined): null | undefined {
  return field === undefined ? undefined : null;
}

function integer(text: string): bigint | undefined {
  if (!/^\d{1,19}$/.test(text)) return undefined;
  const value = BigInt(text);
  return value <= MAX_INTEGER ? value : undefined;
}
