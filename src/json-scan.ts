/**
 * Looks through JSON as it comes, part by part, before any of it is parsed: how many values it has, how deep it is, and where
 * the integers are that a double does not hold. A part of 64 kB takes a tenth of a millisecond, whatever is in it.
 */

/** What is taken; anything more is a problem. */
export interface JsonBounds {
  values: number;
  /** Lists and objects, which cost far more than other values. */
  containers: number;
  depth: number;
}

/** From where to where an integer stands, in bytes. */
export type Span = [from: number, to: number];

/** As many digits may be more than a double holds. */
const LONG_DIGITS = 16;

/** Nothing counts that far, and the time that BigInt takes grows faster than the digits. */
const MAX_NUMBER = 1000;

const codeOf = (sign: string) => sign.charCodeAt(0);
const [QUOTE, BACKSLASH, MINUS, ZERO] = [codeOf('"'), codeOf('\\'), codeOf('-'), codeOf('0')];

/** What a byte outside of strings is; a table, since each byte of a body is looked up. */
const [OTHER, DIGIT, FRACTIONAL, STRING, NEXT, OPENING, CLOSING] = [0, 1, 2, 3, 4, 5, 6];
const kinds = new Uint8Array(256).fill(OTHER);
for (const [signs, kind] of [
  ['-0123456789', DIGIT],
  ['+.eE', FRACTIONAL],
  ['"', STRING],
  [',', NEXT],
  ['[{', OPENING],
  [']}', CLOSING],
] as const) {
  for (const sign of signs) kinds[codeOf(sign)] = kind;
}

export class JsonScan {
  /** What is too much, as the rest of a sentence about the text; undefined while nothing is. */
  problem: string | undefined;
  /** Integers of many digits outside of strings, in order. */
  readonly integers: Span[] = [];
  private readonly bounds: JsonBounds;
  private at = 0;
  private values = 1;
  private containers = 0;
  private depth = 0;
  private isString = false;
  private isEscaped = false;
  /** Where the number began that goes on. */
  private numberFrom = -1;
  private isInteger = true;
  private firstDigit = 0;

  constructor(bounds: JsonBounds) {
    this.bounds = bounds;
  }

  /** Looks at the next part, unless there is a problem already. */
  add(bytes: Uint8Array): void {
    const [start, { length }] = [this.at, bytes];
    for (let index = 0; index < length && this.problem === undefined; index++) {
      if (this.isString) {
        index = this.skipString(bytes, index);
        continue;
      }
      const byte = bytes[index] as number;
      const kind = kinds[byte] as number;
      if (kind === OTHER && this.numberFrom < 0) continue;
      this.at = start + index;
      this.look(byte, kind);
    }
    this.at = start + length;
  }

  /** There are no more parts. */
  end(): void {
    if (this.numberFrom >= 0) this.endNumber();
  }

  /** @returns where the string ends, or the part */
  private skipString(bytes: Uint8Array, from: number): number {
    let isEscaped = this.isEscaped;
    for (let index = from; index < bytes.length; index++) {
      const byte = bytes[index];
      if (isEscaped) {
        isEscaped = false;
      } else if (byte === BACKSLASH) {
        isEscaped = true;
      } else if (byte === QUOTE) {
        this.isString = this.isEscaped = false;
        return index;
      }
    }
    this.isEscaped = isEscaped;
    return bytes.length;
  }

  private look(byte: number, kind: number): void {
    if (kind === DIGIT) {
      this.addDigit(byte);
      return;
    }
    if (this.numberFrom >= 0) {
      if (kind === FRACTIONAL) {
        this.isInteger = false;
        return;
      }
      this.endNumber();
    }
    if (kind === STRING) this.isString = true;
    else if (kind === NEXT) this.addValue();
    else if (kind === OPENING) this.open();
    else if (kind === CLOSING) this.depth--;
  }

  private addDigit(byte: number): void {
    if (this.numberFrom < 0) {
      this.numberFrom = this.at;
      this.isInteger = true;
      this.firstDigit = byte;
    } else if (byte === MINUS) {
      this.isInteger = false;
    } else if (this.firstDigit === MINUS) {
      this.firstDigit = byte;
    }
    if (this.at - this.numberFrom >= MAX_NUMBER) this.problem = `a number has more than ${MAX_NUMBER} characters`;
  }

  /** What begins with a zero is no JSON, and is left to the parser to refuse. */
  private endNumber(): void {
    const isLong = this.at - this.numberFrom >= LONG_DIGITS;
    if (this.isInteger && isLong && this.firstDigit !== ZERO) this.integers.push([this.numberFrom, this.at]);
    this.numberFrom = -1;
  }

  private addValue(): void {
    if (++this.values > this.bounds.values) this.problem = `it has more than ${this.bounds.values} values`;
  }

  private open(): void {
    this.addValue();
    if (++this.containers > this.bounds.containers) {
      this.problem = `it has more than ${this.bounds.containers} lists and objects`;
    }
    if (++this.depth > this.bounds.depth) this.problem = 'it is nested too deeply';
  }
}
