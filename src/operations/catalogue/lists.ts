/** Reads lists of `ls -lR` and `find` (paths, sizes, times) as rows. Import options supply the other columns. */
import { isUtf8 } from 'node:buffer';
import { quote } from '../../errors.js';
import { parseZonedTime } from '../../time.js';
import { type Line, RowError } from './import-lines.js';
import { type CatalogueRow, checkRow, type Fields, type RowReader } from './import-rows.js';

export interface ListSettings {
  volume: string;
  /** The library of a new volume. Default: the first library. */
  library?: string | undefined;
  spot?: string | undefined;
  /** Put before each path: `/archive`, or empty. */
  prefix: string;
  /** Removed from the beginning of each path first: `/hpss/archive`, or empty. */
  strip: string;
}

/** Number of skipped entries by kind, such as `folders`. */
export type Skipped = Map<string, number>;

export function makeEntryRow(
  line: number,
  { path, ...fields }: Fields & { path: string },
  { volume, library, spot, prefix, strip }: ListSettings,
): CatalogueRow | RowError {
  const whole = path.startsWith('/') ? path : `/${path}`;
  if (!whole.startsWith(`${strip}/`)) return new RowError(line, `${quote(whole)} is not below ${quote(strip)}`);
  const place = { volume, ...(library !== undefined && { library }), ...(spot !== undefined && { spot_name: spot }) };
  return checkRow(line, { ...fields, ...place, path: prefix + whole.slice(strip.length), stage: 'T' });
}

export function countSkipped(skipped: Skipped, kind: string): undefined {
  skipped.set(kind, (skipped.get(kind) ?? 0) + 1);
  return undefined;
}

/** Reads the output of `ls` or `find`, detected by its first line. Counts skipped entries in `skipped`. */
export function createListReader(settings: ListSettings, skipped: Skipped): RowReader {
  let reader: RowReader | undefined;
  return {
    read: (line) => {
      if (!reader && line.text === '') return undefined;
      reader ??= FIND_LINE.test(line.text) ? createFindReader(settings) : createLsReader(settings, skipped);
      if (line.text.endsWith('\r')) return new RowError(line.number, `${quote(line.text)} ends with a carriage return`);
      return reader.read(line);
    },
    end: () => (reader ? reader.end() : new RowError(1, 'the list is empty')),
  };
}

/** Output of GNU `find -type f -printf '%s %T@ %p\n'`: bytes, modification time in seconds since 1970, path. */
const FIND_LINE = /^(\d+) (-?\d+(?:\.\d+)?) (.+)$/;

function createFindReader(settings: ListSettings): RowReader {
  return {
    read: ({ number, text }) => {
      if (text === '') return undefined;
      const [, size, mtime, path] = FIND_LINE.exec(text) ?? [];
      if (size === undefined || mtime === undefined || path === undefined) {
        return new RowError(number, `${quote(text)} is not what find -printf '%s %T@ %p\\n' prints`);
      }
      return makeEntryRow(number, { path: toPath(path), size, mtime }, settings);
    },
    end: () => undefined,
  };
}

/** Time in a line of GNU `ls -lR --time-style=full-iso`. Names follow it, so no name can be mistaken for it. */
const TIME = / (\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)\.(\d{9}) ([+-]\d\d)(\d\d) /;

const MODE = /^([-A-Za-z?])([-r][-w][-xsS][-r][-w][-xsS][-r][-w][-xtT])[.+@]?$/;

/** Plain files, also contiguous ones, and those migrated by DMF. */
const PLAIN = ['-', 'C', 'M'];
const KINDS: Record<string, string> = { d: 'folders', l: 'links' };

