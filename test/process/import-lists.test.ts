/** `import` of lists that other systems have made, on the database's host and by the way of a gateway, which come to the same. */
import { createHash } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.js';
import { send } from '../support/http.js';
import { cleanUp, makeDataDir, type Result, runCli } from '../support/process.js';
import { waitFor } from '../support/wait.js';

let app: TestApp;
let dir: string;
const ways = ['here', 'afar'] as const;

beforeAll(async () => {
  app = await startApp();
});
beforeEach(async () => {
  dir = makeDataDir();
  await app.ctx.db.pool.query('TRUNCATE tape_file CASCADE');
});
afterAll(async () => {
  await cleanUp();
  await app.close();
});

async function runImport(way: (typeof ways)[number], args: string[], stdin?: string | Uint8Array): Promise<Result> {
  const env = {
    here: { DATABASE_URL: app.databaseUrl, DATA_DIR: app.dataDir, HOME: dir },
    afar: { TAPEGATE_URL: app.url, TAPEGATE_TOKEN: app.token, DATA_DIR: path.join(dir, 'none'), HOME: dir },
  };
  await waitFor('the gateway to drop an import that broke off', async () => {
    const { status } = await send(app, '/import', {
      method: 'PUT',
      body: 'path,size\n',
      headers: { Authorization: `Bearer ${app.token}` },
    });
    return status !== 503;
  });
  return await runCli(['import', ...args], { env: env[way], ...(stdin === undefined ? {} : { stdin }) });
}

async function readCatalogue(): Promise<object[]> {
  const { rows } = await app.ctx.db.pool.query(
    `SELECT f.path, f.size::text, f.stage, v.name AS volume, f.spot_name AS spot, f.mode, f.mtime::text, f.checksum
     FROM tape_file f LEFT JOIN volume v ON v.id = f.volume_id ORDER BY f.path`,
  );
  return rows;
}

function write(name: string, content: string | Uint8Array): string {
  const file = path.join(dir, name);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, content);
  return file;
}

const entry = (name: string, size = 1000) =>
  `-rw-r----- 1 ada climate ${size} 2024-02-29 23:30:01.500000000 +0100 ${name}\n`;
const row = { size: '1000', stage: 'ONTAPE', volume: 'HSM', spot: null, checksum: null };

test.each(ways)('a list of ls is taken over %s, gzipped or not, from a file or from standard input', async (way) => {
  const list = `"/hpss/a":\ntotal 8\ndrwxr-xr-x 2 ada climate 4096 2024-02-29 23:30:01.500000000 +0100 "b"\n${entry('"x\\ny"')}\n"/hpss/a/b":\ntotal 4\n${entry('"z"')}`;
  const options = ['--volume', 'HSM', '--strip', '/hpss', '--prefix', '/badc', '--spot', 'old'];
  const inputs: [string, Uint8Array | undefined][] = [
    [write('list', list), undefined],
    [write('list.gz', gzipSync(list)), undefined],
    ['-', gzipSync(list)],
  ];
  for (const [n, [file, stdin]] of inputs.entries()) {
    const done = n === 0 ? '2 files added, 0 updated' : '0 files added, 0 updated';
    expect(await runImport(way, [file, ...options], stdin)).toEqual({
      code: 0,
      stdout: `${done}\nleft out: 1 folders\n`,
      stderr: '',
    });
  }
  const known = { ...row, spot: 'old', mode: 0o640, mtime: '2024-02-29 22:30:01.5' };
  expect(await readCatalogue()).toEqual([
    { ...known, path: '/badc/a/b/z' },
    { ...known, path: '/badc/a/x\ny' },
  ]);
});

test.each(ways)('faults of a list are told with its own lines, %s, and nothing is taken', async (way) => {
  const bad = write('bad', `1 1 /a\nnonsense\n2 2 /c\n3 3 /d/../e\n`);
  expect(await runImport(way, [bad, '--volume', 'HSM'])).toEqual({
    code: 1,
    stdout: '',
    stderr: `tapegate: nothing was imported:
  line 2: "nonsense" is not what find -printf '%s %T@ %p\\n' prints
  line 4: path has the part "..": "/d/../e"
`,
  });
  const twice = write('twice', `/a:\n${entry('x')}\n/b:\n${entry('y')}\n/a:\n${entry('x')}`);
  expect(await runImport(way, [twice, '--volume', 'HSM'])).toMatchObject({
    code: 1,
    stderr: 'tapegate: nothing was imported:\n  lines 2 and 8: the same path "/a/x"\n',
  });
  expect(await readCatalogue()).toEqual([]);
});

const SCHEMA =
  'Bucket, Key, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag, StorageClass, IsMultipartUploaded, EncryptionStatus';
const object = (key: string, more = '') =>
  `"raw","${key}","true","false","1000","2024-02-29T22:30:01.500Z","${'ab'.repeat(16)}","${more || 'GLACIER'}","false","SSE-S3"\n`;

/** Puts an inventory where `aws s3 sync` puts it. @returns its manifest */
function writeInventory(
  parts: string[],
  change: (file: { key: string; size: number; MD5checksum: string }) => object = (file) => file,
): string {
  const files = parts.map((text, n) => {
    const bytes = gzipSync(text);
    const key = `to/raw/daily/data/part-${n}.csv.gz`;
    write(`copy/${key}`, bytes);
    return change({ key, size: bytes.length, MD5checksum: createHash('md5').update(bytes).digest('hex') });
  });
  const manifest = {
    sourceBucket: 'raw',
    destinationBucket: 'arn:aws:s3:::to',
    fileFormat: 'CSV',
    fileSchema: SCHEMA,
    files,
  };
  return write('copy/to/raw/daily/2024-03-01T01-00Z/manifest.json', JSON.stringify(manifest, null, 2));
}

