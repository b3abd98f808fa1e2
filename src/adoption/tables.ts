/** Reads the PostgreSQL database of django-nla_control. Copies its tables as text into temporary tables. */
import { pipeline } from 'node:stream/promises';
import pg, { type PoolClient } from 'pg';
import { from as copyFrom, to as copyTo } from 'pg-copy-streams';
import { parseTime } from '../core/time.js';
import { connectToForeign } from '../db/foreign.js';
import { raw, type Sql, sql } from '../db/sql.js';
import type { Context } from '../domain/context.js';
import type { Adopting } from './report.js';

const sourceTables = {
  quota: ['id', 'user', 'size', 'email_address', 'notes'],
  restoredisk: ['id', 'mountpoint', 'allocated_bytes'],
  tapefile: ['id', 'logical_path', 'size', 'verified', 'stage', 'restore_disk_id'],
  taperequest: [
    ...(['id', 'label', 'quota_id', 'retention', 'request_date', 'storaged_request_start'] as const),
    ...(['storaged_request_end', 'first_files_on_disk', 'last_files_on_disk', 'request_files'] as const),
    ...(['request_patterns', 'notify_on_first_file', 'notify_on_last_file'] as const),
  ],
  taperequest_files: ['taperequest_id', 'tapefile_id'],
};

class SourceError extends Error {}

/**
 * Copies the source's tables, in one snapshot, to temporary tables `source_…` on a new connection. Calls `work` with
 * the connection, and then closes the connection.
 * @param url `postgresql://…`
 * @throws SourceError
 */
export async function withLoadedSource<T>(
  ctx: Context,
  url: string,
  work: (client: PoolClient) => Promise<T>,
): Promise<T> {
  const client = await ctx.db.importPool.connect(); // COPY needs a connection that does not pipeline queries
  try {
    await client.query(sql`SET statement_timeout = 0`);
    await loadSource(client, url);
    return await work(client);
  } finally {
    client.release(true);
  }
}

/**
 * Overrides settings of the source database that could change the text format of values, or abort a long transaction.
 * Does not override `search_path`, because the source's tables might be in any schema.
 */
const OF_SOURCE = sql`SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET statement_timeout = 0; SET lock_timeout = 0;
  SET idle_in_transaction_session_timeout = 0; SET row_security = off;
  SELECT set_config(s.name, '0', false) FROM pg_settings s WHERE s.name = 'transaction_timeout'`;

async function loadSource(client: PoolClient, url: string): Promise<void> {
  let source: pg.Client | undefined;
  try {
    source = await connectToForeign(url, 'tapegate adopt');
    await source.query(OF_SOURCE);
    await source.query(sql`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`);
    for (const [table, columns] of Object.entries(sourceTables)) {
      const names = columns.map((name) => `"${name}"`);
      const texts = names.map((name) => `${name}::text`).join(', ');
      await copyTable({ source, client }, `source_${table}`, {
        names,
        rows: `SELECT ${texts} FROM "nla_control_${table}"`,
      });
    }
    const rows = 'SELECT last_value::text FROM "nla_control_taperequest_id_seq"';
    await copyTable({ source, client }, 'source_last_request', { names: ['id'], rows });
  } catch (error) {
    if (error instanceof pg.DatabaseError)
      throw new SourceError(`cannot read the database to be adopted: ${error.message}`);
    throw error;
  } finally {
    await source?.end();
  }
}

async function copyTable(
  { source, client }: { source: pg.Client; client: PoolClient },
  table: string,
  { names, rows }: { names: readonly string[]; rows: string },
): Promise<void> {
  await client.query(
    sql`CREATE TEMPORARY TABLE ${raw(table)} (${raw(names.map((name) => `${name} text`).join(', '))})`,
  );
  await pipeline(source.query(copyTo(`COPY (${rows}) TO STDOUT`)), client.query(copyFrom(`COPY ${table} FROM STDIN`)));
  await client.query(sql`ANALYZE ${raw(table)}`);
}

/**
 * Parses a time that PostgreSQL has written in UTC. @returns null if the text is empty; undefined if the text is
 * invalid
 */
export function readSourceTime(text: string | null): string | null | undefined {
  if (!text) return null;
  if (BEYOND.test(text)) return LAST_TIME;
  return parseTime(text.replace(' ', 'T').replace(/\+00$/, ''));
}

/**
 * Matches times in the year 10000 or later. The adoption replaces such a time with the last time that Tapegate can
 * store.
 */
const BEYOND = /^\d{5,}-/;
const LAST_TIME = '9999-12-31T23:59:59.999999';

/**
 * Largest request id that an adoption accepts. Ids are 32-bit integers, so about 200 million larger ids remain for new
 * requests.
 */
export const LAST_ADOPTED_ID = 2 ** 31 - 2 * 10 ** 8;

/**
 * Returns an SQL expression for the request id in a text column; null if the text is not an id. The expression never
 * raises an error, because PostgreSQL may evaluate the conditions of a query in any order.
 */
export function requestIdOf(column: string): Sql {
  const number = sql`CASE WHEN ${raw(column)} ~ '^[0-9]{1,10}$' THEN ${raw(column)}::bigint END`;
  return sql`(CASE WHEN ${number} <= ${LAST_ADOPTED_ID} THEN ${number} END)`;
}

/** Reports request ids in the source that Tapegate cannot use. */
export async function reportRefusedIds(client: PoolClient, { report }: Adopting): Promise<void> {
  const { rows } = await client.query<{ id: string; isLast: boolean }>(
    sql`SELECT s.id, false AS "isLast" FROM source_taperequest s WHERE ${requestIdOf('s.id')} IS NULL
        UNION ALL SELECT l.id, true FROM source_last_request l WHERE ${requestIdOf('l.id')} IS NULL`,
  );
  const bound = `Tapegate accepts ids from 0 to ${LAST_ADOPTED_ID}`;
  for (const { id, isLast } of rows) {
    const there = isLast ? 'the last request id' : 'a request';
    const here = isLast
      ? `ignored: ${bound}; ids of new requests begin after the largest adopted id`
      : `nothing: ${bound}`;
    report({ kind: 'request-refused', object: id, there, here });
  }
}

/** Reserves all request ids that the source has used, including the ids of deleted requests. */
export async function goBeyondIds(client: PoolClient): Promise<void> {
  const ids = sql`SELECT s.id FROM source_taperequest s UNION ALL SELECT l.id FROM source_last_request l`;
  await client.query(
    sql`SELECT setval('request_id_seq', greatest(m.last, (SELECT last_value FROM request_id_seq)))
        FROM (SELECT max(${requestIdOf('i.id')}) AS last FROM (${ids}) i) m WHERE m.last > 0`,
  );
}
