/** JSON with exact integers, both ways: a bigint is a number literal of any size. */
import { JsonScan, type Span } from './json-scan.js';

declare global {
  interface JSON {
    rawJSON?: (text: string) => unknown;
  }
}

/** JSON.parse, but integers beyond 2^53 come as bigint. */
export function parseJson(text: string): unknown {
  if (!MANY_DIGITS.test(text)) return JSON.parse(text);
  const bytes = Buffer.from(text);
  const scan = new JsonScan(BOUNDLESS);
  scan.add(bytes);
  scan.end();
  if (scan.problem !== undefined) throw new SyntaxError(scan.problem);
  if (scan.integers.length === 0) return JSON.parse(text);
  try {
    return reviveIntegers(JSON.parse(markIntegers(bytes, scan.integers).toString()));
  } catch {
    // as the parser says it of the text as it is; only an integer in place of a name has gone through it
    JSON.parse(text);
    throw new SyntaxError('a number stands where a name must');
  }
}

const MANY_DIGITS = /\d{16}/;

const BOUNDLESS = {
  values: Number.POSITIVE_INFINITY,
  containers: Number.POSITIVE_INFINITY,
  depth: Number.POSITIVE_INFINITY,
};

let mark: string | undefined;

/** Another one in each process, so that no text of a user can be taken for it. Most commands load no cryptography, and need none. */
function ownMark(): string {
  mark ??= `\uE000${globalThis.crypto.randomUUID()}:`;
  return mark;
}

/**
 * JSON in which long integers are marked strings, so that the native parser keeps all of their digits: a parser in
 * JavaScript takes twenty times as long.
 */
export function markIntegers(bytes: Buffer, integers: readonly Span[]): Buffer {
  const opening = Buffer.from(`"${ownMark()}`);
  const parts: Buffer[] = [];
  let end = 0;
  for (const [from, to] of integers) {
    parts.push(bytes.subarray(end, from), opening, bytes.subarray(from, to), CLOSING_MARK);
    end = to;
  }
  return Buffer.concat([...parts, bytes.subarray(end)]);
}

const CLOSING_MARK = Buffer.from('"');

/** Puts integers in the place of what was marked, in the value itself. @throws SyntaxError where a name was marked */
export function reviveIntegers(value: unknown): unknown {
  if (typeof value === 'string') return value.startsWith(ownMark()) ? toInteger(value.slice(ownMark().length)) : value;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) value[index] = reviveIntegers(value[index]);
  } else if (typeof value === 'object' && value !== null) {
    for (const [name, part] of Object.entries(value)) {
      if (name.startsWith(ownMark())) throw new SyntaxError('a number stands where a name must');
      Object.defineProperty(value, name, { value: reviveIntegers(part) }); // also where it is __proto__
    }
  }
  return value;
}

const toInteger = (digits: string) => (Number.isSafeInteger(Number(digits)) ? Number(digits) : BigInt(digits));

/**
 * Makes JSON.stringify exact for bigints, for the whole process: REST, Yoga, graphql-sse and the log need no more.
 * Node >= 22 has JSON.rawJSON. On Node 20 `toJSON` gives a marked string and JSON.stringify takes the mark away again;
 * 100,000 rows take 79 ms against 31 ms of the lossy original and 285 ms of lossless-json. The mark is another one in
 * each process, so that no text of a user can be taken for it. Calling twice is safe.
 */
export function installExactJson(): void {
  if ('toJSON' in BigInt.prototype) return;
  const raw = JSON.rawJSON;
  if (raw) {
    defineToJson(function rawInteger() {
      return raw(String(this));
    });
    return;
  }
  let marked: RegExp | undefined;
  let used = false;
  defineToJson(function markedInteger() {
    const number = Number(this);
    if (Number.isSafeInteger(number)) return number;
    used = true;
    return ownMark() + String(this);
  });
  const native = JSON.stringify as (...args: unknown[]) => string;
  JSON.stringify = ((...args: unknown[]) => {
    used = false;
    const text = native(...args);
    if (!used) return text;
    marked ??= new RegExp(`"${ownMark()}(-?\\d+)"`, 'g');
    return text.replace(marked, '$1');
  }) as typeof JSON.stringify;
}

function defineToJson(toJSON: (this: bigint) => unknown): void {
  Object.defineProperty(BigInt.prototype, 'toJSON', { configurable: true, writable: true, value: toJSON });
}
