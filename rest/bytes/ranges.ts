/** Ranges of bytes that a reader asks for: RFC 9110, 14. */

/** The first byte, and how many. */
export interface Range {
  start: number;
  length: number;
}

/** What asks for more than so many, or for more bytes than there are, asks for the whole file. */
const MOST = 1000;

/**
 * @param size bytes of the file
 * @returns undefined for all of it; an empty list where nothing of it is asked for
 */
export function readRanges(header: string | undefined, size: number): Range[] | undefined {
  const [, list] = /^bytes=([\d\s,-]+)$/.exec(header ?? '') ?? [];
  const parts = list?.split(',').map((part) => part.trim()) ?? [];
  if (parts.length === 0 || parts.length > MOST) return undefined;
  const ranges: Range[] = [];
  for (const part of parts) {
    const [, from = '', to = ''] = /^(\d*)-(\d*)$/.exec(part) ?? [];
    if (from === '' && to === '') return undefined;
    const start = from === '' ? Math.max(0, size - Number(to)) : Number(from);
    const last = from === '' || to === '' ? size - 1 : Math.min(Number(to), size - 1);
    if (from !== '' && to !== '' && Number(from) > Number(to)) return undefined;
    if (start < size && last >= start && !(from === '' && Number(to) === 0))
      ranges.push({ start, length: last - start + 1 });
  }
  const asked = ranges.reduce((sum, { length }) => sum + length, 0);
  return ranges.length > 1 && asked > size ? undefined : ranges;
}
