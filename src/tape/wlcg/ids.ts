/** The name of a demand: that of the system, or several where it was taken in parts. */
export function joinIds(ids: readonly string[]): string | null {
  const [only] = ids;
  if (only === undefined) return null;
  return ids.length === 1 && !only.startsWith('[') ? only : JSON.stringify(ids);
}

export function splitIds(id: string | null): string[] {
  if (id === null) return [];
  if (!id.startsWith('[')) return [id];
  try {
    const ids: unknown = JSON.parse(id);
    if (Array.isArray(ids) && ids.every((each) => typeof each === 'string')) return ids;
  } catch {} // it was not made here
  return [id];
}
