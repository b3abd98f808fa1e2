/** Imports: stored rows, refused rows, and the report. */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { afterAll, expect, test } from 'vitest';
import { type Stage, stageLetters, stages } from '../../src/core/stages.js';
import { importRows } from '../../src/domain/import/import.js';
import type { ImportResult } from '../../src/domain/import/import-incoming.js';
import { readRows } from '../../src/domain/import/import-rows.js';
import { done, refused } from '../support/command-results.js';
import { addFiles, addQuota } from '../support/factories.js';
import { cleanUp, runCli, startCli } from '../support/process.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

let env: Record<string, string>;

const app = useApp({}, async () => {
  env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
  await addFiles(app.ctx, [{ path: '/there/already', stage: 'ONTAPE' }]);
  await addQuota(app.ctx, 'ann', 1n);
});
afterAll(cleanUp);

const importText = (input: string | Uint8Array): Promise<ImportResult> =>
  importRows(app.ctx, readRows(Readable.from([Buffer.from(input)])));

interface StoredRow {
  path: string;
  size: bigint;
  stage: Stage;
  verified: string | null;
  spot_name: string | null;
  volume: string | null;
  position: bigint | null;
  checksum: string | null;
}

async function readStored(prefix: string): Promise<StoredRow[]> {
  const { rows } = await app.ctx.db.pool.query<StoredRow>(
    `SELECT f.path, f.size, f.stage, f.verified, f.spot_name, v.name AS volume, f.position, f.checksum
     FROM tape_file f LEFT JOIN volume v ON v.id = f.volume_id WHERE starts_with(f.path, $1) ORDER BY f.path`,
    [prefix],
  );
  return rows;
}

const SHA = `sha256:${'0123456789abcdef'.repeat(4)}`;
const bare = { stage: 'UNVERIFIED', verified: null, spot_name: null, volume: null, position: null, checksum: null };

const all = 'path,size,stage,verified,spot_name,volume,position,checksum';

test.each([
  { format: 'csv', from: '-' },
  { format: 'jsonl', from: 'rows.jsonl' },
])('a gzipped file of the format $format is stored exactly', async ({ format, from }) => {
  const [one, two] = [`/${format}/1, "quote" and\r\nline\nbreak`, `/${format}/2 данные ﬁ 😀\t`];
  const row = { size: 10n, stage: 'ONTAPE', verified: '2026-01-02T03:04:05.000006', spot_name: 's, 1' };
  const place = { volume: 'V1', position: 7n, checksum: 'adler32:0a0b0c0d' };
  const values = [10, 'T', row.verified, row.spot_name, 'V1', 7, 'ADLER32:0A0B0C0D'];
  const csv = `\uFEFF${all}\r\n"${one.replaceAll('"', '""')}",10,T,${row.verified},"s, 1",V1,7,ADLER32:0A0B0C0D\r\n${two},0,,,,,,\r\n`;
  const objects = [
    Object.fromEntries(all.split(',').map((name, n) => [name, [one, ...values][n]])),
    { path: two, size: 0 },
  ];
  const bytes = gzipSync(format === 'csv' ? csv : objects.map((object) => JSON.stringify(object)).join('\n\n'));
  const file = from === '-' ? '-' : path.join(app.dataDir, from);
  if (file !== '-') writeFileSync(file, bytes);
  expect(await runCli(['import', file, '--format', format], { env, stdin: file === '-' ? bytes : '' })).toEqual(
    done(
      '2 files added, 0 updated\n1 new file without a stage in the list: added in stage U (on disk at the primary path)\n',
    ),
  );
  expect(await readStored(`/${format}`)).toEqual([
    { path: one, ...row, ...place },
    { ...bare, path: two, size: 0n },
  ]);
});

