/** What the files of the catalogue are called in the bucket. Pure. */
import { quote, TapeError } from '../../errors.js';
import type { Prefix } from './settings.js';

/** As S3 bounds them: bytes of UTF-8. */
const MAX_KEY_BYTES = 1024;

/**
 * @param prefixes the longest path first
 * @throws TapeError PERMANENT where the settings have no key for the path
 */
export function keyOf(path: string, prefixes: readonly Prefix[]): string {
  const prefix = prefixes.find((each) => path.startsWith(each.path));
  if (!prefix) {
    const known = prefixes.map((each) => quote(each.path)).join(', ');
    throw new TapeError('PERMANENT', `${quote(path)} is below none of the library's prefixes (${known})`);
  }
  const key = prefix.key + path.slice(prefix.path.length);
  const bytes = Buffer.byteLength(key);
  if (bytes === 0 || bytes > MAX_KEY_BYTES || !key.isWellFormed())
    throw new TapeError(
      'PERMANENT',
      `${quote(key)} can be no key of S3: ${bytes} bytes, from 1 to ${MAX_KEY_BYTES} can be`,
    );
  return key;
}

/** The order of lists: that of the bytes, which is not that of JavaScript's strings. */
export function compareKeys(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

/** What all of the keys begin with, up to a slash. */
export function commonFolder(keys: readonly string[]): string {
  const [first = '', ...others] = keys;
  let end = first.lastIndexOf('/') + 1;
  for (const key of others) {
    while (!key.startsWith(first.slice(0, end))) end = first.slice(0, end - 1).lastIndexOf('/') + 1;
  }
  return first.slice(0, end);
}

/** The last code point that anybody may use: next to no key has it. */
const LAST = '\u{10FFFD}';

/** A text after which a list begins with the key: what lies between them is in no bucket. */
export function justBefore(key: string): string {
  const points = Array.from(key);
  const last = points.pop()?.codePointAt(0) ?? 0;
  if (last <= 1) return points.join('');
  const before = last === 0xe000 ? 0xd7ff : last - 1; // none are between these
  return points.join('') + String.fromCodePoint(before) + LAST;
}
