/** Durations as ISO 8601 writes them (P2D, PT12H, P1Y2M3W4DT5H6M7.5S): a year has 365 days here, and a month 30. */
import { InvalidInputError, quote } from '../../src/errors.js';

const PARTS =
  /^P(?=.)(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+(?:[.,]\d+)?)D)?(?:T(?=.)(?:(\d+(?:[.,]\d+)?)H)?(?:(\d+(?:[.,]\d+)?)M)?(?:(\d+(?:[.,]\d+)?)S)?)?$/;

const DAY = 24 * 3600;
const SECONDS = [365 * DAY, 30 * DAY, 7 * DAY, DAY, 3600, 60, 1];
/** A hundred years. */
const MOST = 100 * 365 * DAY;

/** @returns whole seconds @throws InvalidInputError */
export function readDuration(field: string, text: string): number {
  const [, ...parts] = (text.length <= 100 && PARTS.exec(text)) || [''];
  const sum = parts.reduce((all, part, n) => all + Number((part ?? '0').replace(',', '.')) * (SECONDS[n] ?? 0), 0);
  const seconds = Math.ceil(sum);
  if (seconds > 0 && seconds <= MOST) return seconds;
  throw new InvalidInputError(field, `must be an ISO 8601 duration such as P2D, up to P100Y, not ${quote(text)}`);
}
