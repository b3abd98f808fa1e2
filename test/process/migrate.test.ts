import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import { migrate } from '../../src/database/migrate.js';
import { packageRoot } from '../../src/package-root.js';
import { createDatabase, type TestDatabase } from '../support/database.js';
import { cleanUp, kill, makeDataDir, type Result, runCli, startCli } from '../support/process.js';
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

const runMigrate = (): Promise<Result> => runCli(['migrate'], { env });

test('the records are those that `prisma migrate deploy` writes', async () => {
  expect(await migrate(database.connection)).toEqual(names);
  const records = await query('SELECT * FROM _prisma_migrations ORDER BY migration_name');
  expect(records).toEqual(
    names.map((name) => ({
      id: expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/),
      checksum: createHash('sha256')
        .update(readFileSync(path.join(dir, name, 'migration.sql')))
        .digest('hex'),
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
  const first = await runMigrate();
  const before = await query('SELECT * FROM _prisma_migrations');
  const second = await runMigrate();
  expect(first).toEqual({ code: 0, stdout: `applied: ${names.join(', ')}\n`, stderr: '' });
  expect(second).toEqual({ code: 0, stdout: 'the schema is current\n', stderr: '' });
  expect(await query('SELECT * FROM _prisma_migrations')).toEqual(before);
});

test('of several processes that migrate one empty database at once, one applies each migration', async () => {
  const results = await Promise.all(
    Array.from({ length: 4 }, () => runCli(['migrate', '--json'], { env: { ...env, DATA_DIR: makeDataDir() } })),
  );
  expect(results.map(({ code, stderr }) => ({ code, stderr }))).toEqual(Array(4).fill({ code: 0, stderr: '' }));
  expect(results.flatMap(({ stdout }) => JSON.parse(stdout).migrated)).toEqual(names);
  expect(await query('SELECT migration_name AS name FROM _prisma_migrations ORDER BY 1')).toEqual(
    names.map((name) => ({ name })),
  );
});

test('of many at once in one process, too', async () => {
  const applied = await Promise.all(Array.from({ length: 8 }, () => migrate(database.connection)));
  expect(applied.flat()).toEqual(names);
});

test('a process that is killed while it waits for another one is no hindrance', async () => {
  await query('SELECT pg_advisory_lock(72707369)'); // as another migrating process holds it
  const waiting = startCli(['migrate'], { env });
  await waitFor('it to wait', async () => {
    const [row] = await query(`SELECT count(*)::int AS n FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`);
    return row?.n === 1;
  });
  await kill(waiting);
  await query('SELECT pg_advisory_unlock(72707369)');
  expect(await runMigrate()).toMatchObject({ code: 0, stderr: '' });
});

test('a migration that fails leaves nothing of itself, says why, and is tried again', async () => {
  await query('CREATE TABLE restore_disk ()'); // in the way
  const failed = await runMigrate();
  expect(failed).toEqual({
    code: 1,
    stdout: '',
    stderr: `tapegate: migration ${names[0]}: relation "restore_disk" already exists\n`,
  });
  expect(await query('SELECT * FROM _prisma_migrations')).toEqual([]);
  expect(await query(`SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1`)).toEqual([
    { tablename: '_prisma_migrations' },
    { tablename: 'restore_disk' },
  ]);
  await query('DROP TABLE restore_disk');
  expect(await runMigrate()).toMatchObject({ code: 0, stderr: '' });
});

test('a migration that was changed after it was applied is refused', async () => {
  await migrate(database.connection);
  await query(`UPDATE _prisma_migrations SET checksum = repeat('0', 64) WHERE migration_name = '${names[0]}'`);
  expect(await runMigrate()).toEqual({
    code: 1,
    stdout: '',
    stderr: `tapegate: migration ${names[0]} was changed after it was applied\n`,
  });
});

test('one that failed in Prisma is refused until it is resolved there', async () => {
  await migrate(database.connection);
  await query(`UPDATE _prisma_migrations SET finished_at = NULL WHERE migration_name = '${names[0]}'`);
  const refused = await runMigrate();
  await query(`UPDATE _prisma_migrations SET finished_at = now() WHERE migration_name = '${names[0]}'`);
  expect(refused).toEqual({
    code: 1,
    stdout: '',
    stderr: `tapegate: migration ${names[0]} failed earlier: see "prisma migrate resolve"\n`,
  });
  expect(await runMigrate()).toMatchObject({ code: 0, stderr: '' });
});

test('one that Prisma has rolled back is applied', async () => {
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

test('events from before they had numbers keep their ids, and what follows has greater ones', async () => {
  const numbering = names.indexOf('20261121070000_event_numbers');
  for (const name of names.slice(0, numbering))
    await query(readFileSync(path.join(dir, name, 'migration.sql'), 'utf8'));
  await query(`INSERT INTO event (id, at, request_ids, request_id) SELECT n * 10, now(), '{}', 1 FROM generate_series(1, 3) n;
    SELECT setval('event_id_seq', 30)`);
  await query(readFileSync(path.join(dir, names[numbering] ?? '', 'migration.sql'), 'utf8'));
  // as a program that knows nothing of numbers writes it
  await query(`INSERT INTO event (at, request_ids, request_id) VALUES (now(), '{}', 2), (now(), '{}', 2)`);
  const told = 'SELECT number, request_id FROM numbered_event ORDER BY 1';
  const before = [10, 20, 30].map((number) => ({ number: String(number), request_id: 1 }));
  expect(await query(told)).toEqual(before);
  await query('SELECT number_events(NULL)');
  expect(await query(told)).toEqual([...before, { number: '31', request_id: 2 }, { number: '32', request_id: 2 }]);
});

test('what users have at once is counted of what is there', async () => {
  const counting = names.indexOf('20261123110000_quota_counts');
  const apply = async (chosen: string[]) => {
    for (const name of chosen) await query(readFileSync(path.join(dir, name, 'migration.sql'), 'utf8'));
  };
  await apply(names.slice(0, counting));
  const [live, over] = ["'2026-01-01', '2099-01-01', 'QUEUED'", "'2026-01-01', '2026-01-02', 'EXPIRED'"];
  await query(`INSERT INTO quota ("user", size) VALUES ('ann', 1), ('bob', 1), ('eve', 1);
    INSERT INTO request (quota_id, pattern, label, request_date, retention, state)
      VALUES (1, '', '', ${live}), (1, '/a', '', ${live}), (1, '/b', '', ${over}), (2, '', '', ${live}), (2, '', '', ${over});
    INSERT INTO awaited_path (request_id, path, ordinal, reason) VALUES (1, '/x', 1, 'UNKNOWN'), (1, '/y', 2, 'UNKNOWN'),
      (1, '/z', 3, 'LIMIT'), (2, '/x', 1, 'QUOTA_FULL'), (3, '/x', 1, 'UNKNOWN'), (5, '/x', 1, 'UNKNOWN')`);
  await apply(names.slice(counting));
  expect(await query('SELECT "user", open_requests, awaited_paths, standing_patterns FROM quota ORDER BY id')).toEqual([
    { user: 'ann', open_requests: 2, awaited_paths: 2, standing_patterns: 1 },
    { user: 'bob', open_requests: 1, awaited_paths: 0, standing_patterns: 0 },
    { user: 'eve', open_requests: 0, awaited_paths: 0, standing_patterns: 0 },
  ]);
});

const bears: Record<string, string> = JSON.parse(readFileSync(path.join(dir, 'bears.json'), 'utf8'));

test('each migration says the oldest program that it bears, which is none to come', () => {
  expect(Object.keys(bears)).toEqual(names);
  expect(Object.entries(bears).filter(([name, oldest]) => !names.includes(oldest) || oldest > name)).toEqual([]);
});

test('a migration that takes something away bears no program that was there before it', () => {
  const takesAway =
    /\bDROP (TABLE|COLUMN|TYPE)\b|\bRENAME\b|\bSET NOT NULL\b|\bALTER COLUMN\s+\S+\s+(SET DATA )?TYPE\b/i;
  const sqlOf = (name: string) => readFileSync(path.join(dir, name, 'migration.sql'), 'utf8').replace(/--.*$/gm, '');
  expect(names.filter((name) => takesAway.test(sqlOf(name)) && bears[name] !== name)).toEqual([]);
  expect(
    ['DROP TABLE a', 'ALTER TABLE a RENAME b TO c', 'ALTER COLUMN "b" SET DATA TYPE text'].every((text) =>
      takesAway.test(text),
    ),
  ).toBe(true);
});

test('a program that a newer migration does not bear says so and does not start; any other starts beside it', async () => {
  await migrate(database.connection);
  const newer = `INSERT INTO _prisma_migrations (id, checksum, migration_name, finished_at) VALUES ('1', 'x', '2999_newer', now())`;
  await query(newer);
  await query('ALTER TABLE quota ADD COLUMN of_the_newer TEXT');
  await query(`INSERT INTO oldest_program VALUES ('2999_newer', '${names[0]}')`);
  expect(await runMigrate()).toEqual({ code: 0, stdout: 'the schema is current\n', stderr: '' });
  expect(await runCli(['quota', 'set', 'ann', '--size', '1T'], { env })).toMatchObject({ code: 0, stderr: '' });

  await query(`UPDATE oldest_program SET program = '2999_newer' WHERE migration = '2999_newer'`);
  const before = await query('SELECT * FROM oldest_program ORDER BY 1');
  const refusal = `tapegate: this Tapegate is too old for the database: 2999_newer bears programs from 2999_newer on, and this one is of ${names.at(-1)}\n`;
  for (const args of [['migrate'], ['serve'], ['work'], ['quota', 'list']]) {
    expect(await runCli(args, { env })).toEqual({ code: 1, stdout: '', stderr: refusal });
  }
  expect(await query('SELECT * FROM oldest_program ORDER BY 1')).toEqual(before);
});
