/** Reads dumps of `pg_dump` (COPY, or INSERT with `--inserts`) and of `mysqldump`. Executes nothing. */
import type { Readable } from 'node:stream';
import {
  type SourceBatch,
  SourceError,
  type SourceTable,
  sourceTableOf,
  sourceTables,
  TABLE_PREFIX,
} from './tables.js';

const BATCH = 5000;

/** Longest line or statement in memory. A request of two million files has less. */
const MAX_RECORD_BYTES = 128_000_000;

interface State {
  name: string;
  line: number;
  /** Columns of created tables, for an INSERT without names. */
  orders: Map<SourceTable, string[]>;
  /** With `--compatible`, the quotes of names do not show it. */
  isMysql: boolean;
  /** A backslash begins an escape in strings of PostgreSQL, too. */
  hasEscapes: boolean;
  /** Dumps that have begun and not ended, by their own comments. */
  begun: number;
  seen: Set<SourceTable>;
}

type Lines = AsyncGenerator<string>;
type Row = (string | null)[];

/** @param input the unpacked dump @param name of its file, for messages @throws SourceError */
export async function* readDump(input: Readable, name = 'the dump'): AsyncGenerator<SourceBatch> {
  const state: State = {
    ...{ name, line: 0, orders: new Map(), isMysql: false, hasEscapes: false, begun: 0, seen: new Set() },
  };
  const lines = readRecords(input, state);
  let rows = 0;
  for await (const text of lines) {
    noteSetting(state, text);
    for await (const batch of readStatement(state, lines, text)) {
      if (batch.rows.length === 0) continue;
      if (batch.table !== 'last_request') rows += batch.rows.length;
      yield batch;
    }
  }
  checkWhole(state, rows);
}

const NEEDED = ['quota', 'tapefile', 'taperequest'] as const;

/** Rejects an incomplete dump, whose missing rows would count as deleted. @throws SourceError */
function checkWhole({ seen, begun }: State, rows: number): void {
  if (seen.size === 0) throw new SourceError('the dump has no table of nla_control');
  const missing = NEEDED.find((table) => !seen.has(table));
  if (missing !== undefined) throw new SourceError(`the dump has no table ${TABLE_PREFIX}${missing}`);
  if (rows === 0) throw new SourceError('the dump has tables of nla_control, and no rows of them');
  if (begun > 0) throw new SourceError('the dump breaks off: the line that it would end with is missing');
}