const partOf = (n: number) => path.join(dir, `copy/to/raw/daily/data/part-${n}.csv.gz`);

test.each(ways)('an inventory of S3 is taken over %s, with all files of its manifest', async (way) => {
  const manifest = writeInventory([object('a') + object('b+c', 'STANDARD'), object('d%2Be')]);
  const result = await runImport(way, [
    manifest,
    '--volume',
    'raw',
    '--storage-class',
    'GLACIER, DEEP_ARCHIVE',
    '--json',
  ]);
  expect(result).toMatchObject({ code: 0, stderr: '' });
  expect(JSON.parse(result.stdout)).toMatchObject({
    added: 2,
    updated: 0,
    addedWithoutStage: 0,
    skipped: { 'objects of other storage classes': 1 },
  });
  const known = {
    ...row,
    volume: 'raw',
    mode: null,
    mtime: '2024-02-29 22:30:01.5',
    checksum: `md5:${'ab'.repeat(16)}`,
  };
  expect(await readCatalogue()).toEqual([
    { ...known, path: '/a' },
    { ...known, path: '/d+e' },
  ]);
});

test.each(ways)('faults of an inventory are told with the file that has them, %s', async (way) => {
  const same = writeInventory([object('a') + object('b'), object('c') + object('a')]);
  expect(await runImport(way, [same, '--volume', 'raw'])).toMatchObject({
    code: 1,
    stderr: `tapegate: nothing was imported:\n  ${partOf(0)} line 1 and ${partOf(1)} line 2: the same path "/a"\n`,
  });
  const bad = writeInventory([object('a'), object('b') + object('%zz')]);
  expect(await runImport(way, [bad, '--volume', 'raw'])).toMatchObject({
    code: 1,
    stderr: `tapegate: nothing was imported:\n  ${partOf(1)} line 2: the key "%zz" is not URL-encoded UTF-8\n`,
  });
  const damaged = writeInventory([object('a'), object('b')], (file) => ({ ...file, MD5checksum: '0'.repeat(32) }));
  const { code, stderr } = await runImport(way, [damaged, '--volume', 'raw']);
  expect(code).toBe(1);
  expect(stderr).toMatch(
    /part-0\.csv\.gz has the MD5 [0-9a-f]{32}, and the manifest says 0{32}: it is damaged, or another one\n$/,
  );
  const short = writeInventory([object('a')], (file) => ({ ...file, size: 1 }));
  expect((await runImport(way, [short, '--volume', 'raw'])).stderr).toMatch(
    /part-0\.csv\.gz has \d+ bytes, and .*manifest\.json says 1\n$/,
  );
  const away = writeInventory([object('a')], (file) => ({ ...file, key: 'to/raw/daily/data/away.csv.gz' }));
  expect((await runImport(way, [away, '--volume', 'raw'])).stderr).toMatch(
    /^tapegate: to\/raw\/daily\/data\/away\.csv\.gz of .* is not here: /,
  );
  expect(await readCatalogue()).toEqual([]);
});

const find = '1000 1709245801.5 ./a\n';

test.each<[string, string, string[], string]>([
  [
    'a list without a volume',
    find,
    [],
    '--volume is missing: a list of the format ls does not say which volume has the files',
  ],
  [
    'a format that there is not',
    find,
    ['--format', 'tar'],
    '--format must be one of csv, jsonl, ls, s3-inventory, not "tar"',
  ],
  ['a list as rows', find, ['--format', 'csv'], '--format says csv, and standard input is ls'],
  ['rows as a list', 'path,size\n', ['--format', 'ls'], '--format says ls, and standard input is csv'],
  [
    'rows with a volume for all',
    'path,size\n',
    ['--volume', 'V'],
    '--volume is for lists of other systems (ls, s3-inventory): rows of csv say it themselves',
  ],
  [
    'a folder that does not begin',
    find,
    ['--volume', 'V', '--prefix', 'a'],
    '--prefix must begin with "/", not be "a"',
  ],
  [
    'storage classes of no inventory',
    find,
    ['--volume', 'V', '--storage-class', 'GLACIER'],
    '--storage-class is for s3-inventory, and the list is ls',
  ],
])('%s is refused as wrong usage', async (_what, stdin, args, problem) => {
  expect(await runImport('here', ['-', ...args], stdin)).toEqual({
    code: 2,
    stdout: '',
    stderr: `tapegate: ${problem}\n`,
  });
});

test('an inventory from standard input is refused, and a manifest that is none', async () => {
  const manifest = '{"sourceBucket": "raw", "fileFormat": "ORC"}';
  expect(await runImport('here', ['-', '--volume', 'raw'], manifest)).toMatchObject({
    code: 1,
    stderr: 'tapegate: an inventory of S3 is given as its manifest.json, beside which its files are\n',
  });
  const file = write('manifest.json', manifest);
  expect(await runImport('here', [file, '--volume', 'raw'])).toMatchObject({
    code: 1,
    stderr: `tapegate: ${file} is no manifest of an S3 inventory in CSV: fileFormat must be "CSV", not "ORC"\n`,
  });
});

test.each(ways)('a list that was taken over once may come again, %s, and what it says no more stays', async (way) => {
  expect(await runImport(way, ['-', '--volume', 'HSM'], '1 1 ./a\n2 2 ./b\n')).toMatchObject({ code: 0 });
  expect(await runImport(way, ['-', '--volume', 'HSM'], '1 1 ./a\n3 2 ./b\n4 4 ./c\n')).toMatchObject({
    stdout: '1 file added, 1 updated\n',
  });
  expect(await readCatalogue()).toMatchObject([
    { path: '/a', size: '1' },
    { path: '/b', size: '3' },
    { path: '/c', size: '4' },
  ]);
});
