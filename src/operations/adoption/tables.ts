/**
 * The source of an adoption: the database of django-nla_control as rows of texts, from a running PostgreSQL, a dump, or
 * CSV. Loads it into temporary tables and compares it there.
 */
import type { Readable } from 'node:stream';
import pg, { type PoolClient } from 'pg';
import type { Context } from '../../context.js';
import { join, raw, type Sql, sql } from '../../database/sql.js';
import { parseZonedTime } from '../../time.js';
import { createCsvReader, RowError, readLines } from '../catalogue/import-lines.js';
import type { Adopting } from './report.js';

export const sourceTables = {
  quota: ['id', 'user', 'size', 'email_address', 'notes'],
  restoredisk: ['id', 'mountpoint', 'allocated_bytes'],
  tapefile: ['id', 'logical_path', 'size', 'verified', 'stage', 'restore_disk_id'],
  taperequest: [
    ...(['id', 'label', 'quota_id', 'retention', 'request_date', 'storaged_request_start'] as const),
    ...(['storaged_request_end', 'first_files_on_disk', 'last_files_on_disk', 'request_files'] as const),
    ...(['request_patterns', 'notify_on_first_file', 'notify_on_last_file'] as const),
  ],
  taperequest_files: ['taperequest_id', 'tapefile_id'],
  /** Not a table: the last used request id. */
  last_request: ['id'],
} as const;

export type SourceTable = keyof typeof sourceTables;
export const sourceNames = Object.keys(sourceTables) as SourceTable[];

export const TABLE_PREFIX = 'nla_control_';

/** @param name of a table, with or without its schema @returns undefined if it is not read */
export function sourceTableOf(name: string): SourceTable | undefined {
  const bare = name.slice(name.lastIndexOf('.') + 1);
  const known = bare.startsWith(TABLE_PREFIX) ? bare.slice(TABLE_PREFIX.length) : '';
  return sourceNames.find((table) => table === known);
}

export interface SourceBatch {
  table: SourceTable;
  rows: (string | null)[][];
}

export type Source = AsyncIterable<SourceBatch>;

export class SourceError extends Error {}

/** Loads a source into temporary tables of a connection, and drops them after the work. */
export async function withLoadedSource<T>(
  ctx: Context,
  source: Source,
  work: (client: PoolClient) => Promise<T>,
): Promise<T> {
  const client = await ctx.db.pool.connect();
  try {
    await client.query(sql`SET statement_timeout = 0`);
    await loadSource(client, source);
    return await work(client);
  } finally {
    const isWhole = await dropSource(client).then(
      () => client.query(sql`RESET statement_timeout`).then(() => true),
      () => false,
    );
    client.release(!isWhole);
  }
}

async function loadSource(client: PoolClient, source: Source): Promise<void> {
  await dropSource(client);
  for (const table of sourceNames) {
    const columns = sourceTables[table].map((name) => sql`${raw(`"${name}"`)} text`);
    await client.query(sql`CREATE TEMPORARY TABLE ${raw(tempName(table))} (${join(columns)})`);
  }
  for await (const { table, rows } of source) {
    const columns = sourceTables[table].map((_, n) => sql`${rows.map((row) => row[n] ?? null)}::text[]`);
    await client.query(sql`INSERT INTO ${raw(tempName(table))} SELECT * FROM unnest(${join(columns)})`);
  }
  for (const table of sourceNames) await client.query(sql`ANALYZE ${raw(tempName(table))}`);
}

async function dropSource(client: PoolClient): Promise<void> {
  for (const table of sourceNames) await client.query(sql`DROP TABLE IF EXISTS ${raw(`pg_temp.${tempName(table)}`)}`);
  for (const table of WORK_TABLES) await client.query(sql`DROP TABLE IF EXISTS ${raw(`pg_temp.${table}`)}`);
}

const WORK_TABLES = ['source_chosen', 'source_taken', 'source_wanted'];

function tempName(table: SourceTable): string {
  return `source_${table}`;
}

/** Parses a time of the source, by default in UTC as in Django. @returns null for none; undefined if invalid */
export function readSourceTime(text: string | null): string | null | undefined {
  if (!text) return null;
  if (BEYOND.test(text)) return LAST_TIME;
  const [, date = '', time = '', hours, minutes = '00'] = SOURCE_TIME.exec(text) ?? [];
  if (date === '') return parseZonedTime(text);
  return parseZonedTime(`${date}T${time}${hours === undefined ? '' : `${hours}:${minutes}`}`);
}

/** Year 10000: the last hours of 9999 in a zone east of Greenwich. Replaced by the last time that can be stored. */
const BEYOND = /^\d{5,}-/;
const LAST_TIME = '9999-12-31T23:59:59.999999';

/** Databases write a space between date and time, and may write a zone as hours only. */
const SOURCE_TIME = /^(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:\.\d+)?)(?:([+-]\d\d):?(\d\d)?)?$/;

/** Largest adopted id. Ids have 32 bits, so this leaves room for fifty years of 10,000 requests a day. */
export const LAST_ADOPTED_ID = 2 ** 31 - 2 * 10 ** 8;

