/** Migrations of the schema: how Tapegate records, repeats, refuses and replaces migrations. */
import { createHash } from 'node:crypto';
import { cpSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import { packageRoot } from '../../src/core/package-root.js';
import { migrate } from '../../src/db/migrate.js';
import { done, refused } from '../support/command-results.js';
import { createDatabase, type TestDatabase } from '../support/database.js';
import { addMigration } from '../support/next-program.js';
import { cleanUp, kill, makeDataDir, runCli, startCli } from '../support/process.js';
import { waitFor } from '../support/wait.js';

const dir = path.join(packageRoot, 'prisma/migrations');
const names = readdirSync(dir, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name)
  .sort();

let database: TestDatabase;
let client: pg.Client;
let env: Record<string, string>;

beforeEach(async () => {
  database = await createDatabase({ empty: true });
  client = new pg.Client(database.connection);
  await client.connect();
  env = { DATABASE_URL: database.url, DATA_DIR: makeDataDir() };
});
afterEach(async () => {
  await client.end();
  await database.drop();
});
afterAll(cleanUp);

async function query(text: string): Promise<Record<string, unknown>[]> {
  return (await client.query(text)).rows;
}

const checksumOf = (name: string): string =>
  createHash('sha256')
    .update(readFileSync(path.join(dir, name, 'migration.sql')))
    .digest('hex');

/** Copies the migrations and adds a later migration to the copy. */
function withMigration(sql: string): { migrations: string; added: string } {
  const migrations = path.join(makeDataDir(), 'migrations');
  cpSync(dir, migrations, { recursive: true });
  return { migrations, added: addMigration(migrations, sql) };
}

test('the records are those that `prisma migrate deploy` writes', async () => {
  expect(await migrate(database.connection)).toEqual(names);
  const records = await query('SELECT * FROM _prisma_migrations ORDER BY migration_name');
  expect(records).toEqual(
    names.map((name) => ({
      id: expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/),
      checksum: checksumOf(name),
      finished_at: expect.any(Date),
      migration_name: name,
      logs: null,
      rolled_back_at: null,
      started_at: expect.any(Date),
      applied_steps_count: 1,
    })),
  );
  const columns = await query(
    `SELECT column_name AS name, data_type AS type, character_maximum_length AS length, is_nullable AS nullable, column_default AS default
     FROM information_schema.columns WHERE table_name = '_prisma_migrations' ORDER BY ordinal_position`,
  );
  const time = 'timestamp with time zone';
  expect(columns.map((c) => [c.name, c.type, c.length, c.nullable, c.default])).toEqual([
    ['id', 'character varying', 36, 'NO', null],
    ['checksum', 'character varying', 64, 'NO', null],
    ['finished_at', time, null, 'YES', null],
    ['migration_name', 'character varying', 255, 'NO', null],
    ['logs', 'text', null, 'YES', null],
    ['rolled_back_at', time, null, 'YES', null],
    ['started_at', time, null, 'NO', 'now()'],
    ['applied_steps_count', 'integer', null, 'NO', '0'],
  ]);
});

test('a second run applies nothing', async () => {
  expect(await runCli(['migrate'], { env })).toEqual(done(`applied: ${names.join(', ')}\n`));
  const before = await query('SELECT * FROM _prisma_migrations');
  expect(await runCli(['migrate'], { env })).toEqual(done('the schema is current\n'));
  expect(await runCli(['migrate', '--json'], { env })).toEqual(done('{"migrated":[]}\n'));
  expect(await query('SELECT * FROM _prisma_migrations')).toEqual(before);
});

test('a command refuses a database of an older version, and only migrate changes its schema', async () => {
  await migrate(database.connection);
  await query(`DELETE FROM _prisma_migrations WHERE migration_name = '${names.at(-1)}'`);
  const reason = `the database schema is out of date, and lacks these migrations: ${names.at(-1)}; to apply them, run "tapegate migrate", or start a gateway or an engine of this version`;
  for (const args of [['quota', 'list'], ['requests'], ['doctor']]) {
    expect(await runCli(args, { env })).toEqual(refused(1, reason));
  }
  expect(await query('SELECT FROM _prisma_migrations')).toHaveLength(names.length - 1);
});

test('of several concurrent migrations of an empty database, one applies each migration', async () => {
  const applied = await Promise.all(Array.from({ length: 4 }, () => migrate(database.connection)));
  expect(applied.flat()).toEqual(names);
});

test('a process that is killed while it waits for another one does not delay the next', async () => {
  await query('SELECT pg_advisory_lock(72707369)'); // the lock that an active migration takes
  const waiting = startCli(['migrate'], { env });
  await waitFor('it to wait', async () => {
    const [row] = await query(`SELECT count(*)::int AS n FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`);
    return row?.n === 1;
  });
  await kill(waiting);
  await query('SELECT pg_advisory_unlock(72707369)');
  expect(await migrate(database.connection)).toEqual(names);
});

