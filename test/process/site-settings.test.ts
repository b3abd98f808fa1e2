/**
 * Settings of the server, the database or the role have no effect: each connection sets the values that Tapegate relies
 * on.
 */
import { existsSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { withSnapshot } from '../../src/db/lists/snapshot.js';
import { defaultSettings, requiredSettings } from '../../src/db/session-settings.js';
import { sql } from '../../src/db/sql.js';
import { createDatabase, queryOnce } from '../support/database.js';
import { findFaults } from '../support/faults.js';
import { useMemorySite } from '../support/memory-site.js';
import { cancel } from '../support/mutations.js';
import { cleanUp, makeDataDir, runCli } from '../support/process.js';
import { waitForState } from '../support/request-view.js';
import { call, makeRequest, put, readRequest } from '../support/rest.js';
import { siteSettings } from '../support/site-settings.js';

/** Settings left to the site: they change logs or speed, or nothing in Tapegate uses them. */
const leftToSite: Record<string, RegExp> = {
  'who and where': /^(application_name|role|session_authorization)$/,
  'the current transaction': /^transaction_(isolation|read_only|deferrable)$/,
  'logs and statistics':
    /^(log_|trace_|track_|debug_|backtrace_|compute_query_id|stats_fetch|update_process_title|lc_messages|md5_password_warnings|icu_validation|escape_string_warning)/,
  'costs, memory and processes':
    /^(cpu_|jit|geqo|random_page|seq_page|parallel_|min_parallel|max_parallel|effective_|maintenance_|work_mem$|temp_|hash_mem|max_stack|vacuum_|io_combine|backend_flush|wal_|commit_|logical_decoding|gin_pending|deadlock_timeout)/,
  'plans of statistics and partitions':
    /^(constraint_exclusion|(from|join)_collapse_limit|cursor_tuple|recursive_worktable|default_statistics|synchronize_seqscans|enable_(partition|async|group_by|presorted|self_join|distinct))/,
  'places of new tables, and how they are stored': /^(default_tablespace|default_toast_compression|file_copy_method)$/,
  'dead peers': /^tcp_/,
  'what nothing here uses':
    /^(default_text_search_config|check_function_bodies|createrole_self_grant|password_encryption|scram_iterations|lo_compat_privileges|event_triggers|backslash_quote)$/,
  'what only a superuser sets, to repair or extend a server':
    /^(allow_|zero_damaged|ignore_checksum|(local|session)_preload|dynamic_library|extension_control)/,
};

describe('on a database with settings of the site', () => {
  const site = useMemorySite({ siteSettings });
  const { app } = site;

  beforeAll(async () => {
    const empty = ['request', 'request_file', 'tape_file'].map((name) => `CREATE TABLE elsewhere.${name} (id int)`);
    const connection = { ...app.ctx.db.config, options: '-c default_transaction_read_only=off' };
    await queryOnce(connection, ['CREATE SCHEMA elsewhere', ...empty].join(';'));
  });

  test('requests are made, changed, cancelled and restored, at once and many together', async () => {
    const files = Array.from({ length: 12 }, (_, n) => `/site/é-${n}`);
    await site.tape(...files);
    const ids = await Promise.all(files.map((file) => site.ask(file)));
    const [kept = 0, ...others] = ids;
    const changes = ids.map((id) => put(app, id, { quota: 'alice', retention: '2098-01-01', label: 'é' }));
    expect((await Promise.all(changes)).map(({ status }) => status)).toEqual(ids.map(() => 200));
    await Promise.all(others.map((id) => cancel(app, id)));
    await waitForState(app, kept, 'COMPLETED');
    const shown = await readRequest(app, kept);
    expect(shown).toMatchObject({ retention: '2098-01-01T00:00:00', label: 'é' });
    expect(shown.request_date).toMatch(/^\d{4}-\d\d-\d\dT/);
    expect(existsSync(site.place('/site/é-0'))).toBe(true);
    const pattern = await makeRequest(app, { quota: 'alice', patterns: '/site/é', retention: '2099-01-01' });
    expect((await waitForState(app, pattern, 'COMPLETED')).filesOnDisk).toBe(12);
    expect(await call(app, 'GET', '/files?match=é-1')).toMatchObject({ status: 200 });
    expect(await findFaults(app)).toEqual([]);
  });

  test('each kind of connection has the settings of Tapegate', async () => {
    const { db } = app.ctx;
    const names = requiredSettings.map(({ name }) => name);
    const statement = sql`SELECT s.name, current_setting(s.name) AS value FROM unnest(${names}::text[]) AS s (name)`;
    const own = new db.Client(db.config);
    await own.connect();
    const isLimit = (name: string) => /^(statement|idle_in_transaction_session)_timeout$/.test(name);
    const expected = Object.fromEntries(requiredSettings.map(({ name, value }) => [name, value]));
    for (const { rows } of [
      ...(await Promise.all(
        [db.pool, db.streamPool, db.importPool, db.vitalPool, own].map((each) => each.query(statement)),
      )),
      { rows: await withSnapshot(db.streamPool, ({ query }) => query(statement)) },
      {
        rows: await db.prisma.$queryRawUnsafe(
          `SELECT name, current_setting(name) AS value FROM pg_settings WHERE name = ANY($1)`,
          names,
        ),
      },
    ] as { rows: { name: string; value: string }[] }[]) {
      expect(rows).toHaveLength(names.length);
      for (const { name, value } of rows) if (!isLimit(name)) expect([name, value]).toEqual([name, expected[name]]);
    }
    await own.end();
  });

  test('a setting that the role may not change is reported with the command', async () => {
    const connection = { ...app.ctx.db.config, options: '-c default_transaction_read_only=off' };
    const role = `site_${process.pid}`;
    await queryOnce(connection, `CREATE ROLE ${role} LOGIN`);
    const client = new app.ctx.db.Client({ ...app.ctx.db.config, options: `-c role=${role}` });
    await expect(client.connect()).rejects.toThrow(
      /permission denied to set parameter "(session_replication_role|track_counts)"; the parameter is set for the server, the database or the role: run ALTER ROLE … RESET \1/,
    );
    await queryOnce(connection, `DROP ROLE ${role}`);
  });
});

test('each setting of PostgreSQL is set for each connection, or left to the site for a reason', async () => {
  const { connection } = inject('postgres');
  const rows = await queryOnce(
    connection,
    `SELECT name FROM pg_settings WHERE context IN ('user', 'superuser') AND name NOT LIKE '%.%'`,
  );
  const ours = [...defaultSettings, ...requiredSettings].map(({ name }) => name);
  const left = Object.values(leftToSite);
  const names = rows.map((row) => String(row.name));
  expect(names.filter((name) => !ours.includes(name) && !left.some((each) => each.test(name)))).toEqual([]);
  expect(ours.filter((name) => !names.includes(name))).toEqual([]);
  expect(
    names.filter(
      (name) =>
        ours.includes(name) && left.some((each) => each.test(name)) && name !== 'work_mem' && name !== 'track_counts',
    ),
  ).toEqual([]);
});

afterAll(cleanUp);

describe('a database that Tapegate cannot use is refused with the command that helps', () => {
  const role = `site_role_${process.pid}`;
  const encoding = `site_encoding_${process.pid}`;
  beforeAll(async () => {
    const { connection } = inject('postgres');
    await queryOnce(connection, `CREATE ROLE ${role}`);
    await queryOnce(
      connection,
      `CREATE DATABASE ${encoding} TEMPLATE template0 ENCODING 'LATIN1' LOCALE_PROVIDER libc LC_COLLATE 'C' LC_CTYPE 'C'`,
    );
  });
  afterAll(async () => {
    await queryOnce(inject('postgres').connection, `DROP DATABASE ${encoding} WITH (FORCE)`);
    await queryOnce(inject('postgres').connection, `DROP ROLE ${role}`);
  });

  test('an encoding other than UTF8', async () => {
    const { url } = await createDatabase({ empty: true });
    const DATABASE_URL = url.replace(/test_\w+/, encoding);
    const { code, stderr } = await runCli(['migrate'], { env: { DATABASE_URL, DATA_DIR: makeDataDir() } });
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: `tapegate: the encoding of database "${encoding}" is LATIN1, but Tapegate requires UTF8: run CREATE DATABASE tapegate TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C', and name that database in DATABASE_URL\n`,
    });
  });

  /**
   * The name of the case, SQL that the site has run, the error message, and whether Tapegate's tables exist already.
   */
  const ofSite: [string, string, RegExp, boolean][] = [
    [
      'a role without privileges on an empty database',
      `ALTER DATABASE %D SET role TO ${role}`,
      /^role "site_role_\d+" cannot create Tapegate's tables in database "\w+": run (?<run>ALTER DATABASE .+)$/,
      false,
    ],
    [
      'a role without privileges on the tables',
      `ALTER DATABASE %D SET role TO ${role}`,
      /^role "site_role_\d+" cannot read and write _prisma_migrations, .+ in database "\w+": run (?<run>GRANT .+) and (?<then>GRANT .+), or use the role that owns them$/,
      true,
    ],
    [
      'a role that may not set sequences',
      `ALTER DATABASE %D SET role TO ${role}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ${role};
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO ${role}`,
      /^role "site_role_\d+" cannot read and write \w+_seq, .+ in database "\w+": run (?<run>GRANT .+) and (?<then>GRANT .+), or use the role that owns them$/,
      true,
    ],
    [
      'tables in another schema',
      'ALTER SCHEMA public RENAME TO "a b"; CREATE SCHEMA public',
      /^the tables of Tapegate are in schema "a b", and must be in public: run (?<run>ALTER .+) and (?<then>ALTER .+)$/,
      true,
    ],
    [
      'the extension in another schema',
      'CREATE SCHEMA extensions; ALTER EXTENSION pg_trgm SET SCHEMA extensions',
      /^the extension pg_trgm is in schema "extensions", and must be in public: run (?<run>ALTER EXTENSION .+)$/,
      true,
    ],
    [
      'no schema public',
      'DROP SCHEMA public CASCADE',
      /^role "\w+" cannot use schema public of database "\w+": run (?<run>CREATE SCHEMA .+) and (?<then>GRANT .+)$/,
      false,
    ],
  ];
  test.each(ofSite)('%s', async (_what, prepare, message, isFilled) => {
    const database = await createDatabase({ empty: !isFilled });
    const env = { DATABASE_URL: database.url, DATA_DIR: makeDataDir() };
    await queryOnce(database.connection, prepare.replace('%D', String(database.connection.database)));
    const { code, stderr } = await runCli(['migrate'], { env });
    expect(code).toBe(1);
    const { groups } = message.exec(stderr.replace(/^tapegate: /, '').trimEnd()) ?? {};
    expect(groups, stderr).toBeDefined();
    // after the printed commands, Tapegate starts
    const commands = [groups?.run, groups?.then].filter((each) => each !== undefined);
    await queryOnce({ ...database.connection, options: '-c role=none' }, commands.join(';'));
    expect(await runCli(['migrate'], { env })).toMatchObject({ code: 0, stderr: '' });
    await queryOnce(
      { ...database.connection, options: '-c role=none' },
      `REASSIGN OWNED BY ${role} TO CURRENT_USER; DROP OWNED BY ${role}`,
    );
    await database.drop();
  });
});
