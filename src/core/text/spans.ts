/** Formats lengths of time. */

export function formatSpan(seconds: number): string {
  if (seconds < 1) return 'now';
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 48 * 3600 ? `${toTenth(seconds / 3600)} h` : `${toTenth(seconds / 86_400)} days`;
}

const toTenth = (value: number): string => value.toFixed(value < 100 ? 1 : 0).replace(/\.0$/, '');
