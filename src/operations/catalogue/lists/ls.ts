/**
 * What GNU `ls -lR --time-style=full-iso` prints. With `-Q` names are quoted, and nothing in them can be taken for anything else; without it a
 * name with a line end is no line that can be understood, and is told as one.
 */
import { isUtf8 } from 'node:buffer';
import { quote } from '../../../errors.js';
import { parseZonedTime } from '../../../time.js';
import { type Line, RowError } from '../import-lines.js';
import type { RowReader } from '../import-rows.js';
import { countSkipped, type ListSettings, makeEntryRow, type Skipped } from './list-rows.js';

/** The only thing in a line that a name before it cannot look like: what stands before is made by `ls` alone. */
const TIME = / (\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)\.(\d{9}) ([+-]\d\d)(\d\d) /;

const MODE = /^([-A-Za-z?])([-r][-w][-xsS][-r][-w][-xsS][-r][-w][-xtT])[.+@]?$/;

/** Plain files: also contiguous ones, and those that DMF has migrated. */
const PLAIN = ['-', 'C', 'M'];
const KINDS: Record<string, string> = { d: 'folders', l: 'links' };

const EXPECTED = 'what ls -lR --time-style=full-iso prints';

/** @param skipped is told what was left out */
export function createLsReader(settings: ListSettings, skipped: Skipped): RowReader {
  let folder = '';
  let isHeading = true;
  let isQuoted: boolean | undefined;
  const open = (line: Line, text: string) => {
    isQuoted ??= text.startsWith('"');
    const name = nameOf(text.slice(0, -1), isQuoted);
    if (name instanceof Error) return new RowError(line.number, name.message);
    folder = `${name}/`.replace(/\/+$/, '/');
    return undefined;
  };
  return {
    read: (line) => {
      const { text } = line;
      const problem = findReturn(text);
      if (problem !== undefined) return new RowError(line.number, problem);
      if (text === '') {
        isHeading = true;
        return undefined;
      }
      const parts = splitLine(text);
      if (!parts && isHeading && text.endsWith(':')) {
        isHeading = false;
        return open(line, text);
      }
      if (!parts && /^total \S+$/.test(text)) return undefined;
      if (!parts) return new RowError(line.number, `${quote(text)} is not ${EXPECTED}`);
      isHeading = false;
      if (!PLAIN.includes(parts.kind)) return countSkipped(skipped, KINDS[parts.kind] ?? 'others that are no files');
      isQuoted ??= parts.name.startsWith('"');
      const name = nameOf(parts.name, isQuoted);
      if (name instanceof Error) return new RowError(line.number, name.message);
      if (folder !== '' && name.includes('/')) {
        return new RowError(line.number, `${quote(name)} is no name of a file in the folder ${quote(folder)}`);
      }
      return makeEntryRow(line.number, { path: toPath(folder + name), fields: parts.fields }, settings);
    },
    end: () => undefined,
  };
}

/** It may end a name, or a line of a list that was on a host with other line ends: nobody can tell. */
export function findReturn(text: string): string | undefined {
  return text.endsWith('\r') ? `${quote(text)} ends with a carriage return` : undefined;
}

/** What `ls -R .` calls `./a` is `a`. */
export function toPath(path: string): string {
  return path.replace(/^(\.\/)+/, '');
}

interface Parts {
  kind: string;
  name: string;
  fields: { size: string; mtime: string | null; mode: string; uid?: string; gid?: string };
}

/** @returns undefined for what is no line of a file */
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

/** `rwxr-s--T` in octal digits. */
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

/** As a string of C where the list quotes names; bytes that are no UTF-8 are escaped one by one there. */
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
