/** Represents times as text in UTC without a zone, because a JavaScript `Date` would lose the microseconds. */

const DATE = /^(\d{4})-(\d\d)-(\d\d)$/;
const DATE_TIME = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?$/;

/**
 * Normalises a date and time without a zone. A date without a time of day means midnight. Returns undefined for other
 * text.
 */
export function parseTime(text: string): string | undefined {
  const match = DATE_TIME.exec(DATE.test(text) ? `${text}T00:00:00` : text);
  if (!match) return undefined;
  const [, seconds = '', digits = ''] = match;
  const date = new Date(`${seconds}Z`);
  // reject 30 February, which JavaScript parses as 2 March, and the year 0000, which PostgreSQL does not accept
  if (Number.isNaN(date.getTime()) || !date.toISOString().startsWith(seconds) || seconds.startsWith('0000')) {
    return undefined;
  }
  const fraction = digits.padEnd(6, '0');
  return fraction === '000000' ? seconds : `${seconds}.${fraction}`;
}

const ZONE = /^([^Tt]+[Tt].+?)(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))$/;

/** Normalises an RFC 3339 time, or any text that `parseTime` accepts. Returns undefined for years outside 1 to 9999. */
export function parseZonedTime(text: string): string | undefined {
  const [, local, sign, hours, minutes] = ZONE.exec(text) ?? [];
  if (local === undefined) return parseTime(text);
  const time = parseTime(local.replace('t', 'T'));
  if (time === undefined || sign === undefined) return time;
  const offset = BigInt(Number(hours) * 60 + Number(minutes)) * 60_000_000n;
  const micros = toMicros(time) + (sign === '+' ? -offset : offset);
  return micros < YEAR_1 || micros >= YEAR_10000 ? undefined : fromMicros(micros);
}

/** Converts a timestamp in PostgreSQL's output format (DateStyle ISO) to this module's format. */
export function timeFromDatabase(text: string): string {
  const seconds = `${text.slice(0, 10)}T${text.slice(11, 19)}`;
  return text.length > 19 ? `${seconds}.${text.slice(20).padEnd(6, '0')}` : seconds;
}

/** Converts microseconds since 1970 to a time. Returns undefined for years outside 1 to 9999. */
export function timeFromMicros(micros: bigint): string | undefined {
  const isWithin = micros >= toMicros('0001-01-01T00:00:00') && micros <= toMicros('9999-12-31T23:59:59.999999');
  return isWithin ? fromMicros(micros) : undefined;
}

export function addSeconds(time: string, seconds: number): string {
  return fromMicros(toMicros(time) + BigInt(Math.round(seconds * 1e6)));
}

export function secondsBetween(from: string, to: string): number {
  return Number(toMicros(to) - toMicros(from)) / 1e6;
}

export function secondsOf(time: string): number {
  return Number(toMicros(time)) / 1e6;
}

/** Converts seconds since 1970 to a time. A time after the year 9999 becomes the last second of that year. */
export function timeOf(seconds: number): string {
  return seconds < LAST_SECOND ? addSeconds('1970-01-01T00:00:00', seconds) : LAST_TIME;
}

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
  // apply modulo twice, so that the result is also correct for times before 1970
  const rest = ((micros % 1_000_000n) + 1_000_000n) % 1_000_000n;
  const seconds = new Date(Number((micros - rest) / 1_000_000n) * 1000).toISOString().slice(0, 19);
  const fraction = rest.toString().padStart(6, '0');
  return fraction === '000000' ? seconds : `${seconds}.${fraction}`;
}
