/** Imports that are refused: the command reports what is wrong, and nothing is stored. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { importRows } from '../../src/operations/catalogue/import.js';
import { readRows } from '../../src/operations/catalogue/import-rows.js';
import { startApp, type TestApp } from '../support/app.js';
import { refused } from '../support/command-results.js';
import { addFiles, addQuota } from '../support/factories.js';
import { cleanUp, runCli, startCli } from '../support/process.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let env: Record<string, string>;

beforeAll(async () => {
  app = await startApp();
  env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
  await addFiles(app.ctx, [{ path: '/there/already', stage: 'ONTAPE' }]);
  await addQuota(app.ctx, 'ann', 1n);
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

/** The number of rows of every table, and the catalogue itself. */
async function readAll(): Promise<Record<string, string>> {
  const { rows: tables } = await app.ctx.db.pool.query<{ name: string }>(
    `SELECT tablename AS name FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema') AND tablename <> 'audit'`,
  );
  const counts: Record<string, string> = {};
  for (const { name } of tables) {
    const { rows } = await app.ctx.db.pool.query(`SELECT count(*)::text AS n FROM "${name}"`);
    counts[name] = rows[0]?.n;
  }
  const { rows } = await app.ctx.db.pool.query('SELECT array_agg(f ORDER BY id)::text AS files FROM tape_file f');
  return { ...counts, catalogue: rows[0]?.files };
}

const importText = (input: string | Uint8Array) =>
  importRows(app.ctx, readRows(Readable.from([Buffer.from(input)]))).then(
    ({ added }) => `${added} added`,
    (error: Error) => error.message,
  );
const importPaths = (...paths: string[]) => importText(['path,size', ...paths.map((file) => `${file},1`)].join('\n'));
const refusal = (...faults: string[]) => ['nothing was imported:', ...faults.map((fault) => `  ${fault}`)].join('\n');

const good = Array.from({ length: 3000 }, (_, n) => `/good/${n},${n},T`);
const badSize = (line: number) => `line ${line}: size must be a whole number of bytes, not "x"`;
const faults = Array.from({ length: 21 }, (_, n) => `/bad/${n},x`);

test.each<[string, string | Uint8Array, string | RegExp]>([
  ['a bad row', ['path,size,stage', ...good, '/bad,x,T', ...good].join('\n'), refusal(badSize(3002))],
  [
    'a file that cannot move so',
    'path,size,stage\n/there/already,1,U',
    refusal('line 2: a file cannot move from T to U'),
  ],
  ['gzipped data that are cut off', gzipSync(['path,size,stage', ...good].join('\n')).subarray(0, -20), /damaged here/],
  [
    'a path that occurs twice',
    'path,size\n/twice,1\n/once,1\n/twice,1\n/thrice,1\n/thrice,2\n/thrice,3',
    refusal('lines 2 and 4: the same path "/twice"', 'lines 5 and 6 and 7: the same path "/thrice"'),
  ],
  ['twenty bad rows', ['path,size', ...faults.slice(1), '/good,1'].join('\n'), /line 21: size must be .*"x"$/],
  [
    'more bad rows',
    ['path,size', ...faults, '/good,1'].join('\n'),
    /line 21: .*\n {2}… \(only the first 20 are listed\)$/,
  ],
])('an import with %s is refused and stores nothing', async (_what, input, message) => {
  const before = await readAll();
  const expected = typeof message === 'string' ? message : expect.stringMatching(message);
  expect(await importText(input)).toEqual(expected);
  expect(await readAll()).toEqual(before);
});

test('the command ends with 1, and no control character of the file reaches the terminal', async () => {
  const before = await readAll();
  const file = path.join(app.dataDir, 'bad.csv');
  writeFileSync(file, 'path,size\n/a\u001b]0;x\u0007,1\n/b\u009b31m,x\nc\u009b,1\n');
  expect(await runCli(['import', file], { env })).toEqual(
    refused(1, refusal(badSize(3), 'line 4: path does not begin with "/": "c\uFFFD"')),
  );
  expect(await readAll()).toEqual(before);
});

