/**
 * Statements that are prepared by name on each connection: PostgreSQL parses such a text once, and after some uses plans it once for all
 * values. Only for look-ups by keys, whose plan is the same whatever the values are. A search is planned for its pattern, and has no name.
 *
 * A plan is kept for seconds only: one that was made while a table was nearly empty reads all of it, until PostgreSQL has new statistics,
 * which may take minutes.
 *
 * A prepared statement ends with its connection. It may also become useless on a connection that lives: a migration beside a running
 * program changes the type of a column, or a pooler has dropped the statement. Then the connection uses other names from there on (line.ts), and
 * the statement or its transaction is run again.
 */
import { createHash } from 'node:crypto';
import pg from 'pg';
import { codeOf } from '../errors.js';
import { type Sql, Statement } from './sql.js';

/** Texts are made of fragments of the program, and contain no values, so there are few. */
const MAX_NAMES = 500;

const names = new Map<string, string>();

/** Returns the statement itself, which has a name from now on. As a part of another statement it has none. */
export function prepared(statement: Sql): Sql {
  if (statement instanceof Statement) statement.name = nameOf(statement.text);
  return statement;
}

function nameOf(text: string): string | undefined {
  const known = names.get(text);
  if (known !== undefined || names.size >= MAX_NAMES) return known;
  // a hash of the text, so that programs of several versions mean the same by a name if they ever share a connection
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
 * Has a statement failed because its preparation is no longer valid? It has done nothing then, and its transaction may be run again. (A plan
 * that would return other columns than before has the code of all that is not supported; texts come in many languages.)
 */
export function isUseless(error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError)) return false;
  return codeOf(error) === NOT_THERE || (codeOf(error) === NOT_SUPPORTED && error.routine === 'RevalidateCachedQuery');
}
