/**
 * Reads dumps as text: of `pg_dump` (COPY, or INSERT with `--inserts`), and of `mysqldump`. Statements of other tables are passed over, and
 * nothing of a dump is run.
 */
import type { Readable } from 'node:stream';
import { type SourceBatch, SourceError, type SourceTable, sourceTableOf, sourceTables } from './tables.js';

const BATCH = 5000;

/** @param input of the dump, unpacked @throws SourceError */
export async function* readDump(input: Readable): AsyncGenerator<SourceBatch> {
  const state: State = { orders: new Map(), dialect: 'postgresql', line: 0 };
  let open: Open | undefined;
  let found = false;
  for await (const text of recordsOf(input)) {
    state.line++;
    if (!open) {
      const last = readLast(text);
      if (last) yield last;
    }
    open ??= openStatement(state, text);
    if (!open) continue;
    found = true;
    const batch = open.take(text);
    if (batch && batch.rows.length > 0) yield batch;
    if (open.isEnded) open = undefined;
  }
  if (open) throw new SourceError(`line ${state.line}: the dump ends in the middle of a statement`);
  if (!found) throw new SourceError('the dump has no table of nla_control');
}

/** At line feeds alone: texts of people hold what else may end a line. One may be as long as a statement of many rows. */
async function* recordsOf(input: Readable): AsyncGenerator<string> {
  const open: string[] = [];
  input.setEncoding('utf8');
  for await (const chunk of input as AsyncIterable<string>) {
    const [first = '', ...others] = chunk.split('\n');
    open.push(first);
    const last = others.pop();
    if (last === undefined) continue;
    yield open.splice(0).join('');
    yield* others;
    open.push(last);
  }
  if (open.length > 0) yield open.join('');
}

interface State {
  /** The columns of a table as it was made: of an INSERT that names none. */
  orders: Map<SourceTable, string[]>;
  dialect: 'postgresql' | 'mysql';
  line: number;
}

/** A statement that goes on. */
interface Open {
  /** @returns rows, when there are enough */
  take(line: string): SourceBatch | undefined;
  isEnded: boolean;
}

