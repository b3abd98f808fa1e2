/** Poolers in front of the database: Tapegate requires a server connection for each of its sessions. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createDatabase, queryOnce, type TestDatabase } from '../support/database.js';
import { startPooler } from '../support/pooler.js';
import { cleanUp, makeDataDir, runCli } from '../support/process.js';

let database: TestDatabase;

beforeAll(async () => {
  database = await createDatabase();
});
afterAll(async () => {
  await database.drop();
  await cleanUp();
});

test.each([
  ['transaction', false],
  ['transaction', true],
  ['statement', false],
] as const)(
  'a pooler in %s mode is refused by each command, and nothing is left on its connections',
  async (mode, isRound) => {
    const pooler = await startPooler(database.connection, mode, isRound);
    const locks = `SELECT count(*)::int AS n FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE l.locktype = 'advisory' AND d.datname = current_database()`;
    const before = await queryOnce(database.connection, locks);
    for (const command of [['migrate'], ['quota', 'list'], ['serve']]) {
      const env = { DATABASE_URL: pooler.url, DATA_DIR: makeDataDir(), PORT: '0' };
      expect(await runCli(command, { env })).toEqual({
        code: 1,
        stdout: '',
        stderr:
          'tapegate: a pooler between Tapegate and the database shares connections between sessions (transaction or statement mode): set pool_mode=session for this database and user in PgBouncer, or use the address of the database server itself in the URL\n',
      });
    }
    expect(await queryOnce(database.connection, locks)).toEqual(before);
    const left = `SELECT current_setting('search_path') AS path, current_setting('DateStyle') AS dates`;
    expect(await queryOnce({ connectionString: pooler.url }, left)).toEqual([
      { path: '"$user", public', dates: 'ISO, MDY' },
    ]);
    await pooler.close();
  },
);

test('a pooler in session mode works without settings of its own', async () => {
  const pooler = await startPooler(database.connection, 'session');
  const env = { DATABASE_URL: pooler.url, DATA_DIR: makeDataDir() };
  expect(await runCli(['migrate'], { env })).toEqual({ code: 0, stdout: 'the schema is current\n', stderr: '' });
  expect(await runCli(['quota', 'set', 'ann', '--size', '1T'], { env })).toMatchObject({ code: 0, stderr: '' });
  await pooler.close();
});

test('a startup parameter that a pooler rejects is reported as such', async () => {
  const pooler = await startPooler(database.connection, 'session');
  const env = { DATABASE_URL: `${pooler.url}?options=-e`, DATA_DIR: makeDataDir() };
  expect(await runCli(['quota', 'list'], { env })).toEqual({
    code: 1,
    stdout: '',
    stderr:
      'tapegate: a pooler in front of the database rejects the connection: unsupported startup parameter: options: remove the parameter from the URL and from PGOPTIONS, or allow it in the pooler\n',
  });
  await pooler.close();
});
