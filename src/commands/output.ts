/** What commands print: tables for people, JSON for scripts. */
import { formatBytes } from '../mail.js';

/** A JSON document a line; bigints are exact. */
export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
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

/** Names come from users and must not move a terminal's cursor. */
function printable(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is replaced
  return text.replace(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/g, '\uFFFD');
}

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
  if (!match || unit === undefined) return undefined;
  const fraction = BigInt((match[2] ?? '').padEnd(6, '0'));
  return BigInt(match[1] ?? 0) * unit + (fraction * unit) / 1_000_000n;
}
