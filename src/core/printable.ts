/** Text of users in lines that people read: on a terminal, in an email, in an error message. */

/** Control characters (C0, C1), separators of lines, and characters that change the direction of text (Bidi_Control). */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern must contain control characters
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]|\p{Bidi_Control}/gu;

/**
 * Makes one safe line: names from users must not move a cursor, begin a line or a header, or change the text direction.
 */
export function printable(text: string): string {
  return text.replace(UNSAFE, '\uFFFD');
}

/** Escapes the same characters in JSON. */
export function escapeUnsafe(json: string): string {
  return json.replace(UNSAFE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
