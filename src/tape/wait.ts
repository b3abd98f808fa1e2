/** How long files take to come to disk, as settings have it: for estimates, until it is known how long they have really taken. */
import type { SettingsReader } from './kind.js';

export const waitNames = ['waitMinutes', 'waitMinutesMost'];

/** Seconds. */
export interface Wait {
  least: number;
  most: number;
}

const MOST_MINUTES = 30 * 24 * 60;

/** @param usual where nothing is given @returns undefined where nothing is known */
export function readWait(reader: SettingsReader, usual?: Wait): Wait | undefined {
  const minutes = (name: string, least: number) =>
    reader.integer(name, { least, most: MOST_MINUTES, fallback: undefined });
  const least = minutes('waitMinutes', 0);
  const most = minutes('waitMinutesMost', least ?? 0);
  if (least === undefined && most === undefined) return usual;
  const [leastSeconds, mostSeconds] = [least, most].map((each) => (each === undefined ? undefined : each * 60));
  return {
    least: leastSeconds ?? Math.min(usual?.least ?? 0, mostSeconds ?? 0),
    most: mostSeconds ?? Math.max(usual?.most ?? 0, leastSeconds ?? 0),
  };
}