/** Reads comments and settings between statements. @throws SourceError if the texts are not in UTF-8 */
function noteSetting(state: State, line: string): void {
  if (/^-- (?:PostgreSQL database dump|(?:MySQL|MariaDB) dump .*)$/.test(line)) state.begun++;
  if (/^-- (?:PostgreSQL database dump complete|Dump completed.*)$/.test(line)) state.begun--;
  if (/^(?:-- (?:MySQL|MariaDB) dump |\/\*M?!)/.test(line)) state.isMysql = true;
  if (/^SET standard_conforming_strings = off;$/.test(line)) state.hasEscapes = true;
  const [, encoding] = /^(?:SET client_encoding = '|\/\*!\d+ SET NAMES )(\w+)/.exec(line) ?? [];
  if (encoding !== undefined && !/^(?:utf-?8|utf8mb[34]|binary)$/i.test(encoding)) {
    throw new SourceError(`line ${state.line}: the dump is in ${encoding}, and must be in UTF-8`);
  }
}

/** Yields lines with a character for each byte, since other tables may contain any bytes. @throws SourceError */
async function* readRecords(input: Readable, state: State): Lines {
  const open: string[] = [];
  let bytes = 0;
  input.setEncoding('latin1');
  for await (const chunk of input as AsyncIterable<string>) {
    const [first = '', ...others] = chunk.split('\n');
    open.push(first);
    bytes += first.length;
    checkRecord(state, bytes, state.line + 1);
    const last = others.pop();
    if (last === undefined) continue;
    for (const line of [open.splice(0).join(''), ...others]) {
      state.line++;
      yield line;
    }
    open.push(last);
    bytes = last.length;
  }
  if (open.length > 0) {
    state.line++;
    yield open.join('');
  }
}

function checkRecord({ name, line }: State, bytes: number, at = line): void {
  if (bytes <= MAX_RECORD_BYTES) return;
  const most = `${MAX_RECORD_BYTES / 1e6} MB`;
  throw new SourceError(`${name}, line ${at}: it goes on for more than ${most}, which no row of a dump has`);
}

/** @throws SourceError if the dump ends in the middle of a statement */
async function nextLine(state: State, lines: Lines): Promise<string> {
  const { value, done } = await lines.next();
  if (!done) return value;
  throw new SourceError(`line ${state.line}: the dump ends in the middle of a statement`);
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function fromBytes(state: State, bytes: string): string {
  if (!/[\x80-\xff]/.test(bytes)) return bytes;
  try {
    return utf8.decode(Buffer.from(bytes, 'latin1'));
  } catch {
    throw new SourceError(`line ${state.line}: the dump must be in UTF-8, and is not`);
  }
}

const COPY = /^COPY ([^ (]+) \(([^)]*)\) FROM stdin;$/;
const INSERT =
  /^(?:INSERT|REPLACE)\s+(?:(?:LOW_PRIORITY|DELAYED|IGNORE)\s+)*INTO ([^ (]+)\s*(?:\(([^)]*)\)\s*)?VALUES\s*/i;
const CREATE = /^CREATE TABLE (?:IF NOT EXISTS )?([^ (]+) \($/i;
const SETVAL = /^SELECT pg_catalog\.setval\('[^']*nla_control_taperequest_id_seq"?', (\d+),/;

async function* readStatement(state: State, lines: Lines, text: string): AsyncGenerator<SourceBatch> {
  const [, last] = SETVAL.exec(text) ?? [];
  if (last !== undefined) yield { table: 'last_request', rows: [[last]] };
  const copy = COPY.exec(text);
  const insert = INSERT.exec(text);
  const name = (copy ?? insert ?? CREATE.exec(text))?.[1] ?? '';
  const table = sourceTableOf(name.replaceAll(/["`]/g, ''));
  if (table) state.seen.add(table);
  if (copy) yield* readCopy(state, lines, table && { table, names: namesIn(copy[2] ?? '') });
  else if (insert) yield* readInsert(state, lines, { insert, table });
  else if (table) yield* readCreate(state, lines, table);
}

function namesIn(list: string): string[] {
  return list.split(',').map((name) => name.trim().replaceAll(/["`]/g, ''));
}

/** Reads the columns of a table, one a line, and the last request id, which `mysqldump` writes at the end. */
async function* readCreate(state: State, lines: Lines, table: SourceTable): AsyncGenerator<SourceBatch> {
  const names: string[] = [];
  let line = await nextLine(state, lines);
  for (; !line.startsWith(')'); line = await nextLine(state, lines)) {
    const [, name] = /^\s+["`]?(\w+)["`]? /.exec(line) ?? [];
    if (name && !/^\s+(PRIMARY|UNIQUE|KEY|CONSTRAINT|FULLTEXT|CHECK|FOREIGN)\b/.test(line)) names.push(name);
  }
  state.orders.set(table, names);
  const [, next] = / AUTO_INCREMENT=(\d+)/.exec(line) ?? [];
  if (table === 'taperequest' && next !== undefined) {
    yield { table: 'last_request', rows: [[String(BigInt(next) - 1n)]] };
  }
}

/** Returns a function that picks the needed columns from a row of a statement. @throws SourceError */
function picker(state: State, table: SourceTable, names: readonly string[]): (row: Row) => Row {
  const places = sourceTables[table].map((name) => {
    const place = names.indexOf(name);
    if (place >= 0) return place;
    throw new SourceError(`line ${state.line}: the table ${table} has no column ${name}, but ${names.join(', ')}`);
  });
  return (row) => {
    if (row.length === names.length) return places.map((place) => row[place] ?? null);
    throw new SourceError(`line ${state.line}: a row of ${table} has ${row.length} values, not ${names.length}`);
  };
}

/** @param of undefined for another table, whose rows are skipped */
async function* readCopy(
  state: State,
  lines: Lines,
  of: { table: SourceTable; names: string[] } | undefined,
): AsyncGenerator<SourceBatch> {
  const pick = of && picker(state, of.table, of.names);
  const rows: Row[] = [];
  for (;;) {
    const line = await nextLine(state, lines);
    const isEnd = line === '\\.';
    if (pick && !isEnd) rows.push(pick(fromBytes(state, line).split('\t').map(fromCopy)));
    if (of && (isEnd || rows.length === BATCH)) yield { table: of.table, rows: rows.splice(0) };
    if (isEnd) return;
  }
}

const COPY_ESCAPES: Record<string, string> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t', v: '\v' };

function fromCopy(field: string): string | null {
  if (field === '\\N') return null;
  return field.includes('\\') ? field.replaceAll(/\\(.)/gs, (_, c: string) => COPY_ESCAPES[c] ?? c) : field;
}

async function* readInsert(
  state: State,
  lines: Lines,
  { insert, table }: { insert: RegExpExecArray; table: SourceTable | undefined },
): AsyncGenerator<SourceBatch> {
  const [head, name = '', columns] = insert;
  const hasEscapes = state.isMysql || state.hasEscapes || name.startsWith('`');
  const quotes = { inString: false };
  const parts: string[] = [];
  let bytes = 0;
  let text = insert.input.slice(head.length);
  for (; ; text = await nextLine(state, lines)) {
    if (table) {
      parts.push(text);
      bytes += text.length + 1;
      checkRecord(state, bytes);
    }
    if (endsStatement(quotes, text, hasEscapes)) break;
  }
  if (!table) return;
  const names = columns === undefined ? state.orders.get(table) : namesIn(columns);
  if (!names) {
    const problem = `the columns of ${name} are not known: the dump has no CREATE TABLE of it`;
    throw new SourceError(`line ${state.line}: ${problem}`);
  }
  const values = readValues(fromBytes(state, parts.join('\n')), { line: state.line, hasEscapes });
  yield { table, rows: [...values].map(picker(state, table, names)) };
}

function endsStatement(quotes: { inString: boolean }, line: string, hasEscapes: boolean): boolean {
  for (let at = 0; at < line.length; at++) {
    if (hasEscapes && quotes.inString && line[at] === '\\') at++;
    else if (line[at] === "'") quotes.inString = !quotes.inString;
  }
  return !quotes.inString && line.trimEnd().endsWith(';');
}

const VALUE = /\s*(?:(E|_binary\s+)?'|(NULL)(?!\w)|([\w.+-]+)\s*)/iy;
const AFTER_VALUE = /(?:::[\w ]+)?\s*/y;
const ESCAPES: Record<string, string> = { '0': '\0', b: '\b', n: '\n', r: '\r', t: '\t', Z: '\x1a' };

/** Yields the rows of a list of values of `pg_dump` or `mysqldump`. @param how.line for messages @throws SourceError */
function* readValues(text: string, how: { line: number; hasEscapes: boolean }): Generator<Row> {
  const fail = (at: number): never => {
    throw new SourceError(`line ${how.line}: a value cannot be read: ${JSON.stringify(text.slice(at, at + 40))}`);
  };
  for (let at = 0; ; ) {
    at = skip(text, at, '(') ?? fail(at);
    const row: Row = [];
    for (;;) {
      const value = readValue(text, at, how.hasEscapes) ?? fail(at);
      row.push(value.text);
      at = value.end;
      const next = text[at++];
      if (next === ')') break;
      if (next !== ',') fail(at - 1);
    }
    yield row;
    const more = skip(text, at, ',');
    if (more === undefined) return;
    at = more;
  }
}

/** Returns the index after a character; undefined if another one is there. */
function skip(text: string, at: number, character: string): number | undefined {
  let next = at;
  while (/\s/.test(text[next] ?? '')) next++;
  return text[next] === character ? next + 1 : undefined;
}

function readValue(text: string, at: number, hasEscapes: boolean): { text: string | null; end: number } | undefined {
  const found = matchAt(VALUE, text, at);
  if (!found) return undefined;
  const [whole, prefix, isNull, bare] = found;
  const begin = at + whole.length;
  if (isNull !== undefined) return { text: null, end: afterValue(text, begin) };
  if (bare !== undefined) return { text: bare, end: begin };
  const isEscaped = hasEscapes || prefix?.toUpperCase() === 'E';
  const end = endOfString(text, begin, isEscaped);
  if (end === undefined) return undefined;
  const raw = text.slice(begin, end).replaceAll("''", "'");
  return {
    text: isEscaped ? raw.replaceAll(/\\([\s\S])/g, (_, c: string) => ESCAPES[c] ?? c) : raw,
    end: afterValue(text, end + 1),
  };
}

function matchAt(expression: RegExp, text: string, at: number): RegExpExecArray | null {
  expression.lastIndex = at;
  return expression.exec(text);
}

const afterValue = (text: string, end: number): number => end + (matchAt(AFTER_VALUE, text, end)?.[0].length ?? 0);

/** Returns the index of the closing quote. A regular expression would overflow the stack at some 100,000 paths. */
function endOfString(text: string, begin: number, isEscaped: boolean): number | undefined {
  for (let at = begin; at < text.length; at++) {
    if (isEscaped && text[at] === '\\') at++;
    else if (text[at] === "'" && text[at + 1] === "'") at++;
    else if (text[at] === "'") return at;
  }
  return undefined;
}
