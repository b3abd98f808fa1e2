import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { importRows } from '../../src/operations/catalogue/import.js';
import { readRows } from '../../src/operations/catalogue/import-rows.js';
import { startApp, type TestApp } from '../support/app.js';
import { addFiles, addQuota } from '../support/factories.js';
import { cleanUp, runCli, startCli } from '../support/process.js';

let app: TestApp;
let env: Record<string, string>;
let before: Record<string, string>;

beforeAll(async () => {
  app = await startApp();
  env = { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir };
  await addFiles(app.ctx, [{ path: '/there/already', stage: 'ONTAPE' }]);
  await addQuota(app.ctx, 'ann', 1n);
});
beforeEach(async () => {
  before = await countAll();
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

/** The number of rows of every table, and the catalogue itself. */
async function countAll(): Promise<Record<string, string>> {
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

/** What an import is refused with, after nothing of it was stored. */
async function refuse(input: string | Uint8Array): Promise<string> {
  const result = importRows(app.ctx, readRows(Readable.from([Buffer.from(input)])));
  const message = await result.then(
    () => 'it was accepted',
    (error: Error) => error.message,
  );
  expect(await countAll()).toEqual(before);
  return message;
}

const GOOD = 1500;
const csvLine = (n: number) => `/good/${n},${n},T,2026-01-02,spot,V1,${n},`;
const jsonLine = (n: number) => JSON.stringify({ path: `/good/${n}`, size: n, stage: 'T' });
const HEADER = 'path,size,stage,verified,spot_name,volume,position,checksum';

/** A row between some thousand good ones; the line it begins on comes with it. */
function between(row: string, format: 'csv' | 'json' = 'csv'): { text: string; line: number } {
  const good = Array.from({ length: 2 * GOOD }, (_, n) => (format === 'csv' ? csvLine(n) : jsonLine(n)));
  const above = format === 'csv' ? [HEADER, ...good.slice(0, GOOD)] : good.slice(0, GOOD);
  return { text: [...above, row, ...good.slice(GOOD)].join('\n'), line: above.length + 1 };
}

const time = 'verified must be a UTC date-time YYYY-MM-DDTHH:MM:SS[.ffffff] without a zone, not';
const sum = 'checksum must be sha256:…, adler32:… or md5:… in hex, not';
const long = 'é'.repeat(128);
const deep = `/${'d'.repeat(200)}`.repeat(11);

test.each([
  [',1,T,,,,,', 'path must be given, not ""'],
  ['a/b,1,T,,,,,', 'path does not begin with "/": "a/b"'],
  ['/a//b,1,T,,,,,', 'path has the part "": "/a//b"'],
  ['/a/../b,1,T,,,,,', 'path has the part "..": "/a/../b"'],
  ['/a/.,1,T,,,,,', 'path has the part ".": "/a/."'],
  ['/a/,1,T,,,,,', 'path has the part "": "/a/"'],
  ['/a\0b,1,T,,,,,', 'path is taken by no disk: "/a\\u0000b"'],
  [
    `/${long},1,T,,,,,`,
    `path has a part longer than 255 bytes: ${JSON.stringify(`/${long}`).slice(0, 100)}…" (129 characters)`,
  ],
  [`${deep},1,T,,,,,`, `path is longer than 2048 bytes: "${deep.slice(0, 99)}…" (2211 characters)`],
  ['/a,,T,,,,,', 'size must be a whole number of bytes, not ""'],
  ['/a,-1,T,,,,,', 'size must be a whole number of bytes, not "-1"'],
  ['/a,1.5,T,,,,,', 'size must be a whole number of bytes, not "1.5"'],
  ['/a,1e3,T,,,,,', 'size must be a whole number of bytes, not "1e3"'],
  ['/a,0x10,T,,,,,', 'size must be a whole number of bytes, not "0x10"'],
  ['/a, 1,T,,,,,', 'size must be a whole number of bytes, not " 1"'],
  ['/a,9223372036854775808,T,,,,,', 'size must be a whole number of bytes, not "9223372036854775808"'],
  ['/a,1,X,,,,,', 'stage must be one of the letters U, D, T, A, R, not "X"'],
  ['/a,1,TT,,,,,', 'stage must be one of the letters U, D, T, A, R, not "TT"'],
  ['/a,1,T,2026-02-30,,,,', `${time} "2026-02-30"`],
  ['/a,1,T,2026-01-02T03:04:05Z,,,,', `${time} "2026-01-02T03:04:05Z"`],
  ['/a,1,T,2026-01-02T03:04:05.1234567,,,,', `${time} "2026-01-02T03:04:05.1234567"`],
  ['/a,1,T,2026-01-02 03:04:05,,,,', `${time} "2026-01-02 03:04:05"`],
  ['/a,1,T,,"a\nb",,,', 'spot_name must be a name of at most 255 characters, not "a\\nb"'],
  [
    `/a,1,T,,,${'v'.repeat(256)},,`,
    `volume must be a name of at most 255 characters, not "${'v'.repeat(99)}…" (256 characters)`,
  ],
  ['/a,1,T,,,V1,-1,', 'position must be a whole number, not "-1"'],
  ['/a,1,T,,,V1,first,', 'position must be a whole number, not "first"'],
  ['/a,1,T,,,,,0a0b0c0d', `${sum} "0a0b0c0d"`],
  ['/a,1,T,,,,,md5:0a', `${sum} "md5:0a"`],
  ['/a,1,T,,,,,crc32:0a0b0c0d', `${sum} "crc32:0a0b0c0d"`],
  ['/a,1', 'there must be 8 fields, as in the first line, not 2'],
  ['/a,1,T,,,,,,', 'there must be 8 fields, as in the first line, not 9'],
  ['/a"b,1,T,,,,,', 'a field that holds a quote must be quoted, with the quote written twice'],
  ['"/a"b,1,T,,,,,', 'a quoted field is followed by "b" and not by a comma'],
  ['/there/already,1,U,,,,,', 'a file cannot move from T to U'],
])('a row %j in the middle of a CSV file is refused by its line', async (row, problem) => {
  const { text, line } = between(row);
  expect(await refuse(text)).toBe(`nothing was imported:\n  line ${line}: ${problem}`);
});

const names =
  'the columns are path,size,stage,verified,spot_name,volume,library,position,checksum,copy_volume,copy_position,mode,mtime,uid,gid';

test.each([
  ['{"path":"/a","size":1', /not JSON: .+/],
  ['/a,1', /not JSON: .+/],
  ['["/a",1]', 'must be a JSON object, not "[\\"/a\\",1]"'],
  ['null', 'must be a JSON object, not "null"'],
  ['7', 'must be a JSON object, not "7"'],
  ['{"size":1}', 'path must be given, not ""'],
  ['{"path":null,"size":1}', 'path must be given, not ""'],
  ['{"path":"/a"}', 'size must be a whole number of bytes, not ""'],
  ['{"path":"/a","size":1.5}', 'size must be a whole number of bytes, not "1.5"'],
  ['{"path":"/a","size":1e300}', 'size must be a whole number of bytes, not "1e+300"'],
  ['{"path":"/a","size":-1}', 'size must be a whole number of bytes, not "-1"'],
  ['{"path":"/a","size":true}', 'size must be text or a number, not "true"'],
  ['{"path":["/a"],"size":1}', 'path must be text or a number, not "[\\"/a\\"]"'],
  ['{"path":"/a","size":1,"Stage":"T"}', `there is no column "Stage"; ${names}`],
  ['{"path":"/\\ud800","size":1}', 'path is taken by no disk: "/\\ud800"'],
  ['{"path":"/a","size":1,"spot_name":"\\ud800"}', 'spot_name must be a name of at most 255 characters, not "\\ud800"'],
])('a row %j in the middle of JSON Lines is refused by its line', async (row, problem) => {
  const { text, line } = between(row, 'json');
  const message = await refuse(text);
  const head = `nothing was imported:\n  line ${line}: `;
  expect(message.slice(0, head.length)).toBe(head);
  if (typeof problem === 'string') expect(message.slice(head.length)).toBe(problem);
  else expect(message.slice(head.length)).toMatch(problem);
});

test('the line is the physical one on which the row begins, whatever stands above it', async () => {
  const lines = ['path,size', '"/a\r\nb\nc",1', '', '', '"/d\n', '",2', '"/e\r\n\r\n",x', '/f,y'];
  expect(await refuse(`\uFEFF${lines.join('\r\n')}`)).toBe(
    `nothing was imported:
  line 10: size must be a whole number of bytes, not "x"
  line 13: size must be a whole number of bytes, not "y"`,
  );
});

test('a quote that is never closed is told by the line on which its row begins', async () => {
  const { text, line } = between('"/never closed,1,T,,,,,');
  expect(await refuse(text)).toBe(
    `nothing was imported:\n  line ${line}: a quoted field that begins in this row is not closed`,
  );
});

test('twenty faults are listed, and that there are more is said when there are', async () => {
  const faults = Array.from({ length: 21 }, (_, n) => `/bad/${n},x`);
  const listed = (count: number) =>
    Array.from({ length: count }, (_, n) => `  line ${n + 2}: size must be a whole number of bytes, not "x"`);
  const twenty = await refuse(['path,size', ...faults.slice(1), '/good,1'].join('\n'));
  const more = await refuse(['path,size', ...faults, '/good,1'].join('\n'));
  expect(twenty.split('\n')).toEqual(['nothing was imported:', ...listed(20)]);
  expect(more.split('\n')).toEqual(['nothing was imported:', ...listed(20), '  … (only the first 20 are listed)']);
});

test('a path that stands twice is told with its lines', async () => {
  const rows = ['/twice,1', '/once,1', '/twice,1', '/thrice,1', '/thrice,2', '/thrice,3'];
  expect(await refuse(['path,size', ...rows].join('\n'))).toBe(
    'nothing was imported:\n  lines 2 and 4: the same path "/twice"\n  lines 5 and 6 and 7: the same path "/thrice"',
  );
});

test.each(['csv', 'json'] as const)('bytes that are not UTF-8 are refused by their line (%s)', async (format) => {
  const row = format === 'csv' ? '/latin/\u0001,1,T,,,,,' : '{"path":"/latin/\u0001","size":1}';
  const { text, line } = between(row, format);
  const bytes = Buffer.from(text);
  bytes[bytes.indexOf(1)] = 0xe9; // é of Latin-1
  expect(await refuse(bytes)).toBe(`nothing was imported:\n  line ${line}: is not valid UTF-8`);
});

test('a character that is cut off at the end of the file is refused', async () => {
  const bytes = Buffer.from('path,size,spot_name\n/a,1,é');
  expect(await refuse(bytes.subarray(0, -1))).toBe('nothing was imported:\n  line 2: is not valid UTF-8');
});

test('gzipped data that break off are refused, though every row before was good', async () => {
  const zipped = gzipSync(between(csvLine(9_999_999)).text);
  const message = await refuse(zipped.subarray(0, -20));
  expect(message).toMatch(
    /^nothing was imported:\n {2}line \d+: the gzipped data are damaged here: unexpected end of file$/,
  );
});

test('gzipped data with a wrong checksum are refused', async () => {
  const zipped = gzipSync('path,size\n/a,1\n');
  zipped.writeUInt32LE(zipped.readUInt32LE(zipped.length - 8) ^ 1, zipped.length - 8);
  expect(await refuse(zipped)).toMatch(
    /^nothing was imported:\n {2}line \d+: the gzipped data are damaged here: incorrect data check$/,
  );
});

test('a file without line ends does not fill the memory', async () => {
  const endless = function* () {
    const chunk = Buffer.alloc(64 * 1024, 'x');
    for (;;) yield chunk;
  };
  await expect(importRows(app.ctx, readRows(Readable.from(endless())))).rejects.toThrow(
    'nothing was imported:\n  line 1: longer than 1048576 bytes',
  );
  expect(await countAll()).toEqual(before);
});

const empty = `line 1: the file is empty; the first line names the columns: ${HEADER.replace('volume', 'volume,library')},copy_volume,copy_position,mode,mtime,uid,gid`;

test.each([
  ['', empty],
  ['\n\r\n \n', empty],
  ['\uFEFF', empty],
  ['path,size,colour\n/a,1,red', `line 1: there is no column "colour"; ${names}`],
  ['Path,size\n/a,1', `line 1: there is no column "Path"; ${names}`],
  ['/a,1\n/b,2', `line 1: there is no column "/a"; ${names}`],
  ['\n\nsize,stage\n1,T', 'line 3: the column path is missing'],
  ['path,stage\n/a,T', 'line 1: the column size is missing'],
  ['path,size,path\n/a,1,/b', 'line 1: the column path is given twice'],
  ['path,"size\n/a,1', 'line 1: a quoted field that begins in this row is not closed'],
])('a file %j is refused', async (text, problem) => {
  expect(await refuse(text)).toBe(`nothing was imported:\n  ${problem}`);
  expect(await refuse(gzipSync(text))).toBe(`nothing was imported:\n  ${problem}`);
});

test('the command ends with 1 and tells the faults, and control characters of the file do not reach the terminal', async () => {
  const file = path.join(app.dataDir, 'bad.csv');
  writeFileSync(file, 'path,size\n/a\u001b]0;x\u0007,1\n/b\u009b31m,x\nc\u009b,1\n');
  const result = await runCli(['import', file], { env });
  expect(result).toEqual({
    code: 1,
    stdout: '',
    stderr: `tapegate: nothing was imported:
  line 3: size must be a whole number of bytes, not "x"
  line 4: path does not begin with "/": "c\uFFFD"
`,
  });
  expect(await countAll()).toEqual(before);
});

test('the command does not wait for the rest of a file that is refused', async () => {
  const running = startCli(['import', '-'], { env, stdin: null });
  running.child.stdin?.write('path,size\n'.padEnd(10) + '/a,x\n'.repeat(30));
  expect(await running.ended).toMatchObject({ code: 1, stdout: '' });
});

test('a file that is not there, and a folder, are told in one line', async () => {
  const missing = path.join(app.dataDir, 'missing.csv');
  expect(await runCli(['import', missing], { env })).toEqual({
    code: 1,
    stdout: '',
    stderr: `tapegate: ENOENT: no such file or directory, open '${missing}'\n`,
  });
  expect(await runCli(['import', app.dataDir], { env })).toEqual({
    code: 1,
    stdout: '',
    stderr: 'tapegate: EISDIR: illegal operation on a directory, read\n',
  });
});

test('a server that goes away in the middle fails the import in one line', async () => {
  const running = startCli(['import', '-'], { env: { ...env, LOG_LEVEL: 'silent' }, stdin: null });
  running.child.stdin?.write('path,size\n/half,1\n');
  const { pool } = app.ctx.db;
  for (let ended = 0; ended === 0; ) {
    const { rows } = await pool.query(
      `SELECT count(pg_terminate_backend(pid))::int AS n FROM pg_stat_activity
       WHERE datname = current_database() AND query LIKE 'COPY incoming%' AND state = 'active'`,
    );
    ended = rows[0]?.n;
  }
  running.child.stdin?.end();
  expect(await running.ended).toEqual({
    code: 4,
    stdout: '',
    stderr: 'tapegate: the database does not answer: try again later\n',
  });
  expect(await countAll()).toEqual(before);
});