test('the command reports a missing file and a directory in one line', async () => {
  const missing = path.join(app.dataDir, 'missing.csv');
  expect(await runCli(['import', missing], { env })).toEqual(
    refused(1, `ENOENT: no such file or directory, open '${missing}'`),
  );
  expect(await runCli(['import', app.dataDir], { env })).toEqual(
    refused(1, 'EISDIR: illegal operation on a directory, read'),
  );
});

test('the command does not wait for the rest of a file that is refused', async () => {
  const running = startCli(['import', '-'], { env, stdin: null });
  running.child.stdin?.write(`path,size\n${'/a,x\n'.repeat(30)}`);
  expect(await running.ended).toMatchObject({ code: 1, stdout: '' });
});

test('an import whose database connection breaks ends with 4 and stores nothing', async () => {
  const before = await readAll();
  const importing = `FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'COPY incoming%' AND state = 'active'`;
  const { pool } = app.ctx.db;
  await waitFor('earlier imports to end', async () => (await pool.query(`SELECT ${importing}`)).rowCount === 0);
  const running = startCli(['import', '-'], { env: { ...env, LOG_LEVEL: 'silent' }, stdin: null });
  running.child.stdin?.write('path,size\n/half,1\n');
  await waitFor('the connection to break', async () => {
    const { rowCount } = await pool.query(`SELECT pg_terminate_backend(pid) ${importing}`);
    return rowCount === 1;
  });
  running.child.stdin?.end();
  expect(await running.ended).toEqual(refused(4, 'the database does not answer: try again later'));
  expect(await readAll()).toEqual(before);
});

test('a path that is a file and a directory in one import is refused with its lines', async () => {
  expect(await importPaths('/one/p/q/r', '/one/x', '/one/p')).toBe(
    refusal('lines 2 and 4: "/one/p" cannot be a file and a folder, of "/one/p/q/r"'),
  );
});

test('a path below or above a file of the catalogue is refused; one with the same beginning is not', async () => {
  expect(await importPaths('/two/p', '/two/d/e/f')).toBe('2 added');
  expect(await importPaths('/two/new', '/two/p/q', '/two/d')).toBe(
    refusal(
      'line 3: "/two/p" cannot be a file and a folder, of "/two/p/q"',
      'line 4: "/two/d" cannot be a file and a folder, of "/two/d/e/f"',
    ),
  );
  expect(await importPaths('/two/p-q', '/two/p.q', '/two/p0', '/two/d/e/f0', '/two/D')).toBe('5 added');
});

test('of two concurrent imports of a file and of one below it, one is refused', async () => {
  for (let n = 0; n < 5; n++) {
    const results = await Promise.all([importPaths(`/race/${n}`), importPaths(`/race/${n}/inner`)]);
    expect(results.filter((result) => result === '1 added')).toHaveLength(1);
  }
});

test('archive names the files whose paths conflict, writes none of them to tape, and archives the others', async () => {
  await importPaths('/arc/sub', '/arc/a.nc/deep');
  const dir = path.join(app.dataDir, 'tree');
  mkdirSync(path.join(dir, 'sub'), { recursive: true });
  for (const name of ['a.nc', 'b.nc', 'sub/c.nc']) writeFileSync(path.join(dir, name), name);
  const { code, stderr } = await runCli(['archive', dir, '--prefix', '/arc', '--new-library'], { env });
  expect(code).toBe(1);
  expect(stderr).toContain(`${dir}/a.nc: "/arc/a.nc" cannot be a file and a folder, of "/arc/a.nc/deep"`);
  expect(stderr).toContain(`${dir}/sub/c.nc: "/arc/sub" cannot be a file and a folder, of "/arc/sub/c.nc"`);
  const { rows } = await app.ctx.db.pool.query(
    `SELECT f.path, v.used::int AS bytes FROM tape_file f JOIN volume v ON v.id = f.volume_id WHERE starts_with(path, '/arc/')`,
  );
  expect(rows).toEqual([{ path: '/arc/b.nc', bytes: 4 }]);
});
