/** `match` and `pattern` are plain, case-sensitive substrings: no character of them is a wildcard. */
import { type Sql, sql } from '../database/sql.js';

/**
 * A condition on the file `f`: its path holds `text`. Whoever looks for a pattern among files does so by this one, since how it is
 * written says which index serves it: the path as an expression is none that the index of trigrams knows.
 */
export function holdsText(text: string): Sql {
  const like = `%${escapeLike(text)}%`;
  const lookup = choosePatternLookup(text);
  if (lookup.by === 'trigrams') return sql`f.path LIKE ${like}`;
  if (lookup.by === 'scan') return sql`f.path || '' LIKE ${like}`;
  return sql`(path_words(f.path) @@ ${wordsQuery(lookup.words)}::tsquery AND f.path || '' LIKE ${like})`;
}

/** Is each path looked at for this text? */
export function isScan(text: string): boolean {
  return choosePatternLookup(text).by === 'scan';
}

/** Is it looked up by a word that is rare in any catalogue? One plan is good for all of these. */
export function isByRareWord(text: string): boolean {
  const lookup = choosePatternLookup(text);
  return lookup.by === 'words' && lookup.words.some(isRare);
}

/** Takes the meaning from what LIKE would read as a wildcard. */
function escapeLike(text: string): string {
  return text.replace(/[\\%_]/g, '\\$&');
}

/** The tsquery of paths that have all of the words, or are too long for their words to be known (`path_words`). */
function wordsQuery(words: readonly Word[]): string {
  const all = words.map(({ text, isPrefix }) => quoteWord(text) + (isPrefix ? ':*' : ''));
  return `${all.join(' & ')} | '/'`;
}

/** As tsquery reads it: between quotes nothing but a quote and a backslash has a meaning, and loses it when it stands twice. */
function quoteWord(text: string): string {
  return `'${text.replace(/['\\]/g, '$&$&')}'`;
}

/**
 * How a pattern, which is a plain substring of a path, is looked for.
 *
 * The words of a path, as they stand between delimiters, have an index of their own. Digits and dates are made of the same few
 * trigrams everywhere, so that the index of trigrams has to go through much of the catalogue for them; a word that the pattern holds
 * whole, or begins at its end, is looked up. In the middle of what word the pattern begins nobody knows.
 */

/**
 * By some words that a path must have; by the trigrams of the pattern; or, where it has neither, by a look at each path: PostgreSQL would
 * go through all of the index of trigrams as well, and then look at each path all the same.
 */
export type PatternLookup = { by: 'words'; words: Word[] } | { by: 'trigrams' } | { by: 'scan' };

export interface Word {
  text: string;
  /** The path has a word that begins so, rather than the word itself. */
  isPrefix: boolean;
}

/** What stands between words: `path_words` in the database has the same. */
const DELIMITER = /[/_\-.+=,:@~ ]/;
/** One more says little more, and costs a look-up: all 12 of a path with its date took four times as long as the three of the date. */
const MAX_WORDS = 5;
/** All words that begin so are read before anything is compared: beside other words that costs more than it saves. */
const MIN_PREFIX = { alone: 3, beside: 6 };
/** Code points. PostgreSQL takes words of 2,046 bytes, and of a long one its beginning is enough. */
const MAX_WORD = 100;

/** @param pattern not empty */
export function choosePatternLookup(pattern: string): PatternLookup {
  const [cut = '', ...rest] = pattern.split(DELIMITER);
  const last = rest.pop() ?? '';
  const whole = [...new Set(rest)].filter((text) => text !== '').sort((a, b) => rarityOf(b) - rarityOf(a));
  const prefix = last.length >= (whole.length > 0 ? MIN_PREFIX.beside : MIN_PREFIX.alone) ? [last] : [];
  if (!isBetterByWords(cut, [...whole, ...prefix])) return { by: hasTrigrams(pattern) ? 'trigrams' : 'scan' };
  const words = whole.slice(0, MAX_WORDS - prefix.length).map((text) => shorten({ text, isPrefix: false }));
  return { by: 'words', words: [...words, ...prefix.map((text) => shorten({ text, isPrefix: true }))] };
}

/**
 * Letters have rare trigrams, and these serve what the pattern begins with, too: words are better where they have digits, and where
 * nothing else would be left.
 */
function isBetterByWords(cut: string, words: readonly string[]): boolean {
  if (words.length === 0) return false;
  const left = longestRun(cut);
  return left < 3 || (words.some((word) => /\d/.test(word)) && words.some((word) => word.length >= left));
}

/** A guess: dates, orbits and numbers are in few paths, and the names of an archive's folders in many. */
function rarityOf(word: string): number {
  return word.length + 4 * word.replace(/\D/g, '').length;
}

/** A date, or a number that is as long, which no archive has in more than some of its paths. */
const RARE = 30;

export function isRare({ text }: Word): boolean {
  return rarityOf(text) >= RARE;
}

function shorten(word: Word): Word {
  const characters = [...word.text];
  return characters.length > MAX_WORD ? { text: characters.slice(0, MAX_WORD).join(''), isPrefix: true } : word;
}

/** In characters of which PostgreSQL makes trigrams; what else it takes for a letter goes by the database's locale. */
function longestRun(text: string): number {
  return Math.max(0, ...text.split(/[^a-z0-9]/i).map((run) => run.length));
}

/**
 * As PostgreSQL makes trigrams of a pattern: a word has two blanks before it and one after it, where the pattern says that it begins or
 * ends there. What letters beside these are is the database's locale's to say; of a wrong guess a search is slower.
 */
function hasTrigrams(pattern: string): boolean {
  const runs = pattern.split(/[^\p{L}\p{N}]/u);
  return runs.some((run, at) => {
    const blanks = (at > 0 ? 2 : 0) + (at < runs.length - 1 ? 1 : 0);
    return run !== '' && [...run].length + blanks >= 3;
  });
}
