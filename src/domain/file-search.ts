/**
 * Parses the text of a file search: words in any order, quoted words and globs. Returns LIKE patterns and regular
 * expressions for PostgreSQL.
 */
import { InvalidInputError, quote } from '../core/errors.js';

/** A part of a search. A path matches the search if it matches all terms. */
export type SearchTerm =
  | { kind: 'text'; text: string; isExact: boolean }
  /**
   * `like` matches a superset of the paths that `regex` matches. Both ignore case. `literals` are the parts without
   * wildcards.
   */
  | { kind: 'glob'; text: string; literals: readonly string[]; like: string; regex: string };

/** Maximum number of words in a search. Each word is a condition that PostgreSQL checks for each candidate path. */
const MAX_TERMS = 20;

/**
 * Splits a search into terms. A missing closing quote counts as a quote at the end of the text, because a user might
 * not have typed it yet.
 * @throws InvalidInputError
 */
export function parseSearch(text: string): SearchTerm[] {
  const terms: SearchTerm[] = [];
  for (const [, quoted, word] of text.matchAll(/"([^"]*)(?:"|$)|(\S+)/g)) {
    if (quoted) terms.push({ kind: 'text', text: quoted, isExact: true });
    if (word) terms.push(isGlob(word) ? parseGlob(word) : { kind: 'text', text: word, isExact: false });
  }
  if (terms.length <= MAX_TERMS) return terms;
  throw new InvalidInputError('search', `must have at most ${MAX_TERMS} words, not ${terms.length}`);
}

/** A set of characters in a glob, such as `[a-z]` or `[!0-9]`. */
const SET = String.raw`\[(!?)(\][^\]]*|[^\]]+)\]`;
const WILDCARD = new RegExp(`[*?]|${SET}`);
const GLOB_PART = new RegExp(String.raw`\*{2,}/?|\*|\?|${SET}|[^*?[]+|\[`, 'g');

const isGlob = (word: string): boolean => WILDCARD.test(word);

/** Maximum number of sets in a word, because each set takes PostgreSQL milliseconds. */
const MAX_SETS = 20;

function parseGlob(text: string): SearchTerm {
  const sets = [...text.matchAll(new RegExp(SET, 'g'))].length;
  if (sets > MAX_SETS)
    throw new InvalidInputError('search', `must have at most ${MAX_SETS} sets in a word, not ${sets}`);
  let [like, regex] = ['', ''];
  const literals: string[] = [];
  for (const [part, negation, set] of text.matchAll(GLOB_PART)) {
    if (part.startsWith('*')) {
      like += '%';
      regex += part.endsWith('/') ? '(.*/)?' : part === '*' ? '[^/]*' : '.*';
    } else if (part === '?') {
      like += '_';
      regex += '[^/]';
    } else if (set) {
      like += '_';
      regex += setOf(part, negation === '!', set);
    } else {
      literals.push(part);
      like += escapeLike(part);
      regex += escapeRegex(part);
    }
  }
  return { kind: 'glob', text, literals, ...anchor(text, like, regex) };
}

/**
 * Adds the ends of the pattern. A glob without a slash matches a whole component of a path. A glob that begins with a
 * slash matches a whole path, and another glob with a slash matches the last components of a path.
 */
function anchor(text: string, like: string, regex: string): { like: string; regex: string } {
  if (text.startsWith('/')) return { like, regex: `^${regex}$` };
  return text.includes('/')
    ? { like: `%/${like}`, regex: `/${regex}$` }
    : { like: `%/${like}%`, regex: `/${regex}(/|$)` };
}

/** Returns a set of characters as a regular expression. No set contains the slash. */
function setOf(part: string, isNegated: boolean, set: string): string {
  let content = '';
  const characters = [...set];
  for (let at = 0; at < characters.length; at++) {
    const [low = '', dash, high] = characters.slice(at, at + 3);
    if (dash !== '-' || high === undefined) {
      if (low !== '/') content += escaped(low);
      continue;
    }
    content += rangeOf(part, low, high);
    at += 2;
  }
  if (isNegated) return `[^/${content}]`;
  if (content === '') throw new InvalidInputError('search', `must not have a set with only a slash: ${quote(part)}`);
  return `[${content}]`;
}

/** Maximum number of characters in a range. PostgreSQL lists the characters of a range to ignore their case. */
const MAX_RANGE = 1000;

/** Returns a range of characters without the slash, as part of a set. */
function rangeOf(part: string, low: string, high: string): string {
  const [first, last] = [low.codePointAt(0) ?? 0, high.codePointAt(0) ?? 0];
  if (first > last) throw new InvalidInputError('search', `must not have a range in descending order: ${quote(part)}`);
  if (last - first >= MAX_RANGE)
    throw new InvalidInputError(
      'search',
      `must not have a range of more than ${MAX_RANGE} characters: ${quote(part)} has ${last - first + 1}`,
    );
  const between = (from: number, to: number) =>
    from > to ? '' : `${escaped(String.fromCodePoint(from))}-${escaped(String.fromCodePoint(to))}`;
  if (first > SLASH || last < SLASH) return between(first, last);
  return between(first, SLASH - 1) + between(SLASH + 1, last);
}

const SLASH = '/'.charCodeAt(0);

/** Escapes a character with a meaning in a set. */
const escaped = (character: string): string => character.replace(/[\\\]^[-]/, '\\$&');

/** Escapes the characters with a meaning in a LIKE pattern. */
export const escapeLike = (text: string): string => text.replace(/[\\%_]/g, '\\$&');

const escapeRegex = (text: string): string => text.replace(/[\\^$.|?*+(){}[\]]/g, '\\$&');
