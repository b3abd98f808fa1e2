/** How values are told: the browser's zone and language for times, powers of 1000 for bytes as everywhere in Tapegate. */

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB'];

/** @param bytes exact, as GraphQL has them */
export function formatBytes(bytes: string | number | bigint): string {
  let value = Number(bytes);
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit++;
  }
  const digits = unit === 0 || Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

/** `1 file`, `1,200 files`. */
export function count(number: number, one: string, many = `${one}s`): string {
  return `${formatNumber(number)} ${number === 1 ? one : many}`;
}

export const formatNumber = (number: number): string => number.toLocaleString();

/** The share of a part, from 0 to 1; what has nothing to do is done. */
export function share(part: string | number, all: string | number): number {
  const whole = Number(all);
  return whole === 0 ? 1 : Math.min(1, Number(part) / whole);
}

export function formatTime(at: string): string {
  return new Date(at).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' });
}

/** For whoever hovers or has to write it down. */
export const formatUtc = (at: string): string => `${new Date(at).toISOString().slice(0, 19).replace('T', ' ')} UTC`;

const STEPS: [Intl.RelativeTimeFormatUnit, number][] = [
  ['day', 86_400],
  ['hour', 3600],
  ['minute', 60],
  ['second', 1],
];

/** `in 3 hours`, `2 days ago`. @param now milliseconds */
export function formatSpan(at: string, now: number): string {
  const seconds = (Date.parse(at) - now) / 1000;
  const [unit, size] = STEPS.find(([, each]) => Math.abs(seconds) >= each) ?? ['second', 1];
  return new Intl.RelativeTimeFormat(undefined, { numeric: 'auto' }).format(Math.trunc(seconds / size), unit);
}
