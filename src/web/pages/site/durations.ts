/** Formats rates and lengths of time. */
import { formatBytes, formatNumber } from '../../format';

export const formatRate = (bytesPerSecond: number): string => `${formatBytes(Math.round(bytesPerSecond))}/s`;

/** Units with their length in seconds, and the number of seconds from which the next unit is used. */
const UNITS = [
  ['s', 1, 120],
  ['min', 60, 7200],
  ['h', 3600, 172_800],
] as const;

/** Returns a length of time, such as `45 s`, `12 min`, `3.5 h` or `4.2 days`. */
export function formatDuration(seconds: number): string {
  const [unit, size] = UNITS.find(([, , end]) => seconds < end) ?? ['days', 86_400];
  const value = seconds / size;
  const isExact = unit === 's' || unit === 'min' || value >= 100;
  return `${formatNumber(isExact ? Math.round(value) : Math.round(value * 10) / 10)} ${unit}`;
}
