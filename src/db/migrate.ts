/**
 * Applies pending migrations, or checks that no migration is pending.
 * - Tapegate uses the same migration table, checksums and advisory lock as `prisma migrate deploy`. Either program can
 *   therefore migrate a database, and several processes can start at the same time.
 * - A migration and its record are written in one transaction, so a killed process does not leave a partial migration.
 * - Old and new versions run side by side during an upgrade. A new version therefore only adds tables and columns. A
 *   later version removes tables and columns that no version reads any more.
 * - `compatibility.json` lists, for each migration, the oldest version that works with it. The database stores a copy
 *   of the list, so a version that is too old refuses to start.
 */
import { createHash, randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import pg from 'pg';
import { messageOf } from '../core/errors.js';
import { packageRoot } from '../core/package-root.js';
import { PRISMA_MIGRATE_LOCK } from './locks.js';

const RECORDS = `CREATE TABLE IF NOT EXISTS "_prisma_migrations" (
  "id" VARCHAR(36) PRIMARY KEY NOT NULL, "checksum" VARCHAR(64) NOT NULL, "finished_at" TIMESTAMPTZ,
  "migration_name" VARCHAR(255) NOT NULL, "logs" TEXT, "rolled_back_at" TIMESTAMPTZ,
  "started_at" TIMESTAMPTZ NOT NULL DEFAULT now(), "applied_steps_count" INTEGER NOT NULL DEFAULT 0)`;

/**
 * Applies the pending migrations, without a time limit.
 * @param Client the connection's class: `Database.Client` closes the connection if the database stops answering
 * @returns the names of the applied migrations
 */
export async function migrate(
  config: pg.ClientConfig,
  Client = pg.Client,
  dir = path.join(packageRoot, 'prisma/migrations'),
): Promise<string[]> {
  return await withClient(config, Client, async (client) => {
    await client.query('SELECT pg_advisory_lock($1)', [PRISMA_MIGRATE_LOCK]);
    // look for the table first, because CREATE TABLE IF NOT EXISTS requires a privilege even if the table exists
    if (!(await hasTable(client, '_prisma_migrations'))) await client.query(RECORDS);
    const pending = await findPending(client, dir);
    for (const migration of pending) await apply(client, migration);
    await recordOldest(client, dir);
    return pending.map(({ name }) => name);
  });
}

/** Rejects a database that has a pending migration. */
export async function requireCurrent(
  config: pg.ClientConfig,
  Client = pg.Client,
  dir = path.join(packageRoot, 'prisma/migrations'),
): Promise<[]> {
  const pending = await withClient(config, Client, (client) => findPending(client, dir));
  if (pending.length === 0) return [];
  throw new Error(
    `the database schema is out of date, and lacks these migrations: ${pending.map(({ name }) => name).join(', ')}; to apply them, run "tapegate migrate", or start a gateway or an engine of this version`,
  );
}

async function withClient<T>(
  config: pg.ClientConfig,
  Client: typeof pg.Client,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const client = new Client(config);
  client.on('error', () => {});
  await client.connect();
  return await work(client).finally(() => client.end()); // ending the session releases its locks
}

async function hasTable(client: pg.Client, name: string): Promise<boolean> {
  return (await client.query('SELECT WHERE to_regclass($1) IS NOT NULL', [name])).rows.length > 0;
}

/**
 * Returns the pending migrations.
 * @throws Error if an applied migration was changed, or this version is too old for the database
 */
async function findPending(client: pg.Client, dir: string): Promise<Migration[]> {
  const migrations = await readMigrations(dir);
  const known = await readRecords(client);
  await refuseOlder(client, migrations.at(-1)?.name ?? '');
  const changed = migrations.find(({ name, checksum }) => (known.get(name) ?? checksum) !== checksum);
  if (changed) {
    throw new Error(
      `migration ${changed.name} was changed after it was applied: use an empty database, or the Tapegate version that created this database`,
    );
  }
  return migrations.filter(({ name }) => !known.has(name));
}

interface Migration {
  name: string;
  sql: string;
  checksum: string;
}

async function readMigrations(dir: string): Promise<Migration[]> {
  const entries = await readdir(dir, { withFileTypes: true });
  const names = entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  const migrations = names.sort().map(async (name) => {
    const sql = await readFile(path.join(dir, name, 'migration.sql'), 'utf8');
    return { name, sql, checksum: createHash('sha256').update(sql).digest('hex') };
  });
  return await Promise.all(migrations);
}

async function readRecords(client: pg.Client): Promise<Map<string, string>> {
  const { rows } = await client.query<{ name: string; checksum: string; finished: boolean }>(
    `SELECT "migration_name" AS name, "checksum", "finished_at" IS NOT NULL AS finished
     FROM "_prisma_migrations" WHERE "rolled_back_at" IS NULL`,
  );
  const failed = rows.find((row) => !row.finished);
  if (failed)
    throw new Error(
      `migration ${failed.name} failed earlier: repair the schema, and then run "prisma migrate resolve"`,
    );
  return new Map(rows.map((row) => [row.name, row.checksum]));
}

async function apply(client: pg.Client, { name, sql, checksum }: Migration): Promise<void> {
  await client.query('BEGIN');
  try {
    await client.query(sql); // a query without parameters can contain several statements
    await client.query(
      `INSERT INTO "_prisma_migrations" ("id", "checksum", "migration_name", "finished_at", "applied_steps_count")
       VALUES ($1, $2, $3, clock_timestamp(), 1)`,
      [randomUUID(), checksum, name],
    );
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {}); // ignore the error: the connection might be lost
    throw new Error(`migration ${name}: ${messageOf(error)}`, { cause: error });
  }
}

/**
 * Rejects a database that is too new for this version of Tapegate.
 * @param program name of the newest migration in this version of Tapegate
 * @throws Error if the database has a migration that works only with newer versions
 */
async function refuseOlder(client: pg.Client, program: string): Promise<void> {
  if (!(await hasTable(client, 'oldest_program'))) return;
  const { rows } = await client.query<{ migration: string; program: string }>(
    `SELECT migration, program FROM oldest_program WHERE program COLLATE "C" > $1 ORDER BY program COLLATE "C" DESC LIMIT 1`,
    [program],
  );
  if (!rows[0]) return;
  throw new Error(
    `this Tapegate is too old for the database: migration ${rows[0].migration} requires version ${rows[0].program} or newer, but this is version ${program}`,
  );
}

/** Copies compatibility.json to the database, because older versions do not have the entries for newer migrations. */
async function recordOldest(client: pg.Client, dir: string): Promise<void> {
  const oldest: Record<string, string> = JSON.parse(await readFile(path.join(dir, 'compatibility.json'), 'utf8'));
  await client.query(
    `INSERT INTO oldest_program (migration, program) SELECT * FROM unnest($1::text[], $2::text[])
     ON CONFLICT (migration) DO UPDATE SET program = excluded.program WHERE oldest_program.program <> excluded.program`,
    [Object.keys(oldest), Object.values(oldest)],
  );
}
