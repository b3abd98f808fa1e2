/**
 * Reads dumps as text: of `pg_dump` (COPY, or INSERT with `--inserts`), and of `mysqldump`. Statements of other tables are passed over, and
 * nothing of a dump is run.
 */
import type { Readable } from 'node:stream';
import { checkRecord, readRecords } from './dump-records.js';
import { readValues } from './dump-values.js';
import {
  type SourceBatch,
  SourceError,
  type SourceTable,
  sourceTableOf,
  sourceTables,
  TABLE_PREFIX,
} from './tables.js';

const BATCH = 5000;

/** @param input of the dump, unpacked @param name of its file, for messages @throws SourceError */
export async function* readDump(input: Readable, name = 'the dump'): AsyncGenerator<SourceBatch> {
  const state: State = {
    name,
    orders: new Map(),
    isMysql: false,
    hasEscapes: false,
    begun: 0,
    seen: new Set(),
    rows: 0,
    line: 0,
  };
  let open: Open | undefined;
  for await (const text of readRecords(input, name)) {
    state.line++;
    if (!open) {
      noteSetting(state, text);
      const last = readLast(text);
      if (last) yield last;
    }
    open ??= openStatement(state, text);
    if (!open) continue;
    const batch = open.take(text);
    if (batch && batch.rows.length > 0) {
      if (batch.table !== 'last_request') state.rows += batch.rows.length;
      yield batch;
    }
    if (open.isEnded) open = undefined;
  }
  if (open) throw new SourceError(`line ${state.line}: the dump ends in the middle of a statement`);
  checkWhole(state);
}

/** What a dump lacks counts as gone there: one that has not all of it is refused. @throws SourceError */
function checkWhole({ seen, begun, rows }: State): void {
  if (seen.size === 0) throw new SourceError('the dump has no table of nla_control');
  const missing = NEEDED.find((table) => !seen.has(table));
  if (missing !== undefined) throw new SourceError(`the dump has no table ${TABLE_PREFIX}${missing}`);
  if (rows === 0) throw new SourceError('the dump has tables of nla_control, and no rows of them');
  if (begun > 0) throw new SourceError('the dump breaks off: the line that it would end with is missing');
}

const NEEDED = ['quota', 'tapefile', 'taperequest'] as const;

/** What a dump says of itself between its statements. @throws SourceError where its texts would not be read as they are */
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

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Bytes as the text that they are. @throws SourceError */
function fromBytes(state: State, bytes: string): string {
  if (!/[\x80-\xff]/.test(bytes)) return bytes;
  try {
    return utf8.decode(Buffer.from(bytes, 'latin1'));
  } catch {
    throw new SourceError(`line ${state.line}: the dump must be in UTF-8, and is not`);
  }
}

interface State {
  /** The columns of a table as it was made: of an INSERT that names none. */
  orders: Map<SourceTable, string[]>;
  /** Whatever its quotes of names are, as `--compatible` writes them. */
  isMysql: boolean;
  /** In strings of PostgreSQL, too, a backslash begins an escape. */
  hasEscapes: boolean;
  /** Dumps that have begun and not ended, by their own words. */
  begun: number;
  seen: Set<SourceTable>;
  rows: number;
  line: number;
  name: string;
}

/** A statement that goes on. */
interface Open {
  /** @returns rows, when there are enough */
  take(line: string): SourceBatch | undefined;
  isEnded: boolean;
}

const COPY = /^COPY ([^ (]+) \(([^)]*)\) FROM stdin;$/;
const INSERT =
  /^(?:INSERT|REPLACE)\s+(?:(?:LOW_PRIORITY|DELAYED|IGNORE)\s+)*INTO ([^ (]+)\s*(?:\(([^)]*)\)\s*)?VALUES\s*/i;
const CREATE = /^CREATE TABLE (?:IF NOT EXISTS )?([^ (]+) \($/i;

function openStatement(state: State, line: string): Open | undefined {
  const copy = COPY.exec(line);
  const insert = INSERT.exec(line);
  const create = CREATE.exec(line);
  const table = tableOf((copy ?? insert ?? create)?.[1]);
  if (table) state.seen.add(table);
  if (copy) return table ? openCopy(state, table, namesIn(copy[2] ?? '')) : skipRows();
  if (insert) return openInsert(state, insert);
  return table ? openCreate(state, table) : undefined;
}

/** The rows of another table: whatever they look like, they are no statements. */
function skipRows(): Open {
  const open: Open = {
    isEnded: false,
    take: (line) => {
      open.isEnded = line === '\\.';
      return undefined;
    },
  };
  return open;
}

function tableOf(name = ''): SourceTable | undefined {
  return sourceTableOf(name.replaceAll(/["`]/g, ''));
}

function namesIn(list: string): string[] {
  return list.split(',').map((name) => name.trim().replaceAll(/["`]/g, ''));
}

const SETVAL = /^SELECT pg_catalog\.setval\('[^']*nla_control_taperequest_id_seq"?', (\d+),/;

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
      else rows.push(pick(fromBytes(state, line).split('\t').map(fromCopy)));
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
  const hasEscapes = state.isMysql || state.hasEscapes || name.startsWith('`');
  const parts: string[] = [];
  let bytes = 0;
  const quotes = { inString: false };
  const open: Open = {
    isEnded: false,
    take: (line) => {
      const text = parts.length === 0 ? line.slice(head.length) : line;
      if (table) parts.push(text);
      else if (parts.length === 0) parts.push('');
      if (table) bytes += text.length + 1;
      checkRecord(bytes, state);
      if (!follow(quotes, text, hasEscapes)) return undefined;
      open.isEnded = true;
      if (!table) return undefined;
      const names = columns === undefined ? state.orders.get(table) : namesIn(columns);
      if (!names)
        throw new SourceError(
          `line ${state.line}: the columns of ${name} are not known: the dump has no CREATE TABLE of it`,
        );
      const pick = picker(state, table, names);
      return {
        table,
        rows: [...readValues(fromBytes(state, parts.join('\n')), { line: state.line, hasEscapes })].map(pick),
      };
    },
  };
  return open;
}

/** @returns whether the statement ends with this line */
function follow(quotes: { inString: boolean }, line: string, hasEscapes: boolean): boolean {
  for (let at = 0; at < line.length; at++) {
    if (hasEscapes && quotes.inString && line[at] === '\\') at++;
    else if (line[at] === "'") quotes.inString = !quotes.inString;
  }
  return !quotes.inString && line.trimEnd().endsWith(';');
}
