/** Parses JSON without loss of precision in integers. */
import { randomUUID } from 'node:crypto';

/** Parses a JSON text. Integers beyond 2^53 become bigints. */
export function parseJson(text: string): unknown {
  JSON.parse(text); // report errors for the original text
  const marked = text.replace(TOKENS, (token) => (LONG.test(token) ? `"${mark}${token}"` : token));
  return JSON.parse(marked, (_name, value) => {
    if (typeof value !== 'string' || !value.startsWith(mark)) return value;
    const digits = value.slice(mark.length);
    return Number.isSafeInteger(Number(digits)) ? Number(digits) : BigInt(digits);
  });
}

const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;
const LONG = /^-?\d{16,}$/;
/** Prefix of integers in quotes. The UUID keeps the prefix apart from all strings of a test. */
const mark = `${randomUUID()}:`;