function createLsReader(settings: ListSettings, skipped: Skipped): RowReader {
  let folder = '';
  let isHeading = true;
  let isQuoted: boolean | undefined;
  const open = ({ number, text }: Line) => {
    isQuoted ??= text.startsWith('"');
    const name = nameOf(text.slice(0, -1), isQuoted);
    if (name instanceof Error) return new RowError(number, name.message);
    folder = `${name}/`.replace(/\/+$/, '/');
    return undefined;
  };
  return {
    read: (line) => {
      const { text } = line;
      if (text === '') {
        isHeading = true;
        return undefined;
      }
      const parts = splitLine(text);
      if (!parts && isHeading && text.endsWith(':')) {
        isHeading = false;
        return open(line);
      }
      if (!parts && /^total \S+$/.test(text)) return undefined;
      if (!parts) return new RowError(line.number, `${quote(text)} is not what ls -lR --time-style=full-iso prints`);
      isHeading = false;
      if (!PLAIN.includes(parts.kind)) return countSkipped(skipped, KINDS[parts.kind] ?? 'others that are no files');
      isQuoted ??= parts.name.startsWith('"');
      const name = nameOf(parts.name, isQuoted);
      if (name instanceof Error) return new RowError(line.number, name.message);
      if (folder !== '' && name.includes('/')) {
        return new RowError(line.number, `${quote(name)} is no name of a file in the folder ${quote(folder)}`);
      }
      return makeEntryRow(line.number, { path: toPath(folder + name), ...parts.fields }, settings);
    },
    end: () => undefined,
  };
}

/** `ls -R .` prints `./a` for `a`. */
function toPath(path: string): string {
  return path.replace(/^(\.\/)+/, '');
}

interface Parts {
  kind: string;
  name: string;
  fields: { size: string; mtime: string | null; mode: string; uid?: string; gid?: string };
}

function splitLine(text: string): Parts | undefined {
  const time = TIME.exec(text);
  if (!time) return undefined;
  const [mode = '', , ...owners] = text.slice(0, time.index).split(/ +/);
  const [, kind, bits] = MODE.exec(mode) ?? [];
  const size = owners.pop();
  if (kind === undefined || bits === undefined || size === undefined || !/^\d+$/.test(size)) return undefined;
  const [whole, date, clock, digits = '', hours, minutes] = time;
  const mtime = parseZonedTime(`${date}T${clock}.${digits.slice(0, 6)}${hours}:${minutes}`) ?? null;
  const name = text.slice(time.index + whole.length);
  const [uid = '', gid = ''] = owners;
  const isNumbered = owners.length === 2 && /^\d+$/.test(uid) && /^\d+$/.test(gid);
  return { kind, name, fields: { size, mtime, mode: modeOf(bits), ...(isNumbered ? { uid, gid } : {}) } };
}

function modeOf(bits: string): string {
  let mode = 0;
  for (const [index, sign] of [...bits].entries()) {
    if (!'-ST'.includes(sign)) mode |= 0o400 >> index;
    if ('sS'.includes(sign)) mode |= index === 2 ? 0o4000 : 0o2000;
    if ('tT'.includes(sign)) mode |= 0o1000;
  }
  return mode.toString(8).padStart(4, '0');
}

const ESCAPES: Record<string, string> = {
  a: '\u0007',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
  '"': '"',
  '\\': '\\',
};

/** `ls -Q` quotes names as C strings, and escapes bytes that are not UTF-8 one at a time. */
function nameOf(text: string, isQuoted: boolean): string | Error {
  if (!isQuoted) return text;
  const [, inner] = /^"((?:[^"\\]|\\.)*)"$/.exec(text) ?? [];
  if (inner === undefined) return new Error(`${quote(text)} is no quoted name, as the names before it are`);
  if (!inner.includes('\\')) return inner;
  const bytes: Buffer[] = [];
  for (const [, plain, octal, escaped] of inner.matchAll(/([^\\]+)|\\([0-7]{3})|\\(.)/g)) {
    const sign = escaped === undefined ? plain : ESCAPES[escaped];
    if (octal === undefined && sign === undefined)
      return new Error(`${quote(text)} has an unknown escape \\${escaped}`);
    bytes.push(octal === undefined ? Buffer.from(sign ?? '') : Buffer.from([Number.parseInt(octal, 8) & 255]));
  }
  const whole = Buffer.concat(bytes);
  return isUtf8(whole) ? whole.toString() : new Error(`the name ${quote(text)} is not valid UTF-8`);
}

export const listFormats = ['csv', 'jsonl', 'ls', 's3-inventory'] as const;
export type ListFormat = (typeof listFormats)[number];

const LS_LINE = /^(?:total \d+|[-A-Za-z?][-rwxsStT]{9}[.+@]? +\d+ .*)$/;
const CSV_HEADER = /^(?=.*\bpath\b)"?[a-z_]+"?(?:,"?[a-z_]+"?)*\r?$/;
const MANIFEST = /^\s*\{[^{}]*"(?:sourceBucket|fileSchema)"\s*:/;

/** Returns the format of a file by its unzipped beginning; undefined if uncertain. */
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
