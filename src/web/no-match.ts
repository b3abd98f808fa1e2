/** Why there may be no file, for whoever has mistyped something. */

/** Of a text that was looked for in paths. */
export const tellNoMatch = (text: string): string =>
  `no file of the catalogue has ${JSON.stringify(text)} in its path ${tellExactness(text)}`;

/** @param text as it was typed */
export function tellExactness(text: string): string {
  const wildcards = /[*?[\]]/.test(text) ? ', and * ? [ ] stand for themselves' : '';
  return `(upper and lower case differ${wildcards})`;
}
