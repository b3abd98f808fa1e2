/** Formats a count with its noun: `1 file`, `8 files`. @param many the plural; by default, the singular with an s */
export function plural(count: number | bigint, one: string, many = `${one}s`): string {
  return `${count} ${Number(count) === 1 ? one : many}`;
}
