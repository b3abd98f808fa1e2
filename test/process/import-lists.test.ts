/** `import` of lists from other systems, directly on the database and through a gateway. */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { done, refused } from '../support/command-results.js';
import { send } from '../support/http.js';
import { cleanUp, makeDataDir, type Result, runCli } from '../support/process.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

let dir: string;
/** Directly on the database, and through a gateway. */
const ways = ['here', 'afar'] as const;

const app = useApp();
beforeEach(async () => {
  dir = makeDataDir();
  await app.ctx.db.pool.query('TRUNCATE tape_file CASCADE');
});
afterAll(cleanUp);

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

const readPaths = async () => (await readCatalogue()).map((row) => (row as { path: string }).path);

const list = ['--format', 'find', '--volume', 'HSM'];
const inventory = ['--format', 's3-inventory', '--volume', 'raw'];
const entry = (name: string) => `1000 1709245801.5 640 1000 1000 ${name}\n`;
const hint = 'use --skip-invalid to skip rows with names that cannot be restored';
const refusedRows = (...faults: string[]) => refused(1, ['nothing was imported:', ...faults].join('\n  '));
/** Returns the result of a refused import whose faults include invalid names. */
const refusedNames = (...faults: string[]) =>
  refused(1, `${['nothing was imported:', ...faults].join('\n  ')}\n${hint}`);
const row = { size: '1000', stage: 'ONTAPE', volume: 'HSM', spot: null, checksum: null };

test.each(ways)('a list of find is imported %s, gzipped or not, from a file or from standard input', async (way) => {
  const text = entry('/hpss/a/x') + entry('/hpss/a/b/z');
  const options = [...list, '--strip', '/hpss', '--prefix', '/badc', '--spot', 'old'];
  const inputs: [string, Uint8Array | undefined][] = [
    [write('list', text), undefined],
    [write('list.gz', gzipSync(text)), undefined],
    ['-', gzipSync(text)],
  ];
  for (const [n, [file, stdin]] of inputs.entries()) {
    const counts = n === 0 ? '2 files added, 0 updated' : '0 files added, 0 updated';
    expect(await runImport(way, [file, ...options], stdin)).toEqual(done(`${counts}\n`));
  }
  const known = { ...row, spot: 'old', mode: 0o640, mtime: '2024-02-29 22:30:01.5' };
  expect(await readCatalogue()).toEqual([
    { ...known, path: '/badc/a/b/z' },
    { ...known, path: '/badc/a/x' },
  ]);
});

test.each(ways)('names that cannot be restored are left out %s and listed in a new private file', async (way) => {
  await runImport(way, [write('before', entry('/z/known') + entry('/z/x/deep')), ...list]);
  const long = 'x'.repeat(256);
  const names = ['/a/ok', '/a//b', '/a/../c', '/a/./d', `/a/${long}`, '/e', '/e/f', '/z/known/below', '/z/x'];
  const latin = Buffer.from(entry('/a/caf\u00e9'), 'latin1');
  const file = write(
    'names',
    Buffer.concat([Buffer.from(names.map(entry).join('')), latin, Buffer.from(entry('/a/last'))]),
  );
  const { code, stderr } = await runImport(way, [file, ...list]);
  expect([code, stderr.trimEnd().split('\n').at(-1)]).toEqual([1, hint]);
  const tried = await runImport(way, [file, ...list, '--skip-invalid', '--dry-run']);
  expect([tried.code, tried.stdout.split('\n').slice(1)]).toEqual([
    0,
    [
      '3 files added, 0 updated',
      `skipped: 8 names that cannot be restored; an import would list them in ${file}.rejects`,
      '',
    ],
  ]);
  expect(existsSync(`${file}.rejects`)).toBe(false);
  const skipped = await runImport(way, [file, ...list, '--skip-invalid']);
  expect(skipped).toEqual(
    done(`3 files added, 0 updated\nskipped: 8 names that cannot be restored, listed in ${file}.rejects\n`),
  );
  expect(statSync(`${file}.rejects`).mode & 0o777).toBe(0o600);
  const rejects = readFileSync(`${file}.rejects`, 'utf8').trimEnd().split('\n');
  expect(rejects).toEqual([
    'line 2: path contains the part "": "/a//b"',
    'line 3: path contains the part "..": "/a/../c"',
    'line 4: path contains the part ".": "/a/./d"',
    expect.stringContaining('line 5: path contains a part longer than 255 bytes'),
    expect.stringContaining('line 10: is not valid UTF-8: "1000 1709245801.5 640 1000 1000 /a/caf\\\\xe9"'),
    'line 6: "/e" cannot be a file and also the directory of "/e/f"',
    'line 8: "/z/known" cannot be a file and also the directory of "/z/known/below"',
    'line 9: "/z/x" cannot be a file and also the directory of "/z/x/deep"',
  ]);
  expect(await readPaths()).toEqual(['/a/last', '/a/ok', '/e/f', '/z/known', '/z/x/deep']);
  // a nightly import replaces the list of the import before
  expect(await runImport(way, [file, ...list, '--skip-invalid'])).toMatchObject({ code: 0 });
  expect(readFileSync(`${file}.rejects`, 'utf8').trimEnd().split('\n')).toEqual(rejects);
});

