/**
 * Searches paths for plain, case-sensitive substrings, without wildcards. Searches use one of two indexes: an index of
 * trigrams, or an index of the words between the delimiters in a path. The word index is faster for digits and dates,
 * because their trigrams occur in most paths.
 */
import { allOf, type Sql, sql } from '../db/sql.js';
import { escapeLike, type SearchTerm } from './file-search.js';

/**
 * Returns the SQL condition that is true if the path of the file `f` contains `text`. PostgreSQL can use the trigram
 * index only for conditions on `f.path` itself. In the other conditions, `f.path || ''` prevents the use of this index.
 */
export function holdsText(text: string): Sql {
  const like = `%${escapeLike(text)}%`;
  const lookup = choosePatternLookup(text);
  if (lookup.by === 'trigrams') return sql`f.path LIKE ${like}`;
  if (lookup.by === 'scan') return sql`f.path || '' LIKE ${like}`;
  return sql`(path_words(f.path) @@ ${wordsQuery(lookup.words)}::tsquery AND f.path || '' LIKE ${like})`;
}

/** Returns the SQL condition that is true if the path of the file `f` matches all terms of a search. */
export function matchesTerms(terms: readonly SearchTerm[]): Sql {
  return allOf(terms.map(matchesTerm));
}

function matchesTerm(term: SearchTerm): Sql {
  if (term.kind === 'glob') {
    // the index finds candidates for LIKE faster than for the regular expression
    const path = term.literals.some(hasTrigrams) ? sql`f.path` : sql`f.path || ''`;
    return sql`(${path} ILIKE ${term.like} AND f.path || '' ~* ${term.regex})`;
  }
  const { text, isExact } = term;
  if (isExact || text.toLowerCase() === text.toUpperCase()) return holdsText(text);
  const like = `%${escapeLike(text)}%`;
  return hasTrigrams(text) ? sql`f.path ILIKE ${like}` : sql`f.path || '' ILIKE ${like}`;
}

export function isScan(text: string): boolean {
  return choosePatternLookup(text).by === 'scan';
}

/**
 * Returns whether a search contains a rare word, which few paths contain. All searches with a rare word can use the
 * same query plan.
 */
export function isByRareWord(text: string): boolean {
  const lookup = choosePatternLookup(text);
  return lookup.by === 'words' && lookup.words.some(isRare);
}

/**
 * Returns a tsquery that matches paths that contain all the words. The tsquery also matches all paths that are too long
 * for the word index (`path_words`).
 */
function wordsQuery(words: readonly Word[]): string {
  const all = words.map(({ text, isPrefix }) => quoteWord(text) + (isPrefix ? ':*' : ''));
  return `${all.join(' & ')} | '/'`;
}

function quoteWord(text: string): string {
  return `'${text.replace(/['\\]/g, '$&$&')}'`;
}

/**
 * Method of searching for a pattern. `scan` tests every path, and is used if a trigram search would read the whole
 * trigram index.
 */
type PatternLookup = { by: 'words'; words: Word[] } | { by: 'trigrams' } | { by: 'scan' };

interface Word {
  text: string;
  isPrefix: boolean;
}

const DELIMITER = /[/_\-.+=,:@~ ]/;
/**
 * Maximum number of words in a search. More words make a search slower. In a test, a search for all 12 words of a path
 * took four times as long as a search for three of them.
 */
const MAX_WORDS = 5;
/**
 * Minimum length of a word prefix that a search uses. `alone` is the minimum for a search without whole words, and
 * `beside` for a search with whole words. PostgreSQL reads all indexed words that begin with the prefix, so a short
 * prefix makes the search slower.
 */
const MIN_PREFIX = { alone: 3, beside: 6 };
/** Maximum length of a word in code points. PostgreSQL accepts words of up to 2,046 bytes. */
const MAX_WORD = 100;

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
 * Returns whether to search by words instead of trigrams. Searching by words is faster only for patterns with digits.
 * If a pattern contains letters only, a trigram search is fast, because few paths contain the same three letters in a
 * row.
 */
function isBetterByWords(cut: string, words: readonly string[]): boolean {
  if (words.length === 0) return false;
  const left = longestRun(cut);
  return left < 3 || (words.some((word) => /\d/.test(word)) && words.some((word) => word.length >= left));
}

/**
 * Estimates how rare a word is. Words with digits count as rarer, because a date or a number occurs in fewer paths than
 * a directory name.
 */
function rarityOf(word: string): number {
  return word.length + 4 * word.replace(/\D/g, '').length;
}

const RARE = 30;

function isRare({ text }: Word): boolean {
  return rarityOf(text) >= RARE;
}

function shorten(word: Word): Word {
  const characters = [...word.text];
  return characters.length > MAX_WORD ? { text: characters.slice(0, MAX_WORD).join(''), isPrefix: true } : word;
}

function longestRun(text: string): number {
  return Math.max(0, ...text.split(/[^a-z0-9]/i).map((run) => run.length));
}

/**
 * Returns whether a pattern contains a trigram. When PostgreSQL splits a text into trigrams, it adds two blanks before
 * each word and one blank after each word. If the database's locale classifies letters differently than this function,
 * searches are slower but correct.
 */
function hasTrigrams(pattern: string): boolean {
  const runs = pattern.split(/[^\p{L}\p{N}]/u);
  return runs.some((run, at) => {
    const blanks = (at > 0 ? 2 : 0) + (at < runs.length - 1 ? 1 : 0);
    return run !== '' && [...run].length + blanks >= 3;
  });
}
