/**
 * Searches plain, case-sensitive substrings of paths: `match` and `pattern` have no wildcards.
 * The words of a path between delimiters are indexed. Digits and dates share a few trigrams everywhere, so words serve
 * them better than the trigram index.
 */
import { type Sql, sql } from '../db/sql.js';

/** The path of `f` contains `text`. All searches use this form: the trigram index does not serve an expression. */
export function holdsText(text: string): Sql {
  const like = `%${escapeLike(text)}%`;
  const lookup = choosePatternLookup(text);
  if (lookup.by === 'trigrams') return sql`f.path LIKE ${like}`;
  if (lookup.by === 'scan') return sql`f.path || '' LIKE ${like}`;
  return sql`(path_words(f.path) @@ ${wordsQuery(lookup.words)}::tsquery AND f.path || '' LIKE ${like})`;
}

export function isScan(text: string): boolean {
  return choosePatternLookup(text).by === 'scan';
}

/** One plan is good for all of these. */
export function isByRareWord(text: string): boolean {
  const lookup = choosePatternLookup(text);
  return lookup.by === 'words' && lookup.words.some(isRare);
}

function escapeLike(text: string): string {
  return text.replace(/[\\%_]/g, '\\$&');
}

/** The tsquery of paths that contain all words, or are too long for the index (`path_words`). */
function wordsQuery(words: readonly Word[]): string {
  const all = words.map(({ text, isPrefix }) => quoteWord(text) + (isPrefix ? ':*' : ''));
  return `${all.join(' & ')} | '/'`;
}

function quoteWord(text: string): string {
  return `'${text.replace(/['\\]/g, '$&$&')}'`;
}

/** `scan`: all paths, since PostgreSQL would read the whole trigram index first. */
type PatternLookup = { by: 'words'; words: Word[] } | { by: 'trigrams' } | { by: 'scan' };

interface Word {
  text: string;
  /** The path has a word that begins with it. */
  isPrefix: boolean;
}

const DELIMITER = /[/_\-.+=,:@~ ]/;
/** All 12 words of a path with its date took four times as long as the three of the date. */
const MAX_WORDS = 5;
/** PostgreSQL reads all words with the prefix, which costs more than it saves if there are other words. */
const MIN_PREFIX = { alone: 3, beside: 6 };
/** Code points. PostgreSQL takes words of 2,046 bytes. */
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

/** Letters have rare trigrams, which cover the beginning of a pattern too. Words are better only for digits. */
function isBetterByWords(cut: string, words: readonly string[]): boolean {
  if (words.length === 0) return false;
  const left = longestRun(cut);
  return left < 3 || (words.some((word) => /\d/.test(word)) && words.some((word) => word.length >= left));
}

/** A guess: dates and numbers are in few paths, directory names in many. */
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

/** Counts only characters that are in trigrams of every locale. */
function longestRun(text: string): number {
  return Math.max(0, ...text.split(/[^a-z0-9]/i).map((run) => run.length));
}

/** PostgreSQL pads words with two blanks before and one after. A wrong guess of the locale only slows a search. */
function hasTrigrams(pattern: string): boolean {
  const runs = pattern.split(/[^\p{L}\p{N}]/u);
  return runs.some((run, at) => {
    const blanks = (at > 0 ? 2 : 0) + (at < runs.length - 1 ? 1 : 0);
    return run !== '' && [...run].length + blanks >= 3;
  });
}
