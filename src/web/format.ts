/** Formats numbers and times for the browser's language and time zone. */
export { formatBytes } from '../core/text/bytes.js';

/** Returns a number followed by a noun, such as `1 file` or `1,200 files`. */
export function count(number: number, one: string, many = `${one}s`): string {
  return `${formatNumber(number)} ${number === 1 ? one : many}`;
}

const numbers = new Intl.NumberFormat();

export const formatNumber = (number: number): string => numbers.format(number);

/** Returns the fraction `part / all`, at most 1; returns 1 if `all` is 0. */
export function share(part: bigint | number, all: bigint | number): number {
  const whole = Number(all);
  return whole === 0 ? 1 : Math.min(1, Number(part) / whole);
}

export function formatTime(at: string): string {
  return new Date(at).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' });
}

export const formatUtc = (at: string): string => `${new Date(at).toISOString().slice(0, 19).replace('T', ' ')} UTC`;

const TWO_DAYS_MS = 172_800_000;

/**
 * Formats the start or end of a time span. If the span is longer than two days, omits the time of day.
 * @param lengthMs length of the span
 */
export function formatSpanEnd(at: number, lengthMs: number): string {
  if (lengthMs <= TWO_DAYS_MS) return formatTime(new Date(at).toISOString());
  return new Date(at).toLocaleDateString(undefined, { dateStyle: 'medium' });
}

/**
 * Units of time, with their length in seconds. The third member is the number of units from which the dashboard uses
 * the next larger unit.
 */
const STEPS: [Intl.RelativeTimeFormatUnit, number, number][] = [
  ['second', 1, 60],
  ['minute', 60, 60],
  ['hour', 3600, 48],
];

/**
 * Shortest time span, in seconds, that the dashboard shows as a number. Shorter spans are shown as `just now` or `in a
 * moment`.
 */
const NOW_SECONDS = 30;

/**
 * Returns whether the time `at` is in the past, or less than `NOW_SECONDS` seconds in the future. `at` and `now` are in
 * milliseconds.
 */
export const isSoon = (at: number, now: number): boolean => at - now < NOW_SECONDS * 1000;

/**
 * Returns the rounded span from now to a time, such as `in 3 hours`, `2 days ago`, `just now` or `in a moment`.
 * @param at the time in milliseconds
 * @param now the current time in milliseconds
 */
export function formatSpan(at: number, now: number): string {
  const seconds = (at - now) / 1000;
  if (Math.abs(seconds) < NOW_SECONDS) return seconds > 0 ? 'in a moment' : 'just now';
  const isFew = ([, size, most]: (typeof STEPS)[number]) => Math.round(Math.abs(seconds) / size) < most;
  const [unit, size] = STEPS.find(isFew) ?? ['day', 86_400];
  return new Intl.RelativeTimeFormat().format(Math.round(seconds / size), unit);
}
