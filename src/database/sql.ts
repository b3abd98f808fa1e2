/**
 * SQL is a value: text and its values together, composed of fragments that are values themselves. Functions pass no strings of SQL to each
 * other, and count no `$1`.
 *
 * Prisma reads the fields that GraphQL selects, of rows that are known by their ids, and creates or changes a single row for which nothing
 * races (a quota, a disk, a medium). Everything else is SQL: sets, locks, counts, which rows are in a list, and whatever must be fast. The
 * filter of a list is one fragment, which its count, its pages and its stream share.
 */
import { Prisma } from '../generated/prisma/client.js';

export type Sql = Prisma.Sql;

type Values = readonly Prisma.Sql['values'][number][];

/** A statement, or a part of one. */
export class Statement extends Prisma.Sql {
  /** By which it is prepared (prepared.ts). */
  name: string | undefined = undefined;
  private whole: string | undefined = undefined;

  override get text(): string {
    this.whole ??= super.text;
    return this.whole;
  }
}

export function sql(strings: readonly string[], ...values: readonly unknown[]): Sql {
  return new Statement(strings, values as Values);
}

/** For names from a closed list only. */
export function raw(text: string): Sql {
  return new Statement([text], []);
}

/** Nothing. */
export const empty = raw('');

/** Joins values or fragments, of which there must be one at least. */
export function join(values: readonly unknown[], separator = ','): Sql {
  return new Statement(['', ...Array<string>(values.length - 1).fill(separator), ''], values as Values);
}

/** Returns all of the conditions, or true if there are none. */
export function allOf(conditions: readonly Sql[]): Sql {
  return conditions.length === 0 ? sql`true` : join(conditions, ' AND ');
}