test('a row replaces the values of a file: an empty value clears a field, and a missing column leaves it', async () => {
  const old = {
    size: 1n,
    stage: 'ONTAPE',
    verified: '2026-01-02T03:04:05',
    spot_name: 's',
    volume: 'V9',
    position: 3n,
    checksum: SHA,
  };
  const row = (name: string) => `/known/${name},1,T,2026-01-02T03:04:05,s,V9,3,${SHA}`;
  await importText([all, ...['a', 'b', 'c', 'd', 'e'].map(row)].join('\n'));

  expect(
    await importText(`${all}\n/known/a,2,,,,,,\n/known/b,2,T,2026-02-03,t,V10,4,md5:${'0'.repeat(32)}`),
  ).toMatchObject({
    added: 0,
    updated: 2,
  });
  expect(await importText('path,size,volume\n/known/c,3,V11')).toMatchObject({ added: 0, updated: 1 });
  expect(await importText('{"path":"/known/d","size":1,"spot_name":null}\n{"path":"/known/e","size":1}')).toMatchObject(
    {
      added: 0,
      updated: 1,
    },
  );
  expect(await readStored('/known')).toEqual([
    { ...bare, path: '/known/a', size: 2n, stage: 'ONTAPE' },
    {
      path: '/known/b',
      size: 2n,
      stage: 'ONTAPE',
      verified: '2026-02-03T00:00:00',
      spot_name: 't',
      volume: 'V10',
      position: 4n,
      checksum: `md5:${'0'.repeat(32)}`,
    },
    { ...old, path: '/known/c', size: 3n, volume: 'V11' },
    { ...old, path: '/known/d', spot_name: null },
    { ...old, path: '/known/e' },
  ]);
});

test('importing the same rows again changes nothing', async () => {
  const text = `path,size,stage,verified,volume,position\n/again/a,1,T,2026-01-02T03:04:05.000006,V1,1\n/again/b,2,U,,,`;
  expect(await importText(text)).toMatchObject({ added: 2, updated: 0 });
  const before = await readStored('/again');
  expect(await importText(text)).toMatchObject({ added: 0, updated: 0 });
  expect(await readStored('/again')).toEqual(before);
});

const allowed = ['UNVERIFIED ONDISK', 'UNVERIFIED ONTAPE', 'ONDISK ONTAPE', 'ONDISK UNVERIFIED'];
const tapeStages: Stage[] = ['ONTAPE', 'RESTORING', 'RESTORED'];
const changes = stages.flatMap((from) => stages.map((to) => ({ from, to, path: `/stage/${from}-${to}` })));
type Change = (typeof changes)[number];

/**
 * Returns the stage of a file after an import row, or undefined if the row is refused. A row never moves a file between
 * ONTAPE, RESTORING and RESTORED.
 */
function changeOf({ from, to }: Change): Stage | undefined {
  if (from === to || (tapeStages.includes(from) && tapeStages.includes(to))) return from;
  return allowed.includes(`${from} ${to}`) ? to : undefined;
}

test('a row changes the stage of a file if that is allowed, and is refused if not', async () => {
  const nowhere = { size: 1n, spotName: null, volume: null, position: null };
  await addFiles(
    app.ctx,
    changes.map(({ from, path }) => ({ ...nowhere, path, stage: from })),
  );
  const importChanges = (some: Change[]) =>
    importText(['path,size,stage', ...some.map(({ path, to }) => `${path},1,${stageLetters[to]}`)].join('\n'));
  const bad = changes.filter((change) => changeOf(change) === undefined);
  await expect(importChanges(bad)).rejects.toMatchObject({
    faults: bad.map(
      ({ from, to }, n) =>
        `line ${n + 2}: the stage of a file cannot change from ${stageLetters[from]} to ${stageLetters[to]}`,
    ),
  });
  const good = changes.filter((change) => changeOf(change) !== undefined);
  const updated = good.filter((change) => changeOf(change) !== change.from).length;
  expect(await importChanges(good)).toMatchObject({ added: 0, updated });
  const stored = await readStored('/stage/');
  for (const change of changes) {
    const { path, from } = change;
    const stage = changeOf(change) ?? from;
    expect(stored.find((file) => file.path === path)).toMatchObject({ path, stage });
    const { rows: events } = await app.ctx.db.pool.query(
      `SELECT e.from_stage AS "from", e.to_stage AS "to" FROM event e JOIN tape_file f ON f.id = e.file_id
       WHERE f.path = $1 ORDER BY e.id`,
      [path],
    );
    // UNVERIFIED to ONTAPE takes two moves
    const steps = from === 'UNVERIFIED' && stage === 'ONTAPE' ? [from, 'ONDISK', stage] : [from, stage];
    const moves = steps.slice(1).map((to, n) => ({ from: steps[n], to }));
    expect([path, events]).toEqual([path, stage === from ? [] : moves]);
  }
});

