/** What commands do where there is no database: only who is told to makes one. */
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { afterAll, expect, test } from 'vitest';
import { createDatabase, type TestDatabase } from '../support/database.js';
import { cleanUp, makeDataDir, runCli, runProgram, serveHere, serverPid } from '../support/process.js';

afterAll(cleanUp);

/** Of operators: each needs a database. */
const operators: [string, ...string[]][] = [
  ['doctor', '--repair'],
  ['quota', 'set', 'ann', '--size', '1T'],
  ['quota', 'list'],
  ['quota', 'show', 'ann'],
  ['disk', 'add', 'disk', '--size', '1T'],
  ['user', 'forget', 'ann'],
  ['disk', 'list'],
  ['disk', 'resize', 'disk', '--size', '1T'],
  ['library', 'list'],
  ['volume', 'list'],
  ['volume', 'set', '--all', '--medium', 'lto-9'],
  ['import', 'rows.csv'],
  ['archive', 'tree', '--move'],
];

function makeFolder(): string {
  const dir = makeDataDir();
  mkdirSync(path.join(dir, 'tree'));
  writeFileSync(path.join(dir, 'tree/a'), 'bytes');
  writeFileSync(path.join(dir, 'rows.csv'), 'path,size\n/a,1\n');
  return dir;
}

/** Runs a command as somebody does who is elsewhere than the folder that has its files. */
const runFor = (folder: string, args: string[], env: Record<string, string>) =>
  runCli(
    args.map((arg) => (['rows.csv', 'tree'].includes(arg) ? path.join(folder, arg) : arg)),
    { env },
  );

test.each<[string, ...string[]]>([...operators, ['migrate'], ['serve'], ['work']])(
  '%s in a folder without a database says where it looked, and makes none',
  async (...args) => {
    const cwd = makeFolder();
    const before = readdirSync(cwd, { recursive: true });
    const place = path.join(cwd, 'data/postgres');
    const ended =
      args[0] === 'serve' // as many do: in the folder itself
        ? runProgram(args, { cwd, env: { PORT: '0' } })
        : runFor(cwd, args, { DATA_DIR: path.join(cwd, 'data') });
    expect(await ended).toEqual({
      code: 1,
      stdout: '',
      stderr: `tapegate: there is no database: DATABASE_URL is not set, and there is none in ${place} (DATA_DIR); "tapegate start" makes one there, and TAPEGATE_URL names the server of one elsewhere\n`,
    });
    expect(readdirSync(cwd, { recursive: true })).toEqual(before);
  },
);

async function tablesOf({ connection }: TestDatabase): Promise<number> {
  const client = new pg.Client(connection);
  await client.connect();
  try {
    const { rows } = await client.query(`SELECT count(*)::int AS n FROM pg_tables WHERE schemaname = 'public'`);
    return rows[0].n;
  } finally {
    await client.end();
  }
}

test('a database of somebody else is not taken for one of Tapegate, until migrate is told to', async () => {
  const database = await createDatabase({ empty: true });
  const cwd = makeFolder();
  const env = { DATABASE_URL: database.url, DATA_DIR: path.join(cwd, 'data') };
  const name = `${database.connection.host}/${database.connection.database}`;
  for (const args of operators) {
    expect(await runFor(cwd, args, env)).toEqual({
      code: 1,
      stdout: '',
      stderr: `tapegate: there is no database of Tapegate in ${name} (DATABASE_URL); "tapegate migrate" makes it\n`,
    });
  }
  expect([await tablesOf(database), readdirSync(cwd).sort()]).toEqual([0, ['rows.csv', 'tree']]);
  expect(await runCli(['migrate'], { env })).toMatchObject({ code: 0, stderr: '' });
  expect(await runCli(['doctor'], { env })).toMatchObject({ code: 0, stderr: '' });
  await database.drop();
});

test('a database that is not on the server is said to be missing; migrate makes it, serve does not', async () => {
  const database = await createDatabase({ empty: true });
  await database.drop();
  const env = { DATABASE_URL: database.url, DATA_DIR: makeDataDir(), PORT: '0' };
  const missing = `tapegate: there is no database ${database.connection.host}/${database.connection.database} (DATABASE_URL); "tapegate migrate" makes it\n`;
  expect(await runCli(['doctor'], { env })).toEqual({ code: 1, stdout: '', stderr: missing });
  for (const command of ['serve', 'work']) {
    expect(await runCli([command], { env })).toEqual({ code: 1, stdout: '', stderr: missing });
  }
  expect(await runCli(['migrate'], { env })).toMatchObject({ code: 0, stderr: '' });
  expect((await runCli(['migrate'], { env })).stdout).toBe('the schema is current\n');
  await database.drop();
});

test('start makes the database, and then the others find it', async () => {
  const cwd = makeFolder();
  const env = { DATA_DIR: path.join(cwd, 'data'), DEMO: 'off' };
  await (await serveHere({ ...env, ENGINE: 'off' }, { command: 'start', initdb: true })).stop();
  expect(await runCli(['quota', 'set', 'ann', '--size', '1T'], { env })).toMatchObject({ code: 0 });
  expect(await runCli(['migrate'], { env })).toEqual({ code: 0, stdout: 'the schema is current\n', stderr: '' });
  expect(serverPid(env.DATA_DIR)).toBeUndefined();
});
