/** Formats times near now without the parts that need no words. */

const DAY_MS = 86_400_000;

/** Returns the time of day if the time is on the same day as `now`, otherwise the date and the time of day. */
export function formatClock(at: string, now: number): string {
  const time = new Date(at);
  const isToday = time.toDateString() === new Date(now).toDateString();
  if (isToday) return time.toLocaleTimeString(undefined, { timeStyle: 'short' });
  const isThisWeek = Math.abs(time.getTime() - now) < 6 * DAY_MS;
  const options: Intl.DateTimeFormatOptions = isThisWeek
    ? { weekday: 'short', hour: '2-digit', minute: '2-digit' }
    : { dateStyle: 'medium', timeStyle: 'short' };
  return time.toLocaleString(undefined, options);
}
