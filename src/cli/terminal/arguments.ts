/** Parses options and arguments. Each parser throws a UsageError with the expected and the actual value. */
import { isUtf8 } from 'node:buffer';
import { readFile } from 'node:fs/promises';
import { buffer as readAll } from 'node:stream/consumers';
import { messageOf } from '../../core/errors.js';
import { parseSize } from '../../core/text/bytes.js';
import { describeEncoding } from '../../core/text/file-names.js';
import { addSeconds, parseTime, parseZonedTime } from '../../core/time.js';
import { CommandError, UsageError } from './failure.js';
import { stdin } from './io.js';

interface NumberRange {
  from?: number;
  to?: number;
  digits?: number;
  expected?: string;
}

/** Parses a whole number, of at most nine digits by default. */
export function readNumber(option: string, text: string, range: NumberRange = {}): number {
  const { from = 0, to = Number.MAX_SAFE_INTEGER, digits = 9, expected = 'a whole number' } = range;
  const value = /^\d+$/.test(text) && text.length <= digits ? Number(text) : Number.NaN;
  if (value >= from && value <= to) return value;
  throw new UsageError(`${option} must be ${expected}, not ${JSON.stringify(text)}`);
}

export const readId = (text: string): number => readNumber('<id>', text, { to: 0x7fffffff, digits: 10 });

export const toNumber = (option: string, range?: NumberRange) => (text: string) => readNumber(option, text, range);

const PEOPLE_LIMIT = 1000;

/** @param forScripts the options with which the command prints output for scripts, such as `--json` */
export function limitHelp(what: string, forScripts = '--json'): string {
  return `${what} (default: ${PEOPLE_LIMIT}; no limit with ${forScripts})`;
}

/** Returns the maximum number of entries to list. Without `--limit`, output for scripts contains all entries. */
export function readLimit(options: { limit?: string; json?: boolean; printPaths?: boolean }): number {
  if (options.limit !== undefined) return readNumber('--limit', options.limit);
  return options.json || options.printPaths ? Number.POSITIVE_INFINITY : PEOPLE_LIMIT;
}

const MAX_SIZE = 2n ** 63n - 1n;

export function readSize(option: string, text: string): bigint {
  const size = parseSize(text);
  if (size !== undefined && size <= MAX_SIZE) return size;
  throw new UsageError(
    `${option} must be a number of bytes, such as 500000000, 500M or 10T, not ${JSON.stringify(text)}`,
  );
}

export const toSize = (option: string) => (text: string) => readSize(option, text);

/**
 * Returns a parser that also accepts the text `none`. The parser returns `none` unchanged, because commander does not
 * support null as an option value.
 */
export const orNone =
  <T>(read: (text: string) => T) =>
  (text: string): T | 'none' =>
    text === 'none' ? text : read(text);

/** Converts the option value `none` to null. When the server receives null, it removes the stored value. */
export const noneToNull = <T>(value: T | 'none' | undefined): T | null | undefined => (value === 'none' ? null : value);

/**
 * Parses a point in time, or a time span before now such as 10m or 3d.
 * @param askNow returns the server's time; called only if the text is a time span
 */
export async function readPast(option: string, text: string, askNow: () => Promise<string>): Promise<string> {
  const seconds = readSpan(text);
  if (seconds !== undefined) return addSeconds(await askNow(), -seconds);
  if (parseZonedTime(text) !== undefined) return text;
  throw notATime(option, text, 'how long ago, such as 10m or 3d');
}

const notATime = (option: string, text: string, span: string) =>
  new UsageError(`${option} must be YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS (UTC), or ${span}, not ${JSON.stringify(text)}`);

function readSpan(text: string): number | undefined {
  const [, count, unit = ''] = /^(\d{1,6})([mhdw])$/.exec(text) ?? [];
  return count === undefined ? undefined : Number(count) * (SPAN_SECONDS[unit] ?? 0);
}

const SPAN_SECONDS: Record<string, number> = { m: 60, h: 3600, d: 86_400, w: 7 * 86_400 };

/**
 * Parses a request's retention date: a point in time, or a time span from now such as 3d or 12h.
 * @param askNow returns the server's time; called only if the text is a time span
 */
export async function readRetention(option: string, text: string, askNow: () => Promise<string>): Promise<string> {
  const seconds = readSpan(text);
  if (seconds !== undefined) return addSeconds(await askNow(), seconds);
  if (parseTime(text) !== undefined) return text;
  throw notATime(option, text, 'how long from now, such as 3d or 12h');
}

/** The option `--file`, as arguments for commander's method `option`. */
export const fileOption = [
  '--file <paths...>',
  'archive paths, @name to read paths from a file (one per line), or - to read them from standard input',
] as const;

/**
 * @throws CommandError with Node's reason for the error, but without Node's error code and the name of the system call
 */
async function readList(file: string): Promise<Buffer> {
  return await readFile(file).catch((error) => {
    throw new CommandError(`cannot read ${file}: ${messageOf(error).replace(/^E[A-Z]+: (.*), .*$/s, '$1')}`);
  });
}

/**
 * Reads the paths given with `--file`. Each value of this option is a path, `@name` for a file with one path per line,
 * or `-` for paths on standard input.
 * @throws CommandError if a file with paths cannot be read
 */
export async function readPaths(given: string[]): Promise<string[]> {
  const paths: string[] = [];
  for (const value of given) {
    if (value !== '-' && !value.startsWith('@')) {
      paths.push(value);
      continue;
    }
    const list = value === '-' ? await readAll(stdin()) : await readList(value.slice(1));
    if (!isUtf8(list)) throw new CommandError(`--file ${value}: the list ${describeEncoding(list)}`);
    const lines = list
      .toString('utf8')
      .replace(/^\uFEFF/, '')
      .split(/\r?\n/);
    for (const line of lines) if (line !== '') paths.push(line);
  }
  if (paths.length === 0) throw new UsageError('--file contains no paths');
  return paths;
}

/** Returns a parser for an option whose value names a value of a GraphQL enum, such as `lto-9` for `LTO_9`. */
export const toValue =
  <Value extends string>(flag: string, names: readonly string[]) =>
  (text: string): Value => {
    if (!names.includes(text))
      throw new UsageError(`${flag} must be one of ${names.join(', ')}, not ${JSON.stringify(text)}`);
    return text.toUpperCase().replaceAll('-', '_') as Value;
  };

/** Returns the name that `toValue` parses to a value of a GraphQL enum. */
export const nameOfValue = (value: string): string => value.toLowerCase().replaceAll('_', '-');
