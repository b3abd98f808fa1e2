/** What commands print: tables for people, JSON for scripts. */
import { formatBytes } from '../mail.js';

/** A JSON document a line; bigints are exact. */
export function printJson(value: unknown): void {
  const text = JSON.stringify(value).replace(UNSAFE, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
  process.stdout.write(`${text}\n`);
}

export function printLine(text: string): void {
  process.stdout.write(`${printable(text)}\n`);
}

/** Columns as wide as their widest cell. */
export function printTable(header: string[], rows: string[][]): void {
  const cells = [header, ...rows].map((row) => row.map(printable));
  const widths = header.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  for (const row of cells) {
    const line = row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ');
    process.stdout.write(`${line.trimEnd()}\n`);
  }
}

/**
 * Text as one line of a terminal. Names come from users and must not move its cursor, begin another line, or turn the
 * direction of writing.
 */
export function printable(text: string): string {
  return text.replace(UNSAFE, '\uFFFD');
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is replaced
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

export function bytes(value: bigint | number): string {
  return formatBytes(BigInt(value));
}

const UNITS: Record<string, bigint> = {
  '': 1n,
  K: 10n ** 3n,
  M: 10n ** 6n,
  G: 10n ** 9n,
  T: 10n ** 12n,
  P: 10n ** 15n,
  Ki: 2n ** 10n,
  Mi: 2n ** 20n,
  Gi: 2n ** 30n,
  Ti: 2n ** 40n,
  Pi: 2n ** 50n,
};

/** `10T` is ten times 10^12 bytes, `10Ti` ten times 2^40; undefined for any other text. */
export function parseSize(text: string): bigint | undefined {
  const match = /^(\d{1,19})(?:\.(\d{1,6}))?\s*([KMGTP]i?)?B?$/.exec(text);
  const unit = UNITS[match?.[3] ?? ''];
  if (!match || unit === undefined || (unit === 1n && match[2] !== undefined)) return undefined;
  const fraction = BigInt((match[2] ?? '').padEnd(6, '0'));
  return BigInt(match[1] ?? 0) * unit + (fraction * unit) / 1_000_000n;
}