test.each(ways)(
  'a complete list with names that are left out %s withdraws no file that such a name means',
  async (way) => {
    const known = ['/c/b', '/c/caf\u{FFFD}', '/c/gone', ...Array.from({ length: 5 }, (_, n) => `/c/${n}`)];
    await runImport(way, [write('known', known.map(entry).join('')), ...list]);
    const names = ['/c//b', ...known.slice(3)];
    const file = write(
      'all',
      Buffer.concat([Buffer.from(names.map(entry).join('')), Buffer.from(entry('/c/caf\u00e9'), 'latin1')]),
    );
    const complete = ['--complete', '/c', '--max-withdrawn', '20', '--skip-invalid', '--json'];
    const { stdout } = await runImport(way, [file, ...list, ...complete]);
    expect(JSON.parse(stdout)).toMatchObject({ withdrawn: 1, rejected: 2, rejectsFile: `${file}.rejects` });
    const { rows } = await app.ctx.db.pool.query('SELECT path FROM tape_file WHERE withdrawn_at IS NOT NULL');
    expect(rows).toEqual([{ path: '/c/gone' }]);
  },
);

test('keys of an S3 inventory that are no paths are left out', async () => {
  const manifest = writeInventory([
    object('a') + object('/lead') + object('a//b'),
    object('a/b') + object('%FF') + object('ok') + object('dir/'),
  ]);
  const rejects = path.join(dir, 'rejected');
  const { code } = await runImport('here', [manifest, ...inventory, '--skip-invalid', '--rejects', rejects]);
  expect([code, await readPaths()]).toEqual([0, ['/a/b', '/ok']]);
  expect(readFileSync(rejects, 'utf8')).toBe(
    [
      `${partOf(0)} line 2: path contains the part "": "//lead"`,
      `${partOf(0)} line 3: path contains the part "": "/a//b"`,
      `${partOf(1)} line 2: the key "%FF" is not URL-encoded UTF-8`,
      `${partOf(1)} line 4: path contains the part "": "/dir/"`,
      `${partOf(0)} line 1: "/a" cannot be a file and also the directory of "/a/b"\n`,
    ].join('\n'),
  );
});

test('an import that fails leaves no file of rejects', async () => {
  const file = write('half', `${entry('/a//b')}nonsense\n`);
  const result = await runImport('here', [file, ...list, '--skip-invalid']);
  expect([result.code, existsSync(`${file}.rejects`)]).toEqual([1, false]);
  expect(result.stderr).not.toContain(hint);
});

