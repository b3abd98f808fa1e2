/** Empties, restores and compares all tables of a database. */
import pg from 'pg';
import type { Context } from '../../src/domain/context.js';

/** Rows as JSON texts, by table. */
export type Dump = Record<string, string[]>;

/**
 * Sequence that is never reset. Refusals are recorded asynchronously, even after a restore, and must not reuse an id.
 */
const GOES_ON = 'audit_id_seq';

/** Table whose first row a migration creates. The row is never deleted. */
const FIRST_LIBRARY = { table: 'library', sequence: 'library_id_seq' };

/** Empties all tables. Ids start at 1 again, except in the audit. Call the function only while no engine runs. */
export async function emptyTables(ctx: Context): Promise<void> {
  const restarts = `SELECT setval(oid, 1, relname = '${FIRST_LIBRARY.sequence}') FROM pg_class
    WHERE relkind = 'S' AND relnamespace = 'public'::regnamespace AND relname <> '${GOES_ON}'`;
  await replaceRows(ctx, [restarts]);
}

/**
 * Saves all rows and sequences.
 * @returns a function that restores the saved rows and sequences. Call the function only while no engine runs.
 */
export async function keepTables(ctx: Context): Promise<() => Promise<void>> {
  const dump = await dumpTables(ctx);
  const inserts = Object.entries(dump).map(
    ([table, rows]) =>
      `INSERT INTO "${table}" SELECT * FROM json_populate_recordset(NULL::"${table}", ${pg.escapeLiteral(`[${rows}]`)}) t${exceptFirst(table)}`,
  );
  const { rows: sequences } = await ctx.db.pool.query<{ name: string; last: bigint | null }>(
    `SELECT sequencename AS name, last_value AS last FROM pg_sequences
      WHERE schemaname = 'public' AND sequencename <> '${GOES_ON}'`,
  );
  const restarts = sequences.map(({ name, last }) => `SELECT setval('"${name}"', ${last ?? 1}, ${last !== null})`);
  return () => replaceRows(ctx, [...inserts, ...restarts]);
}

/** Statement that assigns numbers to new events, as the app does. */
const NUMBER = 'DO $$ BEGIN WHILE number_events(NULL) IS NULL LOOP PERFORM pg_sleep(0.01); END LOOP; END $$';

/**
 * Returns all rows, except in the tables of tokens and of the audit. Tests use tokens, and the audit also records
 * refusals.
 */
export async function dumpTables(ctx: Context): Promise<Dump> {
  await ctx.db.pool.query(NUMBER);
  const tables = (await listTables(ctx)).filter((table) => table !== 'audit');
  const selects = tables.map((table) => `SELECT '${table}' AS name, row_to_json(t)::text AS row FROM "${table}" t`);
  // each connection plans a named statement only once
  const query = { name: 'dump', text: `${selects.join(' UNION ALL ')} ORDER BY 1, 2` };
  const { rows } = await ctx.db.pool.query<{ name: string; row: string }>(query);
  const dump: Dump = Object.fromEntries(tables.map((table) => [table, []]));
  for (const { name, row } of rows) dump[name]?.push(row);
  return dump;
}

/**
 * Replaces all rows with DELETE, which takes milliseconds.
 * TRUNCATE would take 200 ms, because PostgreSQL creates a new file for each table and index.
 */
async function replaceRows(ctx: Context, statements: string[]): Promise<void> {
  const deletes = (await listTables(ctx)).map((table) => `DELETE FROM "${table}" t${exceptFirst(table)}`);
  // disables triggers and foreign keys, so that the order of tables does not matter
  const all = ['BEGIN', 'SET LOCAL session_replication_role = replica', ...deletes, ...statements, 'COMMIT'];
  await ctx.db.pool.query(all.join(';\n'));
}

function exceptFirst(table: string): string {
  return table === FIRST_LIBRARY.table ? ' WHERE t.id > 1' : '';
}

const tablesOf = new WeakMap<Context, string[]>();

async function listTables(ctx: Context): Promise<string[]> {
  const known = tablesOf.get(ctx);
  if (known) return known;
  const { rows } = await ctx.db.pool.query<{ name: string }>(
    `SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public' AND tablename NOT IN ('_prisma_migrations', 'api_token', 'sequence_timeline', 'site_identity', 'owner_stamp') ORDER BY 1`,
  );
  const names = rows.map(({ name }) => name);
  tablesOf.set(ctx, names);
  return names;
}
