/** Formats times and time spans for commands. */

import { formatSpan } from '../../core/text/spans.js';
import { parseZonedTime, secondsBetween as secondsBetweenUtc } from '../../core/time.js';
import type { EndFragment } from '../../generated/operations.js';
import { commandState } from './io.js';

export function secondsBetween(from: string, to: string): number {
  const [start, end] = [from, to].map((time) => parseZonedTime(time) ?? time) as [string, string];
  return secondsBetweenUtc(start, end);
}

let local: Intl.DateTimeFormat | undefined;

export function formatTime(time: string): string {
  if (!commandState().isForPeople) return time.slice(0, 19);
  const at = readTime(time);
  const fromNow = formatFromNow((at.getTime() - Date.now()) / 1000);
  // reuse the formatter, because creating a formatter is slow; the locale `sv-SE` formats times almost as in ISO 8601
  local ??= new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', timeStyle: 'medium' });
  return `${local.format(at)} (${fromNow})`;
}

/**
 * For people, formats a time like `formatTime`. For scripts, removes fractions of a second from the server's time, but
 * keeps the time zone.
 */
export function formatWholeTime(time: string): string {
  return commandState().isForPeople ? formatTime(time) : time.replace(/\.\d+/, '');
}

/** Formats a time for a narrow table column. For people, returns only the time span from now, such as `in 5 days`. */
export function formatShortTime(time: string): string {
  return commandState().isForPeople ? formatFromNow((readTime(time).getTime() - Date.now()) / 1000) : time.slice(0, 19);
}

const readTime = (time: string): Date => new Date(time.replace(/Z?$/, 'Z'));

/**
 * Describes a time relative to now, such as `in 5 days`, `3 h ago` or `now`.
 * @param seconds seconds from now to the time; negative if the time is in the past
 */
export function formatFromNow(seconds: number): string {
  const span = formatSpan(Math.abs(seconds));
  if (span === 'now') return span;
  return seconds < 0 ? `${span} ago` : `in ${span}`;
}

/**
 * Describes a problem and, if Tapegate will try again, the time until the next attempt: `no answer (next try in 14 s)`.
 */
export function formatProblem(now: string, problem: string, nextTry: string | null): string {
  return nextTry === null
    ? problem
    : `${problem} (next try ${formatFromNow(Math.max(secondsBetween(now, nextTry), 0))})`;
}

/**
 * Describes when a request will be complete.
 * @param why the reason why the server does not know when the request will be complete
 * @param nextTry time of the next attempt to restore a failed file
 */
export function formatEnd(
  now: string,
  end: EndFragment | null,
  { why = null, nextTry = null }: { why?: string | null; nextTry?: string | null } = {},
): string {
  if (!end) return why === null ? 'end unknown' : `end unknown: ${why}`;
  const [earliest, planned, latest] = [end.earliest, end.planned, end.latest].map((time) =>
    formatSpan(secondsBetween(now, time)),
  );
  if (planned === 'now' && nextTry !== null) {
    const fromNow = secondsBetween(now, nextTry);
    return `done after the next attempt, which starts ${fromNow < 1 ? 'now' : formatFromNow(fromNow)}`;
  }
  const note = end.isMeasured ? '' : 'estimate without measurements';
  if (planned === 'now') return `done in a few seconds${note && ` (${note})`}`;
  return `done in about ${planned} (${earliest} to ${latest}${note && `; ${note}`})`;
}