const COPY = /^COPY ([^ (]+) \(([^)]*)\) FROM stdin;$/;
const INSERT = /^INSERT INTO ([^ (]+)\s*(?:\(([^)]*)\)\s*)?VALUES\s*/i;
const CREATE = /^CREATE TABLE (?:IF NOT EXISTS )?([^ (]+) \($/i;

function openStatement(state: State, line: string): Open | undefined {
  const copy = COPY.exec(line);
  if (copy) return tableOf(copy[1]) && openCopy(state, tableOf(copy[1]) as SourceTable, namesIn(copy[2] ?? ''));
  const insert = INSERT.exec(line);
  if (insert) return openInsert(state, insert);
  const create = CREATE.exec(line);
  const table = create && tableOf(create[1]);
  return table ? openCreate(state, table) : undefined;
}

function tableOf(name = ''): SourceTable | undefined {
  return sourceTableOf(name.replaceAll(/["`]/g, ''));
}

function namesIn(list: string): string[] {
  return list.split(',').map((name) => name.trim().replaceAll(/["`]/g, ''));
}

const SETVAL = /^SELECT pg_catalog\.setval\('[^']*nla_control_taperequest_id_seq', (\d+),/;

/** The last id of a request that was given out, as `pg_dump` writes it. */
function readLast(line: string): SourceBatch | undefined {
  const [, id] = SETVAL.exec(line) ?? [];
  return id === undefined ? undefined : { table: 'last_request', rows: [[id]] };
}

/** The same of `mysqldump`, at the end of a table. */
function readNext(table: SourceTable, line: string): SourceBatch | undefined {
  const [, next] = / AUTO_INCREMENT=(\d+)/.exec(line) ?? [];
  if (table !== 'taperequest' || next === undefined) return undefined;
  return { table: 'last_request', rows: [[String(BigInt(next) - 1n)]] };
}

/** The columns of a table, each on a line of its own. */
function openCreate(state: State, table: SourceTable): Open {
  const names: string[] = [];
  let isFirst = true;
  const open: Open = {
    isEnded: false,
    take: (line) => {
      if (!isFirst) {
        const [, name] = /^\s+["`]?(\w+)["`]? /.exec(line) ?? [];
        if (line.startsWith(')')) {
          state.orders.set(table, names);
          open.isEnded = true;
          return readNext(table, line);
        }
        if (name && !/^\s+(PRIMARY|UNIQUE|KEY|CONSTRAINT|FULLTEXT|CHECK|FOREIGN)\b/.test(line)) names.push(name);
      }
      isFirst = false;
      return undefined;
    },
  };
  return open;
}

/** @returns picks the columns that are read, from the columns of a statement @throws SourceError */
function picker(
  state: State,
  table: SourceTable,
  names: readonly string[],
): (row: (string | null)[]) => (string | null)[] {
  const places = sourceTables[table].map((name) => {
    const place = names.indexOf(name);
    if (place < 0)
      throw new SourceError(`line ${state.line}: the table ${table} has no column ${name}, but ${names.join(', ')}`);
    return place;
  });
  return (row) => {
    if (row.length !== names.length) {
      throw new SourceError(`line ${state.line}: a row of ${table} has ${row.length} values, not ${names.length}`);
    }
    return places.map((place) => row[place] ?? null);
  };
}

function openCopy(state: State, table: SourceTable, names: readonly string[]): Open {
  const pick = picker(state, table, names);
  let rows: (string | null)[][] = [];
  let isFirst = true;
  const open: Open = {
    isEnded: false,
    take: (line) => {
      if (isFirst) {
        isFirst = false;
        return undefined;
      }
      if (line === '\\.') open.isEnded = true;
      else rows.push(pick(line.split('\t').map(fromCopy)));
      if (rows.length < BATCH && !open.isEnded) return undefined;
      const batch = { table, rows };
      rows = [];
      return batch;
    },
  };
  return open;
}

const COPY_ESCAPES: Record<string, string> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t', v: '\v' };

function fromCopy(field: string): string | null {
  if (field === '\\N') return null;
  return field.includes('\\') ? field.replaceAll(/\\(.)/gs, (_, c: string) => COPY_ESCAPES[c] ?? c) : field;
}

function openInsert(state: State, [head, name = '', columns]: RegExpExecArray): Open | undefined {
  const table = tableOf(name);
  const isMysql = name.startsWith('`');
  const parts: string[] = [];
  const quotes = { inString: false };
  const open: Open = {
    isEnded: false,
    take: (line) => {
      const text = parts.length === 0 ? line.slice(head.length) : line;
      if (table) parts.push(text);
      else if (parts.length === 0) parts.push('');
      if (!follow(quotes, text, isMysql)) return undefined;
      open.isEnded = true;
      if (!table) return undefined;
      const names = columns === undefined ? state.orders.get(table) : namesIn(columns);
      if (!names)
        throw new SourceError(
          `line ${state.line}: the columns of ${name} are not known: the dump has no CREATE TABLE of it`,
        );
      const pick = picker(state, table, names);
      return { table, rows: [...readValues(state, parts.join('\n'), isMysql)].map(pick) };
    },
  };
  return open;
}

/** @returns whether the statement ends with this line */
function follow(quotes: { inString: boolean }, line: string, isMysql: boolean): boolean {
  for (let at = 0; at < line.length; at++) {
    if (isMysql && quotes.inString && line[at] === '\\') at++;
    else if (line[at] === "'") quotes.inString = !quotes.inString;
  }
  return !quotes.inString && line.trimEnd().endsWith(';');
}

const VALUE =
  /\s*(?:(NULL)|(true|false)|(-?[\w.+-]+)|E?'((?:[^'\\]|''|\\[\s\S])*)'(?:::[\w ]+)?|_binary '((?:[^'\\]|''|\\[\s\S])*)')\s*/iy;
const PLAIN_VALUE = /\s*(?:(NULL)|(true|false)|(-?[\w.+-]+)|'((?:[^']|'')*)'(?:::[\w ]+)?)\s*/iy;
const MYSQL_ESCAPES: Record<string, string> = { '0': '\0', b: '\b', n: '\n', r: '\r', t: '\t', Z: '\x1a' };

/** The rows of a list of values. @throws SourceError */
function* readValues(state: State, text: string, isMysql: boolean): Generator<(string | null)[]> {
  const value = isMysql ? VALUE : PLAIN_VALUE;
  const fail = (at: number): never => {
    throw new SourceError(`line ${state.line}: a value cannot be read: ${JSON.stringify(text.slice(at, at + 40))}`);
  };
  for (let at = 0; ; ) {
    at = skip(text, at, '(') ?? fail(at);
    const row: (string | null)[] = [];
    for (;;) {
      value.lastIndex = at;
      const found = value.exec(text) ?? fail(at);
      at = value.lastIndex;
      row.push(toText(found as RegExpExecArray, isMysql));
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

/** @returns where it goes on after a character; undefined where something else stands there */
function skip(text: string, at: number, character: string): number | undefined {
  let next = at;
  while (/\s/.test(text[next] ?? '')) next++;
  return text[next] === character ? next + 1 : undefined;
}

function toText([, isNull, truth, bare, quoted, binary]: RegExpExecArray, isMysql: boolean): string | null {
  if (isNull !== undefined) return null;
  if (truth !== undefined) return truth;
  if (bare !== undefined) return bare;
  const text = (quoted ?? binary ?? '').replaceAll("''", "'");
  return isMysql ? text.replaceAll(/\\([\s\S])/g, (_, c: string) => MYSQL_ESCAPES[c] ?? c) : text;
}
