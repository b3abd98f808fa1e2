/** Pages of lists that are made anew for every query, such as the plan: rows come, go and change their order meanwhile. */
import type { DefaultConnectionArguments } from '@pothos/plugin-relay';
import { MAX_PAGE_SIZE, PAGE_SIZE } from './builder.js';
import { createCursors } from './cursors.js';

/** Where a row stands: a number, nothing being the last, and the names that tell it from the others. */
export type RowKey = readonly [order: number | null, ...names: string[]];

/**
 * A page by the values of the keys. A cursor stands for its row wherever that is now, and for the place of its key once
 * the row has gone.
 * @param rows in the order of `compareKeys`
 */
export function pageOf<Row>(args: DefaultConnectionArguments, rows: readonly Row[], keyOf: (row: Row) => RowKey) {
  const { after, before, first, last } = args;
  const placeOf = (cursor: string): { index: number; isThere: boolean } => {
    const key = cursors.read(cursor);
    const index = rows.findIndex((row) => isSame(keyOf(row), key));
    if (index >= 0) return { index, isThere: true };
    const next = rows.findIndex((row) => compareKeys(keyOf(row), key) > 0);
    return { index: next < 0 ? rows.length : next, isThere: false };
  };
  const lower = after == null ? undefined : placeOf(after);
  let start = lower ? lower.index + (lower.isThere ? 1 : 0) : 0;
  let end = Math.max(before == null ? rows.length : placeOf(before).index, start);
  const size = Math.min(Math.max(first ?? last ?? PAGE_SIZE, 0), MAX_PAGE_SIZE);
  if (last != null || (before != null && first == null)) start = Math.max(start, end - size);
  else end = Math.min(end, start + size);
  const edges = rows.slice(start, end).map((node) => ({ cursor: cursors.write(keyOf(node)), node }));
  const startCursor = edges[0]?.cursor ?? null;
  const endCursor = edges.at(-1)?.cursor ?? null;
  return { edges, pageInfo: { startCursor, endCursor, hasPreviousPage: start > 0, hasNextPage: end < rows.length } };
}

/** By the number, then by the names, character by character. */
export function compareKeys([a, ...names]: RowKey, [b, ...others]: RowKey): number {
  if (a !== b) return (a ?? Number.POSITIVE_INFINITY) < (b ?? Number.POSITIVE_INFINITY) ? -1 : 1;
  const index = names.findIndex((name, n) => name !== others[n]);
  return index < 0 ? 0 : (names[index] ?? '') < (others[index] ?? '') ? -1 : 1;
}

function isSame([, ...names]: RowKey, [, ...others]: RowKey): boolean {
  return names.length === others.length && names.every((name, n) => name === others[n]);
}

const cursors = createCursors<RowKey>('row', {
  format: (key) => JSON.stringify(key),
  parse: (text) => {
    const [order, ...names] = readList(text);
    const isOrder = order === null || typeof order === 'number';
    return isOrder && names.length > 0 && names.every((name) => typeof name === 'string')
      ? [order, ...names]
      : undefined;
  },
});

function readList(json: string): unknown[] {
  try {
    const list: unknown = JSON.parse(json);
    return Array.isArray(list) ? list : [];
  } catch {
    return [];
  }
}
