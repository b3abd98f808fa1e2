/** Reads pages of files in an order that no index has. Sorts all matching files, up to a maximum. */
import { InvalidInputError } from '../../core/errors.js';
import { parseTime } from '../../core/time.js';
import { askAtLength } from '../../db/lists/snapshot.js';
import { raw, type Sql, sql } from '../../db/sql.js';
import type { Context } from '../context.js';
import type { KeyPage } from '../page-keys.js';

/** Maximum number of files that Tapegate sorts. PostgreSQL sorts this number of files in less than a second. */
export const MAX_SORTED = 200_000;

/** The key expression of each order, and the key's type. Files without a time or a volume come first. */
const orders = {
  PATH: { key: sql`f.path COLLATE "C"`, type: raw('text'), isKey: isPlain },
  SIZE: {
    key: sql`f.size`,
    type: raw('bigint'),
    isKey: (text: string) => /^\d{1,19}$/.test(text) && BigInt(text) < 2n ** 63n,
  },
  STAGE: {
    key: sql`f.stage`,
    type: raw('"Stage"'),
    isKey: (text: string) => /^(UNVERIFIED|ONDISK|ONTAPE|RESTORING|RESTORED)$/.test(text),
  },
  MODIFIED: {
    key: sql`coalesce(f.mtime, '-infinity')`,
    type: raw('timestamp'),
    isKey: (text: string) => text === '-infinity' || parseTime(text.replace(' ', 'T')) !== undefined,
  },
  VOLUME: {
    key: sql`coalesce((SELECT v.name FROM volume v WHERE v.id = f.volume_id), '') COLLATE "C"`,
    type: raw('text'),
    isKey: isPlain,
  },
} as const;

export type FileOrderField = keyof typeof orders;

/** The position of a file in an order: its key as text, and its path. */
export interface OrderedKey {
  key: string;
  path: string;
}

function isPlain(text: string): boolean {
  return !text.includes('\0');
}

/** Returns whether a position, which a client sent, belongs to the order. */
export function isKeyOf(field: FileOrderField, { key, path }: OrderedKey): boolean {
  return orders[field].isKey(key) && isPlain(path) && (field !== 'PATH' || key === path);
}

/**
 * Reads a page of files. Returns undefined if more than `MAX_SORTED` files match.
 * @param list.rows a FROM clause with the files `f`
 */
export async function readSortedPage<Row>(
  ctx: Context,
  list: { rows: Sql; columns: Sql; field: FileOrderField; reader?: AbortSignal | undefined },
  { after, before, limit, inverted = false, descending = false }: KeyPage<OrderedKey>,
): Promise<(Row & OrderedKey)[] | undefined> {
  const { key, type } = orders[list.field];
  const [above, below] = descending ? [before, after] : [after, before];
  const place = (at: OrderedKey) => sql`(${at.key}::text::${type}, ${at.path}::text COLLATE "C")`;
  const own = list.field === 'VOLUME' || list.field === 'PATH' ? sql`m.key COLLATE "C"` : sql`m.key`;
  const path = sql`m.path COLLATE "C"`;
  const direction = raw(inverted === descending ? 'ASC' : 'DESC');
  const rows = await askAtLength<Row & OrderedKey & { found: number; path: string | null }>(
    ctx,
    sql`WITH m AS MATERIALIZED (SELECT f.id, f.path, ${key} AS key FROM ${list.rows} LIMIT ${raw(String(MAX_SORTED + 1))}),
        page AS (SELECT m.*, row_number() OVER (ORDER BY ${own} ${direction}, ${path} ${direction}) AS n FROM m
          WHERE ${above ? sql`(${own}, ${path}) > ${place(above)}` : sql`true`} AND ${below ? sql`(${own}, ${path}) < ${place(below)}` : sql`true`}
          ORDER BY ${own} ${direction}, ${path} ${direction} LIMIT ${raw(String(Math.trunc(limit)))})
        SELECT c.found, p.key::text AS key, ${list.columns} FROM (SELECT count(*)::int AS found FROM m) c
        LEFT JOIN (page p JOIN tape_file f ON f.id = p.id) ON true ORDER BY p.n`,
    list.reader,
  );
  if ((rows[0]?.found ?? 0) > MAX_SORTED) return undefined;
  return rows.filter((row) => row.path !== null);
}

export function tooManyToSort(field: FileOrderField): InvalidInputError {
  return new InvalidInputError(
    'orderBy',
    `${field} can sort at most ${MAX_SORTED} files, but the search matches more than ${MAX_SORTED}: narrow the search, or order by PATH`,
  );
}
