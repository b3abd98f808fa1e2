/** `match` and `pattern` are plain, case-sensitive substrings: no character of them is a wildcard. */

/** Takes the meaning from what LIKE would read as a wildcard. */
function escapeLike(text: string): string {
  return text.replace(/[\\%_]/g, '\\$&');
}

/** The LIKE pattern of all texts that hold `text`. A trigram index serves it from three characters on. */
export function likeSubstring(text: string): string {
  return `%${escapeLike(text)}%`;
}