test('a migration that fails is rolled back, keeps those before it, and is retried', async () => {
  const { migrations, added } = withMigration('CREATE TABLE first (); CREATE TABLE in_the_way ();');
  await query('CREATE TABLE in_the_way ()');
  await expect(migrate(database.connection, pg.Client, migrations)).rejects.toThrow(
    `migration ${added}: relation "in_the_way" already exists`,
  );
  expect(await query('SELECT migration_name AS name FROM _prisma_migrations')).toEqual(names.map((name) => ({ name })));
  expect(await query(`SELECT to_regclass('first') AS first`)).toEqual([{ first: null }]);
  await query('DROP TABLE in_the_way');
  expect(await migrate(database.connection, pg.Client, migrations)).toEqual([added]);
});

test('a migration that was changed after it was applied, or has failed in Prisma, is refused', async () => {
  await migrate(database.connection);
  const change = (what: string) => query(`UPDATE _prisma_migrations SET ${what} WHERE migration_name = '${names[0]}'`);
  await change('finished_at = NULL');
  expect(await runCli(['migrate'], { env })).toEqual(
    refused(1, `migration ${names[0]} failed earlier: repair the schema, and then run "prisma migrate resolve"`),
  );
  await change('finished_at = now()');
  expect(await migrate(database.connection)).toEqual([]);
  await change(`checksum = repeat('0', 64)`);
  await expect(migrate(database.connection)).rejects.toThrow(`migration ${names[0]} was changed after it was applied`);
});

test('a migration that Prisma has rolled back is applied', async () => {
  await client.query(
    `CREATE TABLE _prisma_migrations (id VARCHAR(36) PRIMARY KEY NOT NULL, checksum VARCHAR(64) NOT NULL,
       finished_at TIMESTAMPTZ, migration_name VARCHAR(255) NOT NULL, logs TEXT, rolled_back_at TIMESTAMPTZ,
       started_at TIMESTAMPTZ NOT NULL DEFAULT now(), applied_steps_count INTEGER NOT NULL DEFAULT 0)`,
  );
  await client.query(
    `INSERT INTO _prisma_migrations (id, checksum, migration_name, rolled_back_at) VALUES ('1', 'x', $1, now())`,
    [names[0]],
  );
  expect(await migrate(database.connection)).toEqual(names);
});

const compatibility: Record<string, string> = JSON.parse(readFileSync(path.join(dir, 'compatibility.json'), 'utf8'));

test('each migration names the oldest version that works with it, which is not later than itself', () => {
  expect(Object.keys(compatibility)).toEqual(names);
  expect(Object.entries(compatibility).filter(([name, oldest]) => !names.includes(oldest) || oldest > name)).toEqual(
    [],
  );
});

test('a migration that removes something works with no older version', () => {
  const removes = /\bDROP (TABLE|COLUMN|TYPE)\b|\bRENAME\b|\bSET NOT NULL\b|\bALTER COLUMN\s+\S+\s+(SET DATA )?TYPE\b/i;
  const sqlOf = (name: string) => readFileSync(path.join(dir, name, 'migration.sql'), 'utf8').replace(/--.*$/gm, '');
  expect(names.filter((name) => removes.test(sqlOf(name)) && compatibility[name] !== name)).toEqual([]);
  const examples = ['DROP TABLE a', 'ALTER TABLE a RENAME b TO c', 'ALTER COLUMN "b" SET DATA TYPE text'];
  expect(examples.map((text) => removes.test(text))).toEqual([true, true, true]);
});

test('a version that is too old for a newer migration does not start, and reports why; others start', async () => {
  await migrate(database.connection);
  const newer = `INSERT INTO _prisma_migrations (id, checksum, migration_name, finished_at) VALUES ('1', 'x', '2999_newer', now())`;
  await query(newer);
  await query('ALTER TABLE quota ADD COLUMN of_the_newer TEXT');
  await query(`INSERT INTO oldest_program VALUES ('2999_newer', '${names[0]}')`);
  expect(await migrate(database.connection)).toEqual([]);
  expect(await runCli(['quota', 'set', 'ann', '--size', '1T'], { env })).toMatchObject({ code: 0, stderr: '' });

  await query(`UPDATE oldest_program SET program = '2999_newer' WHERE migration = '2999_newer'`);
  const before = await query('SELECT * FROM oldest_program ORDER BY 1');
  const refusal = `this Tapegate is too old for the database: migration 2999_newer requires version 2999_newer or newer, but this is version ${names.at(-1)}`;
  await expect(migrate(database.connection)).rejects.toThrow(refusal);
  const commands = [['serve'], ['work'], ['quota', 'list']].map((args) => runCli(args, { env }));
  expect(await Promise.all(commands)).toEqual(commands.map(() => refused(1, refusal)));
  expect(await query('SELECT * FROM oldest_program ORDER BY 1')).toEqual(before);
});
