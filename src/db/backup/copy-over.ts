/** Copies all rows of a Tapegate database to an empty database on another server. The rows keep their ids. */
import { pipeline } from 'node:stream/promises';
import pg from 'pg';
import { from as copyFrom, to as copyTo } from 'pg-copy-streams';
import { connect, SocketClient } from '../line.js';

/** Tables that are not copied, because the command `migrate` has already filled them in the target database. */
const OF_SCHEMA = ['_prisma_migrations', 'oldest_program'];

interface Table {
  name: string;
  columns: string[];
  /** Names of the tables that this table's foreign keys reference. These tables must be copied before this table. */
  needs: string[];
}

const TABLES = `SELECT c.relname::text AS name,
    (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
      WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '') AS columns,
    ARRAY(SELECT r.relname::text FROM pg_constraint f JOIN pg_class r ON r.oid = f.confrelid
      WHERE f.conrelid = c.oid AND f.contype = 'f' AND r.oid <> c.oid) AS needs
  FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND c.relname <> ALL($1)
  ORDER BY c.relname`;

const USED = ['tape_file', 'request', 'quota', 'api_token', 'running_process'];

/**
 * Copies all rows in one transaction. If the process is killed, the target database stays empty.
 * @param from the source database, which must not change during the copy
 * @param to a database with the same schema
 * @throws Error if the database `to` has been used
 */
export async function copyOver(from: pg.ClientConfig, to: pg.ClientConfig): Promise<void> {
  const [source, target] = [await open(from), await open(to)];
  try {
    const { rows } = await source.query<Table>(TABLES, [OF_SCHEMA]);
    const tables = inOrder(rows);
    const names = tables.map(({ name }) => pg.escapeIdentifier(name));
    await target.query('BEGIN');
    await target.query(`LOCK TABLE ${names.join(', ')} IN ACCESS EXCLUSIVE MODE`);
    await refuseUsed(target);
    // disable all triggers, because a trigger on the audit table rejects TRUNCATE
    for (const name of names) await target.query(`ALTER TABLE ${name} DISABLE TRIGGER USER`);
    await target.query(`TRUNCATE ${names.join(', ')}`);
    for (const table of tables) await copyTable(source, target, table);
    for (const name of names) await target.query(`ALTER TABLE ${name} ENABLE TRIGGER USER`);
    await copySequences(source, target);
    await target.query('COMMIT');
    await target.query(`ANALYZE ${names.join(', ')}`);
  } finally {
    await Promise.all([source, target].map((client) => client.end().catch(() => {})));
  }
}

const open = (config: pg.ClientConfig): Promise<pg.Client> =>
  connect(() => new SocketClient({ ...config, statement_timeout: false }));

/** Sorts tables, so that each table follows the tables that its foreign keys reference. */
function inOrder(tables: readonly Table[]): Table[] {
  const ordered: Table[] = [];
  const isDone = (name: string) => ordered.some((table) => table.name === name);
  while (ordered.length < tables.length) {
    const next = tables.find((table) => !isDone(table.name) && table.needs.every(isDone));
    if (!next) throw new Error('cannot copy the database: its tables reference each other in a cycle');
    ordered.push(next);
  }
  return ordered;
}

async function refuseUsed(target: pg.Client): Promise<void> {
  for (const name of USED) {
    const { rows } = await target.query(`SELECT FROM ${name} LIMIT 1`);
    if (rows.length > 0)
      throw new Error(`the target database is not empty: table ${name} contains rows; use an empty database`);
  }
}

async function copyTable(source: pg.Client, target: pg.Client, { name, columns }: Table): Promise<void> {
  const what = `${pg.escapeIdentifier(name)} (${columns.map((column) => pg.escapeIdentifier(column)).join(', ')})`;
  await pipeline(source.query(copyTo(`COPY ${what} TO STDOUT`)), target.query(copyFrom(`COPY ${what} FROM STDIN`)));
}

async function copySequences(source: pg.Client, target: pg.Client): Promise<void> {
  const { rows } = await source.query<{ name: string; last: string }>(
    `SELECT sequencename::text AS name, last_value::text AS last FROM pg_sequences
     WHERE schemaname = 'public' AND last_value IS NOT NULL`,
  );
  for (const { name, last } of rows)
    await target.query('SELECT setval($1::regclass, $2::bigint)', [`public.${pg.escapeIdentifier(name)}`, last]);
}
