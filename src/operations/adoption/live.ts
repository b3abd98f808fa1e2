/** Reads a PostgreSQL database of the system before while it runs: in one snapshot, and nothing is written. */
import pg from 'pg';
import { join, raw, sql } from '../../database/sql.js';
import { type Source, SourceError, type SourceTable, sourceNames, sourceTables, TABLE_PREFIX } from './tables.js';

const BATCH = 5000;

type Row = Record<string, string | null>;

/** @param url `postgresql://…` @throws SourceError */
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
