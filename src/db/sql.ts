/**
 * Builds SQL statements from text and parameters. A statement can be composed of smaller SQL fragments. Tapegate uses
 * Prisma to read rows by id, and to write single rows if no other transaction can interfere. All other SQL is built
 * with this module.
 */
import { Prisma } from '../generated/prisma/client.js';

export type Sql = Prisma.Sql;

type Values = readonly Prisma.Sql['values'][number][];

export class Statement extends Prisma.Sql {
  /**
   * Name under which PostgreSQL stores the prepared statement; undefined if the statement is not prepared
   * (prepared.ts).
   */
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

/** Inserts text into SQL without quoting it. The text must be a constant in the program, never a caller's input. */
export function raw(text: string): Sql {
  return new Statement([text], []);
}

export const empty = raw('');

/** Joins SQL values or fragments with a separator. The list `values` must not be empty. */
export function join(values: readonly unknown[], separator = ','): Sql {
  return new Statement(['', ...Array<string>(values.length - 1).fill(separator), ''], values as Values);
}

/** Joins SQL conditions with AND. Returns the SQL condition `true` if the list of conditions is empty. */
export function allOf(conditions: readonly Sql[]): Sql {
  return conditions.length === 0 ? sql`true` : join(conditions, ' AND ');
}
