/**
 * Finds which trigrams and pairs of characters each path that matches a search contains. PostgreSQL splits paths into
 * trigrams with `show_trgm`: in lower case, with two blanks before each word and one blank after it.
 */
import type { SearchTerm } from './file-search.js';

/** Maximum number of grams of a search. With more grams, PostgreSQL might read the grams of all blocks instead. */
const MAX_GRAMS = 10;

const WORD = /[a-z0-9]+/g;
const isAscii = (character: string | undefined) => character !== undefined && character <= '\x7f';

/** Returns the grams that each path with `text` contains. Ignores characters that are not ASCII. */
function gramsOfText(text: string): string[] {
  // the lower case of some other letters is ASCII
  const lower = text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
  return [...lower.matchAll(WORD)].flatMap(({ 0: word, index }) => {
    // at its ends, the text can be a part of a longer word, also of one with other letters
    const before = isAscii(lower[index - 1]) ? '  ' : '';
    const after = isAscii(lower[index + word.length]) ? ' ' : '';
    const padded = before + word + after;
    if (padded.length > 2) return Array.from({ length: padded.length - 2 }, (_, n) => padded.slice(n, n + 3));
    return word.length === 2 ? [word] : [];
  });
}

/** Returns grams that each path with all the terms contains. */
export function gramsOf(terms: readonly SearchTerm[]): string[] {
  const texts = terms.flatMap((term) => (term.kind === 'glob' ? term.literals : [term.text]));
  const grams = [...new Set(texts.flatMap(gramsOfText))];
  const step = Math.ceil(grams.length / MAX_GRAMS);
  return grams.filter((_, n) => n % step === 0);
}
