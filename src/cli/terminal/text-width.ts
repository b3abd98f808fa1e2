/**
 * Measures the width of text in terminal columns. East Asian characters and emoji take two columns. Combining marks
 * take no column.
 */

const ASCII = /^[\x20-\x7e]*$/;
const NO_WIDTH = /^[\p{Mark}\p{Format}]$/u;
const WIDE =
  /^[\p{Emoji_Presentation}\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{17000}-\u{18cff}\u{1b000}-\u{1b2ff}\u{20000}-\u{3fffd}]$/u;

export function widthOf(text: string): number {
  if (ASCII.test(text)) return text.length;
  let width = 0;
  for (const character of text) width += widthOfCharacter(character);
  return width;
}

function widthOfCharacter(character: string): number {
  if (NO_WIDTH.test(character)) return 0;
  return WIDE.test(character) ? 2 : 1;
}

export const padTo = (text: string, width: number): string => text + ' '.repeat(Math.max(width - widthOf(text), 0));

const ELLIPSIS = '…';

/** Shortens a text to `width` columns. Replaces the end of a text, or the beginning of a path, with an ellipsis. */
export function truncate(text: string, width: number): string {
  if (widthOf(text) <= width) return text;
  if (!text.startsWith('/')) return takeWidth(clustersOf(text), width - 1).join('') + ELLIPSIS;
  return (
    ELLIPSIS +
    takeWidth(clustersOf(text).reverse(), width - 1)
      .reverse()
      .join('')
  );
}

const clustersOf = (text: string): string[] => [...new Intl.Segmenter().segment(text)].map(({ segment }) => segment);

function takeWidth(clusters: readonly string[], width: number): string[] {
  let left = width;
  const end = clusters.findIndex((cluster) => {
    left -= widthOf(cluster);
    return left < 0;
  });
  return clusters.slice(0, end === -1 ? clusters.length : end);
}
