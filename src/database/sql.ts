/**
 * SQL is a value: text and its values together, composed of fragments that are values themselves. No string of SQL goes
 * from one function to another, and no `$1` is counted by hand.
 *
 * What is Prisma's, and what is SQL's: Prisma reads the fields that GraphQL asks for, of rows that are known by their
 * ids, and makes or changes a single row for which nobody races (a quota, a disk, a medium). Everything else is SQL:
 * sets, locks, counts, which rows are in a list, and whatever must be fast. A list's filter is one fragment, which its
 * count, its pages and its stream share.
 */
import { Prisma } from '../generated/prisma/client.js';

/** `empty` is nothing; `join` puts values or fragments one after another; `raw` is for names from a closed list only. */
export const { sql, empty, join, raw } = Prisma;

export type Sql = Prisma.Sql;

/** All of the conditions; true when there is none. */
export function allOf(conditions: readonly Sql[]): Sql {
  return conditions.length === 0 ? sql`true` : join([...conditions], ' AND ');
}
