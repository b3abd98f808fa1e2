/** Returns the message for a search that did not find any path containing `text`. */
export const describeNoMatch = (text: string): string =>
  `no file in the catalogue has a path that contains ${JSON.stringify(text)} ${describeMatching(text)}`;

/**
 * Returns a note that tells the user how the search matches its text with paths, such as `(case-sensitive)`.
 * @param text the text as the user typed it
 */
export function describeMatching(text: string): string {
  const wildcards = /[*?[\]]/.test(text) ? '; * ? [ ] are literal' : '';
  return `(case-sensitive${wildcards})`;
}
