/** Reads catalogue rows from CSV or JSON Lines, plain or gzipped, and says by line what is wrong with them. */
import { createInterface } from 'node:readline';
import { PassThrough, pipeline, type Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { CsvError, parse as parseCsv } from 'csv-parse';
import { messageOf, quote } from '../errors.js';
import { parseJson } from '../json.js';
import { type Stage, stageOfLetter } from '../stages.js';
import { parseTime } from '../time.js';
import { findPathProblem } from './checks.js';

/** What one row says of a file. */
export interface CatalogueRow {
  /** Where the row stands, for messages; from 1. */
  line: number;
  path: string;
  size: bigint;
  /** Null leaves a known file where it is; a new one is UNVERIFIED. */
  stage: Stage | null;
  verified: string | null;
  spotName: string | null;
  volume: string | null;
  position: bigint | null;
  checksum: string | null;
}

const columns = ['path', 'size', 'stage', 'verified', 'spot_name', 'volume', 'position', 'checksum'] as const;

type Column = (typeof columns)[number];
type Fields = Partial<Record<Column, string | undefined>>;

/** A fault of one line. */
export class RowError extends Error {
  readonly line: number;

  constructor(line: number, problem: string) {
    super(`line ${line}: ${problem}`);
    this.line = line;
  }
}

/** Yields a row or what is wrong with it, in order of the lines. After a line that cannot be split, nothing follows. */
export async function* readRows(input: Readable): AsyncGenerator<CatalogueRow | RowError> {
  const plain = await openPlain(input);
  const first = await peek(plain);
  const isJson = first.toString('utf8').trimStart().startsWith('{');
  yield* isJson ? readJsonLines(plain) : readCsv(plain);
}

/** Gzip is known by its first two bytes. */
async function openPlain(input: Readable): Promise<Readable> {
  const source = pipeline(input, new PassThrough(), () => {}); // an error of the input reaches the reader
  const head = await peek(source);
  if (head[0] !== 0x1f || head[1] !== 0x8b) return source;
  return pipeline(source, createGunzip(), () => {});
}

async function peek(stream: Readable): Promise<Buffer> {
  for (;;) {
    const chunk = stream.read() as Buffer | null;
    if (chunk) {
      stream.unshift(chunk);
      return chunk;
    }
    if (stream.readableEnded || stream.destroyed) {
      if (stream.errored) throw stream.errored;
      return Buffer.alloc(0);
    }
    await new Promise<void>((resolve) => {
      const done = () => {
        for (const event of ['readable', 'end', 'error', 'close']) stream.off(event, done);
        resolve();
      };
      for (const event of ['readable', 'end', 'error', 'close']) stream.on(event, done);
    });
  }
}

async function* readCsv(input: Readable): AsyncGenerator<CatalogueRow | RowError> {
  const parser = pipeline(input, parseCsv({ bom: true, info: true, skip_empty_lines: true }), () => {});
  let header: Column[] | undefined;
  try {
    for await (const { record, info } of parser as AsyncIterable<{ record: string[]; info: { lines: number } }>) {
      if (!header) {
        const problem = findHeaderProblem(record);
        if (problem) yield new RowError(info.lines, problem);
        if (problem) return;
        header = record as Column[];
        continue;
      }
      const fields: Fields = {};
      for (const [index, name] of header.entries()) fields[name] = record[index] || undefined;
      yield checkRow(info.lines, fields);
    }
  } catch (error) {
    yield new RowError(error instanceof CsvError ? Number(error.lines ?? 0) : 0, messageOf(error));
    return;
  }
  if (!header) yield new RowError(1, `the file is empty; the first line names the columns: ${columns.join(',')}`);
}

function findHeaderProblem(names: string[]): string | undefined {
  const unknown = names.find((name) => !columns.includes(name as Column));
  if (unknown !== undefined) return `there is no column ${quote(unknown)}; the columns are ${columns.join(',')}`;
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) return `the column ${twice} is given twice`;
  const missing = ['path', 'size'].find((name) => !names.includes(name));
  return missing && `the column ${missing} is missing`;
}

async function* readJsonLines(input: Readable): AsyncGenerator<CatalogueRow | RowError> {
  let line = 0;
  for await (const text of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })) {
    line++;
    if (text.trim() !== '') yield parseLine(line, line === 1 ? text.replace(/^\uFEFF/, '') : text);
  }
  if (input.errored) yield new RowError(line, messageOf(input.errored));
}

function parseLine(line: number, text: string): CatalogueRow | RowError {
  let value: unknown;
  try {
    value = parseJson(text);
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
    if (!['string', 'number', 'bigint'].includes(typeof field) && field !== null) {
      return new RowError(line, `${name} must be text or a number, not ${quote(JSON.stringify(field))}`);
    }
    fields[name as Column] = field === null || field === '' ? undefined : String(field);
  }
  return checkRow(line, fields);
}

const MAX_INTEGER = 2n ** 63n - 1n;
const CHECKSUM = /^(sha256:[0-9a-f]{64}|adler32:[0-9a-f]{8}|md5:[0-9a-f]{32})$/;

function checkRow(line: number, fields: Fields): CatalogueRow | RowError {
  const fault = (name: Column, expected: string) =>
    new RowError(line, `${name} must be ${expected}, not ${quote(fields[name] ?? '')}`);
  if (fields.path === undefined) return fault('path', 'given');
  const problem = findPathProblem(fields.path);
  if (problem) return new RowError(line, `path ${problem}`);
  const size = integer(fields.size ?? '');
  if (size === undefined) return fault('size', 'a whole number of bytes');
  const position = fields.position === undefined ? null : integer(fields.position);
  if (position === undefined) return fault('position', 'a whole number');
  const stage = fields.stage === undefined ? null : stageOfLetter(fields.stage);
  if (stage === undefined) return fault('stage', 'one of the letters U, D, T, A, R');
  const verified = fields.verified === undefined ? null : parseTime(fields.verified);
  if (verified === undefined) return fault('verified', 'a UTC date-time YYYY-MM-DDTHH:MM:SS[.ffffff] without a zone');
  const checksum = fields.checksum?.toLowerCase() ?? null;
  if (checksum !== null && !CHECKSUM.test(checksum)) return fault('checksum', 'sha256:…, adler32:… or md5:… in hex');
  for (const name of ['spot_name', 'volume'] as const) {
    const value = fields[name];
    // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
    if (value !== undefined && (/[\u0000-\u001f\u007f]/.test(value) || !value.isWellFormed() || value.length > 255)) {
      return fault(name, 'a name of at most 255 characters');
    }
  }
  return {
    line,
    path: fields.path,
    size,
    stage,
    verified,
    spotName: fields.spot_name ?? null,
    volume: fields.volume ?? null,
    position,
    checksum,
  };
}

function integer(text: string): bigint | undefined {
  if (!/^\d{1,19}$/.test(text)) return undefined;
  const value = BigInt(text);
  return value <= MAX_INTEGER ? value : undefined;
}