test('the size of a file in the restore area cannot change, that of one on tape can', async () => {
  await addFiles(app.ctx, [
    { path: '/size/a', size: 1n, stage: 'RESTORED' },
    { path: '/size/t', size: 1n, stage: 'ONTAPE' },
  ]);
  await app.ctx.db.pool.query(`WITH disk AS (INSERT INTO restore_disk (mountpoint, size) VALUES ('/size', 9) RETURNING id)
    UPDATE tape_file SET disk_id = disk.id FROM disk WHERE path = '/size/a'`);
  expect(await importText('path,size\n/size/t,2')).toMatchObject({ added: 0, updated: 1 });
  await expect(importText('path,size\n/size/t,3\n/size/a,2')).rejects.toThrow(
    'nothing was imported:\n  line 3: the size cannot change from 1 to 2 bytes while the file is in the restore area',
  );
  expect((await readStored('/size')).map((row) => row.size)).toEqual([1n, 2n]);
});

test('concurrent imports of the same new files all succeed', async () => {
  const rows = Array.from({ length: 200 }, (_, n) => `/race/${n},${n}`);
  const texts = [rows, rows.toReversed(), rows, rows.toReversed()].map((list) => ['path,size', ...list].join('\n'));
  const results = await Promise.all(texts.map(importText));
  const sum = (name: 'added' | 'updated') => results.reduce((total, result) => total + result[name], 0);
  expect([sum('added'), sum('updated')]).toEqual([200, 0]);
  expect(await readStored('/race')).toHaveLength(200);
});

test('the command reports what it did, also as JSON, and accepts a file with only a header', async () => {
  const first = await runCli(['import', '-', '--json'], { env, stdin: 'path,size\n/said/a,1\n/said/b,1\n' });
  const second = await runCli(['import', '-'], { env, stdin: 'path,size\n/said/b,2\n/said/c,1\n' });
  const third = await runCli(['import', '-'], { env, stdin: 'path,size\n' });
  expect(first).toEqual(done('{"added":2,"updated":0,"addedWithoutStage":2,"addedWithoutCopy":0}\n'));
  expect(second).toEqual(
    done(
      '1 file added, 1 updated\n1 new file without a stage in the list: added in stage U (on disk at the primary path)\n',
    ),
  );
  expect(third).toEqual(done('0 files added, 0 updated\n'));
});

test('--progress reports what was read, and how long the import takes', async () => {
  const file = path.join(app.dataDir, 'progress.csv');
  writeFileSync(file, 'path,size\n/progress/1,1\n/progress/2,2\n');
  const { stdout, stderr } = await runCli(['import', '--progress', '--json', file], { env });
  expect(JSON.parse(stdout)).toMatchObject({ added: 2, updated: 0 });
  expect(stderr.split('\n')).toEqual([
    expect.stringMatching(/^38 bytes of 38 bytes read, /),
    expect.stringMatching(/^importing, /),
    '',
  ]);
});

/** Returns the number of rows of every table, and all rows of the catalogue. */
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

const outcomeOf = (input: string | Uint8Array) =>
  importText(input).then(
    ({ added }) => `${added} added`,
    (error: Error) => error.message,
  );
const importPaths = (...paths: string[]) => outcomeOf(['path,size', ...paths.map((file) => `${file},1`)].join('\n'));
const refusalOfNames = (...faults: string[]) =>
  `${refusal(...faults)}\nuse --skip-invalid to skip rows with names that cannot be restored`;
