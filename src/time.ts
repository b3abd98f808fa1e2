/**
 * Times are text everywhere in the program: UTC without a zone, `YYYY-MM-DDTHH:MM:SS`, with six digits of fraction
 * where it is not zero. A JavaScript Date holds milliseconds only and would lose what the database keeps.
 */

const DATE = /^(\d{4})-(\d\d)-(\d\d)$/;
const DATE_TIME = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?$/;

/** Normalises a date (its midnight) or a date-time without a zone; undefined when the text is neither. */
export function parseTime(text: string): string | undefined {
  const match = DATE_TIME.exec(DATE.test(text) ? `${text}T00:00:00` : text);
  if (!match) return undefined;
  const [, seconds = '', digits = ''] = match;
  const date = new Date(`${seconds}Z`);
  // 30 February parses as 2 March; the year 0000 is none in PostgreSQL
  if (Number.isNaN(date.getTime()) || !date.toISOString().startsWith(seconds) || seconds.startsWith('0000')) {
    return undefined;
  }
  const fraction = digits.padEnd(6, '0');
  return fraction === '000000' ? seconds : `${seconds}.${fraction}`;
}

const ZONE = /^([^Tt]+[Tt].+?)(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))$/;

/**
 * Normalises a date-time with a zone as RFC 3339 writes them (`Z`, `+05:30`), or what `parseTime` takes; undefined when
 * the text is neither, or its time in UTC is in none of the years 1 to 9999.
 */
export function parseZonedTime(text: string): string | undefined {
  const [, local, sign, hours, minutes] = ZONE.exec(text) ?? [];
  if (local === undefined) return parseTime(text);
  const time = parseTime(local.replace('t', 'T'));
  if (time === undefined || sign === undefined) return time;
  const offset = BigInt(Number(hours) * 60 + Number(minutes)) * 60_000_000n;
  const micros = toMicros(time) + (sign === '+' ? -offset : offset);
  return micros < YEAR_1 || micros >= YEAR_10000 ? undefined : fromMicros(micros);
}

/** What PostgreSQL prints for a timestamp (DateStyle ISO), in the form above. */
export function timeFromDatabase(text: string): string {
  const seconds = `${text.slice(0, 10)}T${text.slice(11, 19)}`;
  return text.length > 19 ? `${seconds}.${text.slice(20).padEnd(6, '0')}` : seconds;
}

/** The time of some microseconds since 1970 (may be negative); undefined outside of the years 1 to 9999. */
export function timeFromMicros(micros: bigint): string | undefined {
  const isWithin = micros >= toMicros('0001-01-01T00:00:00') && micros <= toMicros('9999-12-31T23:59:59.999999');
  return isWithin ? fromMicros(micros) : undefined;
}

/** `time` moved by a number of seconds (may be negative or fractional). */
export function addSeconds(time: string, seconds: number): string {
  return fromMicros(toMicros(time) + BigInt(Math.round(seconds * 1e6)));
}

/** Seconds from `from` to `to`. */
export function secondsBetween(from: string, to: string): number {
  return Number(toMicros(to) - toMicros(from)) / 1e6;
}

/** Seconds since 1970, with their fraction. */
export function secondsOf(time: string): number {
  return Number(toMicros(time)) / 1e6;
}

/** The time of some seconds since 1970; the last second of the year 9999 for all that is later, since texts have four digits. */
export function timeOf(seconds: number): string {
  return seconds < LAST_SECOND ? addSeconds('1970-01-01T00:00:00', seconds) : LAST_TIME;
}

/** Times in their normal form are in order as text, but for the missing fraction. */
export function isBefore(a: string, b: string): boolean {
  return a.padEnd(26, '.000000') < b.padEnd(26, '.000000');
}

const LAST_TIME = '9999-12-31T23:59:59';
const LAST_SECOND = secondsOf(LAST_TIME);
const YEAR_1 = toMicros('0001-01-01T00:00:00');
const YEAR_10000 = toMicros('9999-12-31T23:59:59') + 1_000_000n;

function toMicros(time: string): bigint {
  return BigInt(Date.parse(`${time.slice(0, 19)}Z`)) * 1000n + BigInt(time.slice(20).padEnd(6, '0'));
}

function fromMicros(micros: bigint): string {
  const rest = ((micros % 1_000_000n) + 1_000_000n) % 1_000_000n; // before 1970 as well
  const seconds = new Date(Number((micros - rest) / 1_000_000n) * 1000).toISOString().slice(0, 19);
  const fraction = rest.toString().padStart(6, '0');
  return fraction === '000000' ? seconds : `${seconds}.${fraction}`;
}