test.each(ways)('bad entries of a list are reported with its own lines %s, and nothing is imported', async (way) => {
  const bad = write('bad', `1 1 /a\nnonsense\n2 2 /c\n3 3 /d/../e\n`);
  expect(await runImport(way, [bad, ...list])).toEqual(
    refusedNames(
      `line 2: "nonsense" is not in the format of find -printf '%s %T@ %m %U %G %p\\n'`,
      'line 4: path contains the part "..": "/d/../e"',
    ),
  );
  const twice = write('twice', entry('/a/x') + entry('/b/y') + entry('/a/x'));
  expect(await runImport(way, [twice, ...list])).toEqual(refusedRows('lines 1 and 3 contain the same path: "/a/x"'));
  expect(await readCatalogue()).toEqual([]);
});

const SCHEMA =
  'Bucket, Key, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag, StorageClass, IsMultipartUploaded, EncryptionStatus';
const object = (key: string, more = '') =>
  `"raw","${key}","true","false","1000","2024-02-29T22:30:01.500Z","${'ab'.repeat(16)}","${more || 'GLACIER'}","false","SSE-S3"\n`;

/** Writes an S3 inventory, as `aws s3 sync` does. @returns the path of its manifest */
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

test.each(ways)('an S3 inventory is imported %s, with all files of its manifest', async (way) => {
  const manifest = writeInventory([object('a') + object('b+c', 'STANDARD'), object('d%2Be')]);
  const options = [...inventory, '--storage-class', 'GLACIER, DEEP_ARCHIVE', '--json'];
  const result = await runImport(way, [manifest, ...options]);
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

test.each(ways)('bad rows of an inventory are reported with their file, %s', async (way) => {
  const same = writeInventory([object('a') + object('b'), object('c') + object('a')]);
  expect(await runImport(way, [same, ...inventory])).toEqual(
    refusedRows(`${partOf(0)} line 1 and ${partOf(1)} line 2 contain the same path: "/a"`),
  );
  const bad = writeInventory([object('a'), object('b') + object('%zz')]);
  expect(await runImport(way, [bad, ...inventory])).toEqual(
    refusedNames(`${partOf(1)} line 2: the key "%zz" is not URL-encoded UTF-8`),
  );
});

test.each([
  [
    'another checksum',
    { MD5checksum: '0'.repeat(32) },
    /part-0\.csv\.gz has MD5 .*, but the manifest requires 0{32}: /,
  ],
  ['another size', { size: 1 }, /part-0\.csv\.gz has \d+ bytes, .*manifest\.json requires 1\n$/],
  ['another name', { key: 'to/raw/daily/data/away.csv.gz' }, /cannot find .*data\/away\.csv\.gz, which .* lists, /],
])('an inventory whose file has %s is refused', async (_what, change, message) => {
  const manifest = writeInventory([object('a')], (file) => ({ ...file, ...change }));
  const { code, stderr } = await runImport('here', [manifest, ...inventory]);
  expect([code, stderr]).toEqual([1, expect.stringMatching(message)]);
  expect(await readCatalogue()).toEqual([]);
});

test.each<[string[], string]>([
  [['--format', 'find'], '--volume is required: a list in format find does not name the volume'],
  [['--volume', 'V'], '--volume needs --format find or --format s3-inventory'],
  [['--format', 'find', '--volume', 'V', '--prefix', 'a'], '--prefix must be an absolute path, not "a"'],
  [
    ['--format', 'find', '--volume', 'V', '--storage-class', 'GLACIER'],
    '--storage-class needs --format s3-inventory, not find',
  ],
])('an import with %j is wrong usage', async (args, problem) => {
  expect(await runImport('here', ['-', ...args], '1000 1709245801.5 ./a\n')).toEqual(refused(2, problem));
});

test('an inventory from standard input, and a file that is not a manifest, are rejected', async () => {
  const manifest = '{"sourceBucket": "raw", "fileFormat": "ORC"}';
  expect(await runImport('here', ['-', ...inventory], manifest)).toEqual(
    refused(1, 'an S3 inventory cannot be read from standard input: give the path of its manifest.json'),
  );
  const file = write('manifest.json', manifest);
  expect(await runImport('here', [file, ...inventory])).toEqual(
    refused(1, `${file} is not the manifest of an S3 inventory in CSV: fileFormat must be "CSV", not "ORC"`),
  );
});
