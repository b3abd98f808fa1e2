/**
 * Checks user input. Each `check…` function returns the checked value or throws an InvalidInputError that contains the
 * value.
 */
import path from 'node:path';
import { InvalidInputError, quote } from '../core/errors.js';
import { parseTime } from '../core/time.js';

export const MAX_TEXT = 2000;
const MAX_PATH_BYTES = 2048;
const MAX_NAME_BYTES = 255;
const MAX_ADDRESS = 254;

// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern must contain control characters
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/;

/** Returns whether a text is valid Unicode without NUL, so that PostgreSQL can store it unchanged. */
export function isStorable(text: string): boolean {
  return !text.includes('\0') && text.isWellFormed();
}

/**
 * Checks that a value is a single line of text that is safe in PostgreSQL, in HTTP and mail headers, and on a terminal.
 */
export function checkText(field: string, value: string): string {
  checkStorable(field, value);
  const control = CONTROL.exec(value);
  if (control) throw new InvalidInputError(field, `must not contain control characters: ${quote(value)}`);
  if (value.length > MAX_TEXT) {
    throw new InvalidInputError(field, `must have at most ${MAX_TEXT} characters, not ${value.length}`);
  }
  return value;
}

/** Matches invisible and blank characters, spaces other than U+0020, and spaces at the beginning or end of a text. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\p{Zl}\p{Zp}\u2800\ufffd]|(?! )\p{Zs}|^ | $/u;

/**
 * Returns whether a name is unambiguous when displayed: it contains no invisible characters, and is normalized (NFC).
 */
export function isPlainName(name: string): boolean {
  return name !== '' && isStorable(name) && !UNSEEN.test(name) && name.normalize('NFC') === name;
}

/** Names that Tapegate shows for its own actions, and for the actions of callers without a name. */
const RESERVED = new Set(['anonymous', 'anybody', 'operator', 'system']);

/**
 * Returns whether the name is a reserved name, or so similar that a reader might mistake it for a reserved name. The
 * comparison with reserved names ignores letter case, character width and spacing.
 */
export function isReserved(name: string): boolean {
  const plain = name.normalize('NFKC').replace(/[\p{Default_Ignorable_Code_Point}\s]/gu, '');
  return RESERVED.has(plain.toLowerCase());
}

/** @throws InvalidInputError */
export function checkCallerName(field: string, value: string): string {
  const name = checkText(field, value);
  if (name === '') throw new InvalidInputError(field, 'must not be empty');
  if (isPlainName(name)) return name;
  throw new InvalidInputError(
    field,
    `must be normalized (NFC), without invisible characters or leading or trailing spaces: ${quote(name)}`,
  );
}

/** @throws InvalidInputError */
export function checkOneOf(field: string, value: string, values: object): void {
  if (Object.hasOwn(values, value)) return;
  throw new InvalidInputError(field, `must be one of ${Object.keys(values).join(', ')}, not ${quote(value)}`);
}

export function checkPattern(field: string, value: string): string {
  checkStorable(field, value);
  if (Buffer.byteLength(value) > MAX_PATH_BYTES) {
    throw new InvalidInputError(field, `must have at most ${MAX_PATH_BYTES} bytes, not ${Buffer.byteLength(value)}`);
  }
  return value;
}

function checkStorable(field: string, value: string): void {
  if (value.includes('\0')) throw new InvalidInputError(field, `must not contain the character NUL: ${quote(value)}`);
  if (!value.isWellFormed()) throw new InvalidInputError(field, `must be valid Unicode: ${quote(value)}`);
}

/**
 * Checks an absolute path. Rejects components such as `..`, so that a file's copy cannot be written outside the disk's
 * mount point. A component has at most 255 bytes (NAME_MAX on Linux). A path has at most 2,048 bytes, so that a
 * PostgreSQL index can contain it.
 */
export function checkPath(field: string, value: string): string {
  const problem = findPathProblem(value);
  if (problem) throw new InvalidInputError(field, `has a path that ${problem}`);
  return value;
}

/** Returns the different paths in a list. Omits empty paths, which come from empty lines in the input. */
export const withoutEmpty = (paths: readonly string[] | null | undefined): string[] => [
  ...new Set(paths?.filter((path) => path !== '')),
];

/** Returns the error message for an invalid path, such as `is longer than 2048 bytes`; undefined for a valid path. */
export function findPathProblem(value: string): string | undefined {
  if (!isStorable(value)) return `contains NUL or invalid Unicode: ${quote(value)}`;
  if (!value.startsWith('/')) return `does not begin with "/": ${quote(value)}`;
  if (Buffer.byteLength(value) > MAX_PATH_BYTES) return `is longer than ${MAX_PATH_BYTES} bytes: ${quote(value)}`;
  for (const part of value.slice(1).split('/')) {
    if (part.startsWith('.tapegate-')) return `contains a reserved name (.tapegate-…): ${quote(value)}`;
    if (part === '' || part === '.' || part === '..') return `contains the part ${quote(part)}: ${quote(value)}`;
    if (part.length > MAX_NAME_BYTES / 3 && Buffer.byteLength(part) > MAX_NAME_BYTES) {
      return `contains a part longer than ${MAX_NAME_BYTES} bytes: ${quote(value)}`;
    }
  }
  return undefined;
}

/**
 * Returns the normalized form of an invalid path, such as `/a/b` for `/a//./b`. Returns undefined if the normalized
 * path is also invalid.
 */
export function findNamesake(value: string): string | undefined {
  const namesake = path.posix.normalize(`/${value}`);
  return namesake !== value && findPathProblem(namesake) === undefined ? namesake : undefined;
}

/**
 * Checks that a value is one email address. Rejects invisible characters, and characters that could start another
 * address or header.
 */
export function checkAddress(field: string, value: string): string {
  if (value.length > MAX_ADDRESS || CONTROL.test(value) || !value.isWellFormed() || !ADDRESS.test(value)) {
    throw new InvalidInputError(field, `must be an email address, not ${quote(value)}`);
  }
  const seen = value.replace(INVISIBLE, '\ufffd');
  if (seen !== value) {
    throw new InvalidInputError(field, `must be an email address without invisible characters, not ${quote(seen)}`);
  }
  if (value.replace(/.*@/, '').split('.').includes('')) {
    throw new InvalidInputError(
      field,
      `must not have a domain with a leading, trailing or double dot: ${quote(value)}`,
    );
  }
  return value;
}

const ADDRESS = /^[^\s@<>()[\]\\,;:"]{1,64}@[^\s@<>()[\]\\,;:"]+$/u;
const INVISIBLE = /[\p{Cf}\p{Default_Ignorable_Code_Point}]/gu;

export function checkTime(field: string, value: string): string {
  const time = parseTime(value);
  if (time) return time;
  throw new InvalidInputError(
    field,
    `must be a date YYYY-MM-DD or a UTC date-time YYYY-MM-DDTHH:MM:SS[.ffffff] without a zone, not ${quote(value)}`,
  );
}

const MAX_BYTES = 2n ** 63n - 1n;

export function checkBytes(field: string, value: bigint): bigint {
  if (value < 0n || value > MAX_BYTES) {
    throw new InvalidInputError(field, `must be from 0 to ${MAX_BYTES} bytes, not ${value}`);
  }
  return value;
}
