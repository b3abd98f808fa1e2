/** Formats numbers, and times in the browser's zone and language. */
export { formatBytes } from '../core/bytes.js';

/** `1 file`, `1,200 files`. */
export function count(number: number, one: string, many = `${one}s`): string {
  return `${formatNumber(number)} ${number === 1 ? one : many}`;
}

export const formatNumber = (number: number): string => number.toLocaleString();

/** Returns a share from 0 to 1; 1 if there is nothing to do. */
export function share(part: string | number, all: string | number): number {
  const whole = Number(all);
  return whole === 0 ? 1 : Math.min(1, Number(part) / whole);
}

export function formatTime(at: string): string {
  return new Date(at).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' });
}

/** For tooltips and copying. */
export const formatUtc = (at: string): string => `${new Date(at).toISOString().slice(0, 19).replace('T', ' ')} UTC`;

const TWO_DAYS_MS = 172_800_000;

/** Formats one end of a time span: a date for long spans. @param lengthMs of the span */
export function formatSpanEnd(at: number, lengthMs: number): string {
  if (lengthMs <= TWO_DAYS_MS) return formatTime(new Date(at).toISOString());
  return new Date(at).toLocaleDateString(undefined, { dateStyle: 'medium' });
}

/** Units, their seconds, and the largest number that is shown in each. */
const STEPS: [Intl.RelativeTimeFormatUnit, number, number][] = [
  ['second', 1, 60],
  ['minute', 60, 60],
  ['hour', 3600, 48],
];

/** Shorter spans are shown without a number, which would soon be outdated. */
const NOW_SECONDS = 30;

/** `in 3 hours`, `2 days ago`, to the nearest; `just now`, `in a moment`. @param at @param now milliseconds */
export function formatSpan(at: number, now: number): string {
  const seconds = (at - now) / 1000;
  if (Math.abs(seconds) < NOW_SECONDS) return seconds > 0 ? 'in a moment' : 'just now';
  const isFew = ([, size, most]: (typeof STEPS)[number]) => Math.round(Math.abs(seconds) / size) < most;
  const [unit, size] = STEPS.find(isFew) ?? ['day', 86_400];
  return new Intl.RelativeTimeFormat().format(Math.round(seconds / size), unit);
}
