/**
 * Commands without a database: only `start` and `migrate` create a database. DATABASE_URL may contain special
 * characters.
 */
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { openDatabase } from '../../src/db/pools.js';
import { createDatabase, queryOnce } from '../support/database.js';
import { askData } from '../support/graphql.js';
import { cleanUp, makeDataDir, runCli, runProgram, serveHere, serverPid } from '../support/process.js';
import { readFiles } from '../support/server.js';
import { type DatabaseRelay, startDatabaseRelay } from '../support/tcp-relay.js';

let relay: DatabaseRelay;
/** TCP host and port of the tests' database server. */
let host: string;

beforeAll(async () => {
  relay = await startDatabaseRelay(inject('postgres').connection);
  host = `127.0.0.1:${relay.through({}).port}`;
});
afterAll(async () => {
  await relay.close();
  await cleanUp();
});

/** Commands that need a database. */
const commands: [string, ...string[]][] = [
  ['doctor', '--repair'],
  ['quota', 'set', 'ann', '--size', '1T'],
  ['disk', 'add', 'disk', '--size', '1T'],
  ['user', 'purge', 'ann'],
  ['library', 'list'],
  ['volume', 'set', '--all', '--medium', 'lto-9'],
  ['import', 'rows.csv'],
  ['archive', 'tree', '--move'],
];

function makeDir(): string {
  const dir = makeDataDir();
  mkdirSync(path.join(dir, 'tree'));
  writeFileSync(path.join(dir, 'tree/a'), 'bytes');
  writeFileSync(path.join(dir, 'rows.csv'), 'path,size\n/a,1\n');
  return dir;
}

/** Runs a command from another directory, with the files of `dir`. */
const runFor = (dir: string, args: string[], env: Record<string, string>) =>
  runCli(
    args.map((arg) => (['rows.csv', 'tree'].includes(arg) ? path.join(dir, arg) : arg)),
    { env },
  );

test.each<[string, ...string[]]>([...commands, ['migrate'], ['serve'], ['work']])(
  '%s in a directory without a database reports where it looked, and makes none',
  async (...args) => {
    const cwd = makeDir();
    const before = readdirSync(cwd, { recursive: true });
    const place = path.join(cwd, 'data/postgres');
    const ended =
      args[0] === 'serve' // `serve` runs in the directory itself
        ? runProgram(args, { cwd, env: { PORT: '0' } })
        : runFor(cwd, args, { DATA_DIR: path.join(cwd, 'data') });
    expect(await ended).toEqual({
      code: 1,
      stdout: '',
      stderr: `tapegate: there is no database: DATABASE_URL is not set, and ${place} (DATA_DIR) does not exist; run "tapegate start" to create one there, or set TAPEGATE_URL to use a remote server\n`,
    });
    expect(readdirSync(cwd, { recursive: true })).toEqual(before);
  },
);

test('a database without the tables of Tapegate is refused until migrate makes them', async () => {
  const database = await createDatabase({ empty: true });
  const cwd = makeDir();
  const env = { DATABASE_URL: database.url, DATA_DIR: path.join(cwd, 'data') };
  const name = `${database.connection.host}/${database.connection.database}`;
  for (const args of commands) {
    expect(await runFor(cwd, args, env)).toEqual({
      code: 1,
      stdout: '',
      stderr: `tapegate: there is no Tapegate database in ${name} (DATABASE_URL); run "tapegate migrate" to create it\n`,
    });
  }
  expect(await queryOnce(database.connection, `SELECT FROM pg_tables WHERE schemaname = 'public'`)).toEqual([]);
  expect(readdirSync(cwd).sort()).toEqual(['rows.csv', 'tree']);
  expect(await runCli(['migrate'], { env })).toMatchObject({ code: 0, stderr: '' });
  expect(await runCli(['doctor'], { env })).toMatchObject({ code: 0, stderr: '' });
  await database.drop();
});

test('a database that the server does not have is reported as missing; migrate makes it, serve does not', async () => {
  const database = await createDatabase({ empty: true });
  await database.drop();
  const env = { DATABASE_URL: database.url, DATA_DIR: makeDataDir(), PORT: '0' };
  const missing = `tapegate: there is no database ${database.connection.host}/${database.connection.database} (DATABASE_URL); run "tapegate migrate" to create it\n`;
  for (const command of ['doctor', 'serve', 'work']) {
    expect(await runCli([command], { env })).toEqual({ code: 1, stdout: '', stderr: missing });
  }
  expect(await runCli(['migrate'], { env })).toMatchObject({ code: 0, stderr: '' });
  expect((await runCli(['migrate'], { env })).stdout).toBe('the schema is current\n');
  await database.drop();
});

test('start makes the database, no demo with DEMO=off, no drive with ENGINE=off, and other commands find it', async () => {
  const cwd = makeDir();
  const env = { DATA_DIR: path.join(cwd, 'data'), DEMO: 'off' };
  const server = await serveHere({ ...env, ENGINE: 'off' }, { command: 'start', initdb: true });
  expect(await readFiles(server, '')).toEqual([]); // no demo archive exists
  expect(await askData(server, '{ drives { totalCount } }')).toEqual({ drives: { totalCount: 0 } });
  await server.stop();
  expect(await runCli(['quota', 'set', 'ann', '--size', '1T'], { env })).toMatchObject({ code: 0 });
  expect(await runCli(['migrate'], { env })).toEqual({ code: 0, stdout: 'the schema is current\n', stderr: '' });
  expect(serverPid(env.DATA_DIR)).toBeUndefined();
});

const OPTIONS = 'options=-c%20work_mem%3D5MB';

test.each([
  ['postgres:pa%ss', '', '64MB'],
  ['postgres:pa%25ss', '', '64MB'],
  ['postgres', `?${OPTIONS}`, '5MB'],
  ['postgres:pa%25ss', `?application_name=site&${OPTIONS}`, '5MB'],
])(
  'a connection as %s with the options "%s" has the settings of Tapegate and those of the URL',
  async (user, query, memory) => {
    const connectionString = `postgresql://${user}@${host}/postgres${query}`;
    const db = openDatabase({ connectionString }, { log: pino({ level: 'silent' }) });
    try {
      const { rows } = await db.pool.query(
        `SELECT current_setting('client_connection_check_interval') AS check, current_setting('work_mem') AS memory`,
      );
      expect(rows).toEqual([{ check: '10s', memory }]);
    } finally {
      await db.close();
    }
  },
);

test('sslmode allow and prefer work on a server without TLS, and the others say what to do', async () => {
  const { connection, drop } = await createDatabase();
  const run = (mode: string) =>
    runCli(['quota', 'list'], {
      env: {
        DATABASE_URL: `postgresql://postgres@${host}/${connection.database}?sslmode=${mode}`,
        DATA_DIR: makeDataDir(),
      },
    });
  for (const mode of ['prefer', 'allow']) expect(await run(mode)).toMatchObject({ code: 0, stderr: '' });
  for (const mode of ['require', 'no-verify', 'verify-ca', 'verify-full']) {
    expect(await run(mode)).toEqual({
      code: 1,
      stdout: '',
      stderr: `tapegate: the database server does not support TLS, and sslmode=${mode} requires it: enable ssl on the server, or use sslmode=prefer or sslmode=disable\n`,
    });
  }
  await drop();
});

test('migrate makes a database with a password that has a percent sign', async () => {
  const env = {
    DATABASE_URL: `postgresql://postgres:pa%ss@${host}/made_by_url_${process.pid}`,
    DATA_DIR: makeDataDir(),
  };
  expect(await runCli(['migrate'], { env })).toMatchObject({ code: 0, stderr: '' });
});