const refusal = (...faults: string[]) => ['nothing was imported:', ...faults.map((fault) => `  ${fault}`)].join('\n');

const good = Array.from({ length: 3000 }, (_, n) => `/good/${n},${n},T`);
const badSize = (line: number) => `line ${line}: size must be a whole number of bytes, not "x"`;
const faults = Array.from({ length: 21 }, (_, n) => `/bad/${n},x`);

test.each<[string, string | Uint8Array, string | RegExp]>([
  ['a bad row', ['path,size,stage', ...good, '/bad,x,T', ...good].join('\n'), refusal(badSize(3002))],
  [
    'a file that cannot move so',
    'path,size,stage\n/there/already,1,U',
    refusal('line 2: the stage of a file cannot change from T to U'),
  ],
  [
    'a path that occurs twice',
    'path,size\n/twice,1\n/once,1\n/twice,1\n/thrice,1\n/thrice,2\n/thrice,3',
    refusal('lines 2 and 4 contain the same path: "/twice"', 'lines 5 and 6 and 7 contain the same path: "/thrice"'),
  ],
  ['twenty bad rows', ['path,size', ...faults.slice(1), '/good,1'].join('\n'), /line 21: size must be .*"x"$/],
  [
    'more bad rows',
    ['path,size', ...faults, '/good,1'].join('\n'),
    /line 21: .*\n {2}… \(only the first 20 errors are listed\)$/,
  ],
])('an import with %s is refused and stores nothing', async (_what, input, message) => {
  const before = await readAll();
  const expected = typeof message === 'string' ? message : expect.stringMatching(message);
  expect(await outcomeOf(input)).toEqual(expected);
  expect(await readAll()).toEqual(before);
});

test('the command ends with 1, and no control character of the file reaches the terminal', async () => {
  const before = await readAll();
  const file = path.join(app.dataDir, 'bad.csv');
  writeFileSync(file, 'path,size\n/a\u001b]0;x\u0007,1\n/b\u009b31m,x\nc\u009b,1\n');
  expect(await runCli(['import', file], { env })).toEqual(
    refused(1, refusalOfNames(badSize(3), 'line 4: path does not begin with "/": "c\uFFFD"')),
  );
  expect(await readAll()).toEqual(before);
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
    refusalOfNames('lines 2 and 4: "/one/p" cannot be a file and also the directory of "/one/p/q/r"'),
  );
});

test('a path below or above a file of the catalogue is refused; one with the same beginning is not', async () => {
  expect(await importPaths('/two/p', '/two/d/e/f')).toBe('2 added');
  expect(await importPaths('/two/new', '/two/p/q', '/two/d')).toBe(
    refusalOfNames(
      'line 3: "/two/p" cannot be a file and also the directory of "/two/p/q"',
      'line 4: "/two/d" cannot be a file and also the directory of "/two/d/e/f"',
    ),
  );
  expect(await importPaths('/two/p-q', '/two/p.q', '/two/p0', '/two/d/e/f0', '/two/D')).toBe('5 added');
});

test('of two concurrent imports of a file and of one below it, one is refused', async () => {
  for (let n = 0; n < 5; n++) {
    const results = await Promise.all([importPaths(`/both/${n}`), importPaths(`/both/${n}/inner`)]);
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
  expect(stderr).toContain(`${dir}/a.nc: "/arc/a.nc" cannot be a file and also the directory of "/arc/a.nc/deep"`);
  expect(stderr).toContain(`${dir}/sub/c.nc: "/arc/sub" cannot be a file and also the directory of "/arc/sub/c.nc"`);
  const { rows } = await app.ctx.db.pool.query(
    `SELECT f.path, v.used::int AS bytes FROM tape_file f JOIN volume v ON v.id = f.volume_id WHERE starts_with(path, '/arc/')`,
  );
  expect(rows).toEqual([{ path: '/arc/b.nc', bytes: 4 }]);
});
