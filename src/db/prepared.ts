/**
 * Statements that are prepared by name on each connection: PostgreSQL parses the text once, and after some uses plans
 * it once for all values. Only for lookups by key, whose plan is the same for all values. A search is planned for its
 * pattern, and has no name.
 * A plan is kept for seconds only. A plan for a nearly empty table reads all of it until PostgreSQL has new statistics,
 * which may take minutes.
 * A prepared statement ends with its connection. On a live connection it may become invalid: a migration changes the
 * type of a column, or a pooler drops the statement. Then the connection uses new names (line.ts), and the statement or
 * its transaction is run again.
 */
import { createHash } from 'node:crypto';
import pg from 'pg';
import { codeOf } from '../core/errors.js';
import { type Sql, Statement } from './sql.js';

/** Texts contain no values, so there are few. */
const MAX_NAMES = 500;

const names = new Map<string, string>();

/** Names the statement and returns it. As a part of another statement it has no name. */
export function prepared(statement: Sql): Sql {
  if (statement instanceof Statement) statement.name = nameOf(statement.text);
  return statement;
}

function nameOf(text: string): string | undefined {
  const known = names.get(text);
  if (known !== undefined || names.size >= MAX_NAMES) return known;
  // a hash of the text, so that several versions of Tapegate mean the same statement on a shared connection
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
 * Whether a statement failed because its preparation has become invalid. It has done nothing then, and its transaction
 * may be run again. (The code 0A000 is not specific, and texts depend on the language: hence the routine.)
 */
export function isUseless(error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError)) return false;
  return codeOf(error) === NOT_THERE || (codeOf(error) === NOT_SUPPORTED && error.routine === 'RevalidateCachedQuery');
}
