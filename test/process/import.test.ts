import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { importRows } from '../../src/operations/catalogue/import.js';
import type { ImportResult } from '../../src/operations/catalogue/import-incoming.js';
import { readRows } from '../../src/operations/catalogue/import-rows.js';
import { type Stage, stageLetters, stages } from '../../src/stages.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles } from '../support/factories.js';
import { cleanUp, runCli } from '../support/process.js';

let app: TestApp;
let env: Record<string, string>;

beforeAll(async () => {
  app = await startApp();
  env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

const importText = (text: string): Promise<ImportResult> =>
  importRows(app.ctx, readRows(Readable.from([Buffer.from(text)])));

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

/** The files whose path begins with a text. */
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

const columns = ['path', 'size', 'stage', 'verified', 'spot_name', 'volume', 'position', 'checksum'];

/** The same rows as CSV with a mark of UTF-8 and CRLF, and as JSON Lines, with blank lines in both. */
function makeSamples(top: string): { csv: string; jsonl: string; stored: object[] } {
  const [one, two, three] = [`${top}/1.nc`, `${top}/2 comma, "quote" and\r\nline\nbreak`, `${top}/3 данные ﬁ 😀\t`];
  const time = '2026-01-02T03:04:05.000006';
  const rows = [
    [one, 10, 'T', time, 'spot-1', 'V1', 7, SHA],
    [two, 11, 'd', '2026-01-02', 'a, b', '', '', 'ADLER32:0A0B0C0D'],
    [three, 0, '', '', '', '', '', ''],
  ];
  const field = (value: string | number | undefined) => {
    const text = String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const objects = rows.map((row) => Object.fromEntries(columns.map((name, index) => [name, row[index]])));
  return {
    csv: `\uFEFF${[columns, ...rows].map((row) => row.map(field).join(',')).join('\r\n\r\n')}\r\n`,
    jsonl: `\uFEFF\n${objects.map((object) => JSON.stringify(object)).join('\n\n')}`,
    stored: [
      { ...objects[0], size: 10n, stage: 'ONTAPE', position: 7n },
      {
        ...bare,
        path: two,
        size: 11n,
        stage: 'ONDISK',
        verified: '2026-01-02T00:00:00',
        spot_name: 'a, b',
        checksum: 'adler32:0a0b0c0d',
      },
      { ...bare, path: three, size: 0n },
    ],
  };
}

test.each([
  { format: 'csv', zip: false, from: 'file' },
  { format: 'csv', zip: true, from: 'stdin' },
  { format: 'jsonl', zip: true, from: 'file' },
  { format: 'jsonl', zip: false, from: 'stdin' },
] as const)('$format from $from, gzipped: $zip, is stored to the letter', async ({ format, zip, from }) => {
  const top = `/${format}-${zip}-${from}`;
  const sample = makeSamples(top);
  const bytes = zip ? gzipSync(sample[format]) : Buffer.from(sample[format]);
  const file = path.join(app.dataDir, `${top.slice(1)}.data`);
  writeFileSync(file, bytes);
  const result =
    from === 'file' ? await runCli(['import', file], { env }) : await runCli(['import', '-'], { env, stdin: bytes });
  expect(result).toEqual({
    code: 0,
    stdout:
      '3 files added, 0 updated\n1 new file without a stage is U: on disk at its primary place, and not recalled\n',
    stderr: '',
  });
  expect(await readStored(top)).toEqual(sample.stored);
});

test('the bytes may come one by one', async () => {
  const sample = makeSamples('/bytewise');
  const bytes = gzipSync(sample.csv);
  const one = Readable.from(Array.from(bytes, (_, index) => bytes.subarray(index, index + 1)));
  expect(await importRows(app.ctx, readRows(one))).toMatchObject({ added: 3, updated: 0 });
  expect(await readStored('/bytewise')).toEqual(sample.stored);
});

test('several gzip streams, one after the other, are one file', async () => {
  const bytes = Buffer.concat([gzipSync('path,size\n/members/1,1\n'), gzipSync('/members/2,2\n')]);
  expect(await importRows(app.ctx, readRows(Readable.from([bytes])))).toMatchObject({ added: 2, updated: 0 });
});

test('columns stand in any order, and those left out are null or at their default', async () => {
  expect(await importText('size,path\n5,/short/a\n"6","/short/b"')).toMatchObject({ added: 2, updated: 0 });
  expect(await importText('{"size":"7","path":"/short/c"}')).toMatchObject({ added: 1, updated: 0 });
  expect(await readStored('/short')).toEqual([
    { ...bare, path: '/short/a', size: 5n },
    { ...bare, path: '/short/b', size: 6n },
    { ...bare, path: '/short/c', size: 7n },
  ]);
});

test('sizes and positions beyond 2^53 are exact in both formats', async () => {
  await importText('path,size,position\n/big/a,9007199254740993,9223372036854775807\n/big/b,9223372036854775807,0');
  await importText(`{"path":"/big/c","size":9007199254740993,"position":9223372036854775807}
{"path":"/big/d","size":9223372036854775807,"position":"9007199254740993"}`);
  expect((await readStored('/big')).map(({ size, position }) => [size, position])).toEqual([
    [9007199254740993n, 9223372036854775807n],
    [9223372036854775807n, 0n],
    [9007199254740993n, 9223372036854775807n],
    [9223372036854775807n, 9007199254740993n],
  ]);
});

test('times keep their microseconds', async () => {
  await importText(`path,size,verified
/time/a,1,2026-02-28T23:59:59.999999
/time/b,1,2026-02-28T23:59:59.1
/time/c,1,1969-07-20T20:17:40.000001
/time/d,1,2024-02-29`);
  expect((await readStored('/time')).map((row) => row.verified)).toEqual([
    '2026-02-28T23:59:59.999999',
    '2026-02-28T23:59:59.100000',
    '1969-07-20T20:17:40.000001',
    '2024-02-29T00:00:00',
  ]);
});

test('a raw line separator of Unicode in JSON ends no line', async () => {
  await importText('{"path":"/separator/\u2028\u2029\u0085","size":1}\n{"path":"/separator/z","size":1}');
  expect((await readStored('/separator')).map((row) => row.path)).toEqual([
    '/separator/z',
    '/separator/\u2028\u2029\u0085',
  ]);
});

test('line ends of both kinds may be mixed', async () => {
  expect(await importText('path,size\r\n/mixed/a,1\n/mixed/b,2\r\n\n\r\n/mixed/c,3')).toMatchObject({
    added: 3,
    updated: 0,
  });
});

test('a known file takes what the row has: an empty value is null, a column left out stays as it was', async () => {
  const all = 'path,size,stage,verified,spot_name,volume,position,checksum';
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

test('importing the same again changes nothing', async () => {
  const text = `path,size,stage,verified,volume,position\n/again/a,1,T,2026-01-02T03:04:05.000006,V1,1\n/again/b,2,U,,,`;
  expect(await importText(text)).toMatchObject({ added: 2, updated: 0 });
  const before = await readStored('/again');
  expect(await importText(text)).toMatchObject({ added: 0, updated: 0 });
  expect(await readStored('/again')).toEqual(before);
});

/**
 * What a row may ask of a file, and what comes of it; all else is refused. A file at A or R of which there is neither a recall
 * nor a copy is on tape.
 */
const legal: Record<string, Stage> = {
  'UNVERIFIED ONDISK': 'ONDISK',
  'UNVERIFIED ONTAPE': 'ONTAPE',
  'ONDISK ONTAPE': 'ONTAPE',
  'ONDISK UNVERIFIED': 'UNVERIFIED',
  'ONTAPE RESTORING': 'ONTAPE',
  'ONTAPE RESTORED': 'ONTAPE',
  'RESTORING ONTAPE': 'ONTAPE',
  'RESTORING RESTORING': 'ONTAPE',
  'RESTORING RESTORED': 'ONTAPE',
  'RESTORED ONTAPE': 'ONTAPE',
  'RESTORED RESTORING': 'ONTAPE',
  'RESTORED RESTORED': 'ONTAPE',
};
const pairs = stages.flatMap((from) => stages.map((to) => ({ from, to })));

test.each(pairs)('a row that says $to of a file at $from', async ({ from, to }) => {
  const file = `/stage/${from}-${to}`;
  await addFiles(app.ctx, [{ path: file, size: 1n, stage: from, spotName: null, volume: null, position: null }]);
  const result = await importText(`path,size,stage\n${file},1,${stageLetters[to]}`).catch(
    (error: Error) => error.message,
  );
  const [stored] = await readStored(file);
  const { rows: events } = await app.ctx.db.pool.query(
    `SELECT e.from_stage AS "from", e.to_stage AS "to" FROM event e JOIN tape_file f ON f.id = e.file_id
     WHERE f.path = $1 ORDER BY e.id`,
    [file],
  );
  const expected = legal[`${from} ${to}`] ?? (from === to ? from : undefined);
  if (expected === undefined) {
    const letters = [stageLetters[from], stageLetters[to]];
    expect(result).toBe(`nothing was imported:\n  line 2: a file cannot move from ${letters[0]} to ${letters[1]}`);
  } else expect(result).toMatchObject({ added: 0, updated: expected === from ? 0 : 1 });
  expect(stored?.stage).toBe(expected ?? from);
  // a step over ONDISK is two moves
  const steps = from === 'UNVERIFIED' && to === 'ONTAPE' ? [from, 'ONDISK', to] : [from, stored?.stage];
  const moves = steps.slice(1).map((step, index) => ({ from: steps[index], to: step }));
  expect(events).toEqual(stored?.stage === from ? [] : moves);
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

test('imports of the same new files at the same time all end well', async () => {
  const rows = Array.from({ length: 1000 }, (_, n) => `/race/${n},${n}`);
  const texts = [rows, rows.toReversed(), rows, rows.toReversed()].map((list) => ['path,size', ...list].join('\n'));
  const results = await Promise.all(texts.map(importText));
  expect(results.reduce((sum, { added }) => sum + added, 0)).toBe(1000);
  expect(results.reduce((sum, { updated }) => sum + updated, 0)).toBe(0);
  expect(await readStored('/race')).toHaveLength(1000);
});

test('many rows are imported, and then updated, in one go', async () => {
  const count = 20_000;
  const rows = function* (size: number) {
    yield 'path,size,stage,volume,position\n';
    for (let n = 0; n < count; n++) yield `/many/${n},${size},T,V${n % 100},${n}\n`;
  };
  const run = (size: number) => importRows(app.ctx, readRows(Readable.from(rows(size), { objectMode: false })));
  expect(await run(5)).toMatchObject({ added: count, updated: 0 });
  expect(await run(6)).toMatchObject({ added: 0, updated: count });
  const { rows: sums } = await app.ctx.db.pool.query(
    `SELECT count(*)::int AS files, sum(size)::int AS bytes, sum(position)::text AS positions,
       count(DISTINCT volume_id)::int AS volumes FROM tape_file WHERE starts_with(path, '/many/')`,
  );
  expect(sums).toEqual([
    { files: count, bytes: 6 * count, positions: String((count * (count - 1)) / 2), volumes: 100 },
  ]);
});

test('the command says what it did, also as JSON, and quietly takes a file with a header alone', async () => {
  const first = await runCli(['import', '-', '--json'], { env, stdin: 'path,size\n/said/a,1\n/said/b,1\n' });
  const second = await runCli(['import', '-'], { env, stdin: 'path,size\n/said/b,2\n/said/c,1\n' });
  const third = await runCli(['import', '-'], { env, stdin: 'path,size\n' });
  expect(first).toEqual({
    code: 0,
    stdout: '{"added":2,"updated":0,"addedWithoutStage":2,"knownWithoutStage":0,"addedWithoutCopy":0}\n',
    stderr: '',
  });
  expect(second).toEqual({
    code: 0,
    stdout: [
      '1 file added, 1 updated',
      '1 new file without a stage is U: on disk at its primary place, and not recalled',
      '1 known file without a stage stays at the one it had\n',
    ].join('\n'),
    stderr: '',
  });
  expect(third).toEqual({ code: 0, stdout: '0 files added, 0 updated\n', stderr: '' });
});

test('how far it is, is told where that is asked for', async () => {
  const file = path.join(app.dataDir, 'progress.csv');
  writeFileSync(file, 'path,size\n/progress/1,1\n/progress/2,2\n');
  const { stdout, stderr } = await runCli(['import', '--progress', '--json', file], { env });
  expect(JSON.parse(stdout)).toMatchObject({ added: 2, updated: 0 });
  expect(stderr.split('\n')).toEqual([
    expect.stringMatching(/^2 rows read, 38 bytes of 38 bytes, /),
    expect.stringMatching(/^comparing the rows with what is known, /),
    expect.stringMatching(/^2 of 2 rows added, /),
    expect.stringMatching(/^settling what follows, /),
    '',
  ]);
});

test('where there is no connection to look how far it is, an import goes on without that', async () => {
  const { pool } = app.ctx.db;
  const others = await Promise.all(Array.from({ length: pool.options.max - 1 }, () => pool.connect()));
  const told: string[] = [];
  try {
    const row = Buffer.from('path,size\n/progress/alone,1\n');
    const how = { tell: ({ step }: { step: string }) => void told.push(step) };
    expect(await importRows(app.ctx, readRows(Readable.from([row])), how)).toMatchObject({ added: 1 });
  } finally {
    for (const other of others) other.release();
  }
  expect([...new Set(told)]).toEqual(['reading', 'comparing', 'adding', 'settling']);
});
