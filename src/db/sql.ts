/**
 * Represents SQL as values. A value contains text and parameters, and can be composed of smaller fragments. Tapegate
 * uses Prisma to read rows by id, and to write single rows if no other transaction can interfere. All other work uses
 * this module.
 */
import { Prisma } from '../generated/prisma/client.js';

export type Sql = Prisma.Sql;

type Values = readonly Prisma.Sql['values'][number][];

export class Statement extends Prisma.Sql {
  /** The name of the prepared statement (prepared.ts). */
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

/** Joins SQL values or fragments. The list must not be empty. */
export function join(values: readonly unknown[], separator = ','): Sql {
  return new Statement(['', ...Array<string>(values.length - 1).fill(separator), ''], values as Values);
}

/** Joins conditions with AND. Returns `true` if there are no conditions. */
export function allOf(conditions: readonly Sql[]): Sql {
  return conditions.length === 0 ? sql`true` : join(conditions, ' AND ');
}
