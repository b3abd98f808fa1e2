/** Explains why a search finds no file, in case the text was mistyped. */

/** Describes a search for a text in paths that found nothing. */
export const describeNoMatch = (text: string): string =>
  `no file in the catalogue has ${JSON.stringify(text)} in its path ${describeMatching(text)}`;

/** Describes how text matches paths. @param text as it was typed */
export function describeMatching(text: string): string {
  const wildcards = /[*?[\]]/.test(text) ? '; * ? [ ] are literal' : '';
  return `(case-sensitive${wildcards})`;
}
