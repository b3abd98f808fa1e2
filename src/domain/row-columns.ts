/** Builds SELECT lists that give a table's columns their Prisma field names, and reads rows from the results. */
import { raw, type Sql } from '../db/sql.js';

/**
 * Returns a table's columns for a SELECT statement.
 * @param fields enum of the fields, such as `Prisma.RequestScalarFieldEnum`
 * @param prefix prefix of the column names in the result
 */
export function columnsOf(fields: object, alias: string, prefix = ''): Sql {
  const columns = Object.keys(fields).map((name) => `${alias}."${columnOf(name)}" AS "${prefix}${name}"`);
  return raw(columns.join(', '));
}

const columnOf = (field: string) => field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/**
 * Returns a function that extracts a row from the columns whose names begin with the prefix.
 * @param fields enum of the fields, as for `columnsOf`
 */
export function rowTaker<Row>(fields: object, prefix: string): (flat: object) => Row {
  const names = Object.keys(fields).map((name) => [name, prefix + name] as const);
  return (flat) => {
    const row: Record<string, unknown> = {};
    for (const [name, column] of names) row[name] = (flat as Record<string, unknown>)[column];
    return row as Row;
  };
}

/** The `TapeFile` columns that most lists of files need. */
export const commonFileFields = { id: 'id', path: 'path', size: 'size', stage: 'stage' } as const;
