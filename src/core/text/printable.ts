/** Makes text from users safe to show in a terminal, an email or an error message. */

/** Control characters (C0 and C1), line separators, and characters that change the text direction (Bidi_Control). */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern must contain control characters
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]|\p{Bidi_Control}/gu;

/**
 * Converts text to one line that is safe to print. A name from a user must not move the cursor, begin a line, or change
 * the text direction.
 */
export function printable(text: string): string {
  return text.replace(UNSAFE, '\uFFFD');
}

/** Escapes control characters, and characters that change the text direction, in JSON. */
export function escapeUnsafe(json: string): string {
  return json.replace(UNSAFE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
