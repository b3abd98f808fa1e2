/** Columns of rows that a statement reads whole, by the names that Prisma has for them. */
import { raw, type Sql } from '../database/sql.js';

/**
 * Returns all columns of a table as a list for `SELECT`.
 * @param fields such as `Prisma.RequestScalarFieldEnum`
 * @param alias the table's name in the statement
 * @param prefix stands before the name of each column in the result
 */
export function columnsOf(fields: object, alias: string, prefix = ''): Sql {
  const columns = Object.keys(fields).map((name) => `${alias}."${columnOf(name)}" AS "${prefix}${name}"`);
  return raw(columns.join(', '));
}

const columnOf = (field: string) => field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** Returns the fields of a row whose names begin with a prefix. @param fields as for `columnsOf` */
export function takeRow<Row>(flat: object, fields: object, prefix: string): Row {
  const values = flat as Record<string, unknown>;
  return Object.fromEntries(Object.keys(fields).map((name) => [name, values[prefix + name]])) as Row;
}
