/** `match` and `pattern` are plain, case-sensitive substrings: no character of them is a wildcard. */
import { type Sql, sql } from '../database/sql.js';
import { choosePatternLookup, isRare, type Word } from './pattern-lookup.js';

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
