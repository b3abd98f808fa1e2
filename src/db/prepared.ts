/**
 * Prepares statements by name on each connection, so that PostgreSQL does not parse and plan each execution. Only
 * lookups by key are prepared, because one plan suits all keys. A connection discards its plans after ten seconds.
 * Otherwise, a plan that was made for a nearly empty table would still scan the whole table after the table has grown.
 * A prepared statement becomes invalid if a migration changes a column's type, or a pooler drops the statement. The
 * connection then uses new names for all statements (line.ts), and Tapegate runs the failed statement or its
 * transaction again.
 */
import { createHash } from 'node:crypto';
import pg from 'pg';
import { codeOf } from '../core/errors.js';
import { type Sql, Statement } from './sql.js';

const MAX_NAMES = 500;

const names = new Map<string, string>();

/**
 * Returns the statement with a name under which connections prepare it. If the statement becomes part of another
 * statement, the name has no effect.
 */
export function prepared(statement: Sql): Sql {
  if (statement instanceof Statement) statement.name = nameOf(statement.text);
  return statement;
}

function nameOf(text: string): string | undefined {
  const known = names.get(text);
  if (known !== undefined || names.size >= MAX_NAMES) return known;
  // derive the name from the text, so that all versions of Tapegate use the same name for a statement
  const name = `tapegate_${createHash('sha256').update(text).digest('hex').slice(0, 24)}`;
  names.set(text, name);
  return name;
}

export function isPrepared(query: unknown): query is Statement & { name: string } {
  return query instanceof Statement && query.name !== undefined;
}

const NOT_SUPPORTED = '0A000';
const NOT_THERE = '26000';

/**
 * Returns whether a statement failed because its prepared form became invalid. The failed statement had no effect, so
 * its transaction can be run again. Compares the PostgreSQL routine that reported the error, because error code 0A000
 * is not specific.
 */
export function isUseless(error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError)) return false;
  return codeOf(error) === NOT_THERE || (codeOf(error) === NOT_SUPPORTED && error.routine === 'RevalidateCachedQuery');
}
