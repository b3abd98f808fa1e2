/** How commands tell times; GraphQL gives them with a zone. */

import { parseZonedTime, secondsBetween as secondsBetweenUtc } from '../../core/time.js';
import type { EndFragment } from '../../generated/command-operations.js';
import { present } from './io.js';

export function secondsBetween(from: string, to: string): number {
  const [start, end] = [from, to].map((time) => parseZonedTime(time) ?? time) as [string, string];
  return secondsBetweenUtc(start, end);
}

let local: Intl.DateTimeFormat | undefined;

export function formatTime(time: string): string {
  if (!present().tellsPeople) return time.slice(0, 19);
  const at = readTime(time);
  const fromNow = formatFromNow((at.getTime() - Date.now()) / 1000);
  // as ISO writes them; to be made takes a seventh of the time in which a command starts
  local ??= new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', timeStyle: 'medium' });
  return `${local.format(at)} (${fromNow})`;
}

/** To people as `formatTime` has it; in full to scripts, as the server says it. */
export function formatWholeTime(time: string): string {
  return present().tellsPeople ? formatTime(time) : time;
}

/** For a narrow column: to people how long until then. */
export function formatShortTime(time: string): string {
  return present().tellsPeople ? formatFromNow((readTime(time).getTime() - Date.now()) / 1000) : time.slice(0, 19);
}

const readTime = (time: string): Date => new Date(time.replace(/Z?$/, 'Z'));

/** `in 5 days`, `3 h ago`, `now`. @param seconds from now */
export function formatFromNow(seconds: number): string {
  const span = formatSpan(Math.abs(seconds));
  if (span === 'now') return span;
  return seconds < 0 ? `${span} ago` : `in ${span}`;
}

/** A time from now, as people say it. */
export function formatSpan(seconds: number): string {
  if (seconds < 1) return 'now';
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 48 * 3600 ? `${toTenth(seconds / 3600)} h` : `${toTenth(seconds / 86_400)} days`;
}

/** `5`, `5.1`, `365`. */
const toTenth = (value: number): string => value.toFixed(value < 100 ? 1 : 0).replace(/\.0$/, '');

const WHY_UNKNOWN = 'something is out of service, no restore disk has room, or no engine works';

/**
 * When it will be done, as the end of a sentence.
 * @param why it cannot be told, where the server says that
 * @param nextTry of a file that was tried before: nobody knows that this one succeeds
 */
export function formatEnd(
  now: string,
  end: EndFragment | null,
  { why = null, nextTry = null }: { why?: string | null; nextTry?: string | null } = {},
): string {
  if (!end) return `when it will be done cannot be told: ${why ?? WHY_UNKNOWN}`;
  const [earliest, planned, latest] = [end.earliest, end.planned, end.latest].map((time) =>
    formatSpan(secondsBetween(now, time)),
  );
  if (planned === 'now' && nextTry !== null) {
    const fromNow = secondsBetween(now, nextTry);
    return `done with its next try, ${fromNow < 1 ? 'which is due' : formatFromNow(fromNow)}`;
  }
  return planned === 'now' ? 'done at once' : `done in ${planned} by the plan, from ${earliest} to ${latest}`;
}
