/**
 * Finds which trigrams and pairs of characters each path that matches a search contains. PostgreSQL splits paths into
 * trigrams with `show_trgm`: in lower case, with two blanks before each word and one blank after it.
 */
import type { SearchTerm } from './file-search.js';

/** Maximum number of grams of a search. More grams hardly narrow the search. */
const MAX_GRAMS = 40;

const WORD = /[a-z0-9]+/g;
const isAscii = (character: string | undefined) => character !== undefined && character <= '\x7f';

/** Returns the grams that each path with `text` contains. Ignores characters that are not ASCII. */
function gramsOfText(text: string): string[] {
  const lower = text.toLowerCase();
  return [...lower.matchAll(WORD)].flatMap(({ 0: word, index }) => {
    // at its ends, the text can be a part of a longer word, also of one with other letters
    const before = isAscii(lower[index - 1]) ? '  ' : '';
    const after = isAscii(lower[index + word.length]) ? ' ' : '';
    const padded = before + word + after;
    if (padded.length === 2) return [padded];
    return Array.from({ length: Math.max(padded.length - 2, 0) }, (_, n) => padded.slice(n, n + 3));
  });
}

/** Returns grams that each path with all the terms contains. */
export function gramsOf(terms: readonly SearchTerm[]): string[] {
  const texts = terms.flatMap((term) => (term.kind === 'glob' ? term.literals : [term.text]));
  return [...new Set(texts.flatMap(gramsOfText))].slice(0, MAX_GRAMS);
}
