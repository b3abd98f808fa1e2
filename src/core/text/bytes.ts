import { plural } from './plural.js';

/** Formats a size with three digits and a decimal unit: `1.50 MB`. */
export function formatBytes(bytes: bigint | number | string): string {
  const units = ['bytes', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB'];
  let value = Number(bytes);
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  const whole = Math.round(value);
  if (unit === 0) return `${whole} ${whole === 1 ? 'byte' : 'bytes'}`;
  return `${value.toPrecision(3)} ${units[unit]}`;
}

/**
 * Returns `formatBytes`, or a function that prints exact bytes if `formatBytes` would return the same text for `one`
 * and `other`.
 */
export function formatterOf(one: bigint, other: bigint): (bytes: bigint) => string {
  return formatBytes(one) === formatBytes(other) ? (bytes) => plural(bytes, 'byte') : formatBytes;
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

/** Parses a size such as `10T` (10 × 10^12 bytes) or `10Ti` (10 × 2^40). Returns undefined for any other text. */
export function parseSize(text: string): bigint | undefined {
  const match = /^(\d{1,19})(?:\.(\d{1,6}))?\s*([KMGTP]i?)?B?$/.exec(text);
  const unit = UNITS[match?.[3] ?? ''];
  if (!match || unit === undefined || (unit === 1n && match[2] !== undefined)) return undefined;
  const fraction = BigInt((match[2] ?? '').padEnd(6, '0'));
  return BigInt(match[1] ?? 0) * unit + (fraction * unit) / 1_000_000n;
}