/** Returns the request id in a text column, or null, independent of the order in which conditions are evaluated. */
export function requestIdOf(column: string): Sql {
  const number = sql`CASE WHEN ${raw(column)} ~ '^[0-9]{1,10}$' THEN ${raw(column)}::bigint END`;
  return sql`(CASE WHEN ${number} <= ${LAST_ADOPTED_ID} THEN ${number} END)`;
}

/** Reports request ids, and a last id, that are out of range here. */
export async function tellRefusedIds(client: PoolClient, { tell }: Adopting): Promise<void> {
  const { rows } = await client.query<{ id: string | null; isLast: boolean }>(
    sql`SELECT s.id, false AS "isLast" FROM source_taperequest s WHERE ${requestIdOf('s.id')} IS NULL
        UNION ALL SELECT l.id, true FROM source_last_request l WHERE ${requestIdOf('l.id')} IS NULL`,
  );
  const bound = `ids here are numbers from 0 to ${LAST_ADOPTED_ID}`;
  for (const { id, isLast } of rows) {
    const thing = id ?? 'no id';
    const why = /^\d+$/.test(thing) ? 'is too large' : 'is no id';
    const there = isLast ? 'the last id that was given to a request' : 'a request';
    const here = isLast
      ? `passed over: it ${why}, and ${bound}; ids here go on after the largest that is taken over`
      : `nothing: it ${why}; ${bound}`;
    tell({ kind: 'request-refused', thing, there, here });
  }
}

/** Reserves all ids used in the source, including those of deleted requests. */
export async function goBeyondIds(client: PoolClient): Promise<void> {
  const ids = sql`SELECT s.id FROM source_taperequest s UNION ALL SELECT l.id FROM source_last_request l`;
  await client.query(
    sql`SELECT setval('request_id_seq', greatest(m.last, (SELECT last_value FROM request_id_seq)))
        FROM (SELECT max(${requestIdOf('i.id')}) AS last FROM (${ids}) i) m WHERE m.last > 0`,
  );
}

const BATCH = 5000;

type Row = Record<string, string | null>;

/** Reads a running PostgreSQL in one snapshot, without writing. @param url `postgresql://…` @throws SourceError */
export async function* readLive(url: string): Source {
  const client = new pg.Client({ connectionString: url, application_name: 'tapegate adopt' });
  try {
    await client.connect();
    await client.query(sql`SET TimeZone = 'UTC'; SET DateStyle = 'ISO'`);
    await client.query(sql`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`);
    const last = await client.query<{ id: string }>(
      sql`SELECT last_value::text AS id FROM ${raw(`"${TABLE_PREFIX}taperequest_id_seq"`)}`,
    );
    yield { table: 'last_request', rows: last.rows.map(({ id }) => [id]) };
    for (const table of sourceNames.filter((name) => name !== 'last_request')) yield* readTable(client, table);
  } catch (error) {
    if (error instanceof pg.DatabaseError) throw new SourceError(`the database to be adopted: ${error.message}`);
    throw error;
  } finally {
    await client.end();
  }
}

async function* readTable(client: pg.Client, table: SourceTable): Source {
  const names: readonly string[] = sourceTables[table];
  const columns = join(names.map((name) => sql`${raw(`"${name}"::text AS "${name}"`)}`));
  await client.query(sql`DECLARE source CURSOR FOR SELECT ${columns} FROM ${raw(`"${TABLE_PREFIX}${table}"`)}`);
  for (;;) {
    const { rows } = await client.query<Row>(sql`FETCH ${raw(String(BATCH))} FROM source`);
    if (rows.length > 0) yield { table, rows: rows.map((row) => names.map((name) => row[name] ?? null)) };
    if (rows.length < BATCH) break;
  }
  await client.query(sql`CLOSE source`);
}

const columnsOf = {
  quota: { user: 'user', size: 'size', email: 'email_address', notes: 'notes' },
  taperequest: {
    id: 'id',
    quota: 'quota_id',
    label: 'label',
    retention: 'retention',
    request_date: 'request_date',
    patterns: 'request_patterns',
    files: 'request_files',
    notify_on_first_file: 'notify_on_first_file',
    notify_on_last_file: 'notify_on_last_file',
  },
} as const;

const needed = { quota: ['user', 'size'], taperequest: ['id', 'quota', 'retention'] } as const;

export type CsvTable = keyof typeof columnsOf;

/**
 * Yields the rows of a CSV list of users or requests with a header. In a list of requests, `quota` is a user and
 * `files` has one path a line.
 * @throws SourceError
 */
export async function* readCsv(
  table: CsvTable,
  { input, name }: { input: Readable; name: string },
): AsyncGenerator<SourceBatch> {
  const columns: Record<string, string> = columnsOf[table];
  const reader = createCsvReader({ known: Object.keys(columns), needed: needed[table] });
  try {
    for await (const lines of readLines(input)) {
      const rows: (string | null)[][] = [];
      for (const line of lines) {
        const row = reader.read(line);
        if (row instanceof RowError) throw row;
        if (!row) continue;
        const given = new Map(Object.entries(row.fields).map(([column, text]) => [columns[column], text]));
        rows.push(sourceTables[table].map((column) => given.get(column) ?? null));
      }
      if (rows.length > 0) yield { table, rows };
    }
    const fault = reader.end();
    if (fault) throw fault;
  } catch (error) {
    throw error instanceof RowError ? new SourceError(`${name}, ${error.message}`) : error;
  }
}
