/** Parses JSON of responses with exact integers. */
import { randomUUID } from 'node:crypto';

/** Returns the value of a JSON text, in which integers beyond 2^53 are bigints. */
export function parseJson(text: string): unknown {
  JSON.parse(text); // throws an error on the text as it is
  const marked = text.replace(TOKENS, (token) => (LONG.test(token) ? `"${mark}${token}"` : token));
  return JSON.parse(marked, (_name, value) => {
    if (typeof value !== 'string' || !value.startsWith(mark)) return value;
    const digits = value.slice(mark.length);
    return Number.isSafeInteger(Number(digits)) ? Number(digits) : BigInt(digits);
  });
}

const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;
const LONG = /^-?\d{16,}$/;
/** No text of a test contains it. */
const mark = `${randomUUID()}:`;
