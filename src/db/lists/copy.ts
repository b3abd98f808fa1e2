/** Reads long lists with COPY. Fetches the next buffer while the reader processes the current buffer. */
import pg from 'pg';
import { to as copyTo } from 'pg-copy-streams';
import { UnavailableError } from '../../core/errors.js';
import { toUnavailable } from '../line.js';
import type { Sql } from '../sql.js';

const READ_AHEAD_BYTES = 256 * 1024;

const PATIENCE_MS = 300_000;

/**
 * Yields the rows of a statement with one text column. Each row ends with a line feed. The column must not be null or
 * contain control characters. `client` must not pipeline statements. If the reader stops before the last row, `client`
 * cannot be used again.
 * @param patienceMs time limit for each wait for the database, in milliseconds
 */
export async function* copyRows(
  client: pg.ClientBase,
  statement: Sql,
  patienceMs = PATIENCE_MS,
): AsyncGenerator<Buffer> {
  // JSON text never contains these quote and delimiter characters, so COPY does not quote or escape anything
  const text = `COPY (${inline(statement)}) TO STDOUT (FORMAT csv, QUOTE E'\\x01', DELIMITER E'\\x02')`;
  const copy = client.query(copyTo(text, { highWaterMark: READ_AHEAD_BYTES }));
  copy.on('error', () => {});
  let timer: NodeJS.Timeout | undefined;
  const wait = () => {
    timer = setTimeout(() => copy.destroy(tooBusy()), patienceMs);
  };
  try {
    wait();
    for await (const chunk of copy) {
      clearTimeout(timer);
      yield chunk;
      wait();
    }
  } catch (error) {
    throw toUnavailable(error);
  } finally {
    clearTimeout(timer);
  }
}

function tooBusy(): UnavailableError {
  return new UnavailableError('busy', 'the database is too busy');
}

/** Returns a statement's text with its values inlined, because COPY does not accept parameters. */
export function inline({ strings, values }: Sql): string {
  return strings.reduce((text, part, n) => text + literalOf(values[n - 1]) + part);
}

function literalOf(value: unknown): string {
  if (value === null || value === undefined) return 'NULL';
  const text = Array.isArray(value) ? arrayText(value) : plainText(value);
  if (text.includes('\0')) throw new TypeError('a statement cannot contain a NUL byte');
  return pg.escapeLiteral(text);
}

const arrayText = (values: readonly unknown[]): string => `{${values.map(elementText).join(',')}}`;

function elementText(value: unknown): string {
  return value === null || value === undefined ? 'NULL' : `"${plainText(value).replace(/["\\]/g, '\\$&')}"`;
}

function plainText(value: unknown): string {
  if (['string', 'number', 'bigint', 'boolean'].includes(typeof value)) return String(value);
  throw new TypeError(`a list must contain only text, numbers and booleans, not ${typeof value}`);
}
