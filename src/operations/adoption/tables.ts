/**
 * The database of the system before, as rows of texts: read from a running PostgreSQL, a dump, or CSV, and put into temporary tables, where
 * it is compared with what is here. Its tables are those of django-nla_control.
 */
import type { PoolClient } from 'pg';
import type { Context } from '../../context.js';
import { join, raw, sql } from '../../database/sql.js';
import { parseZonedTime } from '../../time.js';

/** What is read of each table, by the name of its table there without the application's; what it has more is passed over. */
export const sourceTables = {
  quota: ['id', 'user', 'size', 'email_address', 'notes'],
  restoredisk: ['id', 'mountpoint', 'allocated_bytes'],
  tapefile: ['id', 'logical_path', 'size', 'verified', 'stage', 'restore_disk_id'],
  taperequest: [
    'id',
    'label',
    'quota_id',
    'retention',
    'request_date',
    'storaged_request_start',
    'storaged_request_end',
    'first_files_on_disk',
    'last_files_on_disk',
    'request_files',
    'request_patterns',
    'notify_on_first_file',
    'notify_on_last_file',
  ],
  taperequest_files: ['taperequest_id', 'tapefile_id'],
  /** The last id that was given to a request, which may be of one that is there no more: no table there. */
  last_request: ['id'],
} as const;

export type SourceTable = keyof typeof sourceTables;
export const sourceNames = Object.keys(sourceTables) as SourceTable[];

/** Of the Django application whose tables they are. */
export const TABLE_PREFIX = 'nla_control_';

/** @param name of a table there, with or without its schema @returns undefined for one that is not read */
export function sourceTableOf(name: string): SourceTable | undefined {
  const bare = name.slice(name.lastIndexOf('.') + 1);
  const known = bare.startsWith(TABLE_PREFIX) ? bare.slice(TABLE_PREFIX.length) : '';
  return sourceNames.find((table) => table === known);
}

/** Rows of a table, in the order of its columns above. */
export interface SourceBatch {
  table: SourceTable;
  rows: (string | null)[][];
}

export type Source = AsyncIterable<SourceBatch>;

/** What the source has cannot be read. */
export class SourceError extends Error {}

/** Loads a source into temporary tables of a connection, on which it is compared; they go with the end of the work. */
export async function withLoadedSource<T>(
  ctx: Context,
  source: Source,
  work: (client: PoolClient) => Promise<T>,
): Promise<T> {
  const client = await ctx.db.pool.connect();
  try {
    await client.query(sql`SET statement_timeout = 0`); // a catalogue is compared as a whole
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

/** Temporary tables that are made of a source (files.ts, unheld.ts). */
const WORK_TABLES = ['source_chosen', 'source_taken', 'source_wanted'];

/** Of its temporary table. */
function tempName(table: SourceTable): string {
  return `source_${table}`;
}

/**
 * A time of the source as one here; without a zone it is taken as UTC, as Django keeps it.
 * @returns null for none; undefined for a text that is no time
 */
export function readSourceTime(text: string | null): string | null | undefined {
  if (!text) return null;
  if (BEYOND.test(text)) return LAST_TIME;
  const [, date = '', time = '', hours, minutes = '00'] = SOURCE_TIME.exec(text) ?? [];
  if (date === '') return parseZonedTime(text);
  return parseZonedTime(`${date}T${time}${hours === undefined ? '' : `${hours}:${minutes}`}`);
}

/** Year 10000: of the last moments of 9999 in a zone east of Greenwich. There is no later time here, and it is kept as long. */
const BEYOND = /^\d{5,}-/;
const LAST_TIME = '9999-12-31T23:59:59.999999';

/** As databases write it: a blank between date and time, and a zone of hours alone. */
const SOURCE_TIME = /^(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:\.\d+)?)(?:([+-]\d\d):?(\d\d)?)?$/;
