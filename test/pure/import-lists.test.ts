/** File lists of other systems: how an import reads rows and reports bad rows. */
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { RowError } from '../../src/domain/import/import-lines.js';
import { type RowReader, readWith, toJsonLines } from '../../src/domain/import/import-rows.js';
import { createFindReader, type Skipped } from '../../src/domain/import/lists.js';
import { createInventoryReader, type InventorySettings, parseManifest } from '../../src/domain/import/s3-inventory.js';

const settings: InventorySettings = { volume: 'HSM', prefix: '', strip: '' };

interface Read {
  /** Path and size of each row, or the row's error. */
  rows: string[];
  skipped: Record<string, number>;
}

const toRead = (text: string | Uint8Array) => Readable.from([Buffer.from(text)]);

async function readAll(text: string | Uint8Array, reader: RowReader, skipped: Skipped): Promise<Read> {
  const rows: string[] = [];
  for await (const row of readWith(toRead(text), reader)) {
    rows.push(row instanceof RowError ? row.message : `${row.line}: ${row.path} ${row.size}`);
  }
  return { rows, skipped: Object.fromEntries(skipped) };
}

async function readPlain(text: string | Uint8Array, more: Partial<InventorySettings> = {}): Promise<string[]> {
  return (await readAll(text, createFindReader({ ...settings, ...more }), new Map())).rows;
}

const firstRow = async (text: string) => {
  for await (const row of readWith(toRead(text), createFindReader(settings))) return row;
  throw new Error('there is no row');
};

const FIND = '1000 1709245801.1234567890 640 1000 65534 /raw/a file.dat\n0 -1.5 ./b\n7 1709245801 ./ c:"d" \n';

test('the output of find is read, gzipped or not', async () => {
  const rows = ['1: /raw/a file.dat 1000', '2: /b 0', '3: / c:"d"  7'];
  expect(await readPlain(FIND)).toEqual(rows);
  expect(await readPlain(gzipSync(FIND))).toEqual(rows);
});

test('a listed file is on tape, with its time in UTC, its mode, and its owners', async () => {
  expect(await firstRow(FIND)).toEqual({
    line: 1,
    path: '/raw/a file.dat',
    size: 1000n,
    stage: 'ONTAPE',
    verified: undefined,
    spotName: undefined,
    volume: 'HSM',
    position: undefined,
    checksum: undefined,
    mode: 0o640,
    mtime: '2024-02-29T22:30:01.123456',
    uid: 1000n,
    gid: 65534n,
  });
  expect(await firstRow('1 2 ./a')).toMatchObject({ path: '/a', mode: undefined, uid: undefined, gid: undefined });
});

const FIND_STYLE = `is not in the format of find -printf '%s %T@ %m %U %G %p\\n'`;
const hugeSize = '9'.repeat(20);

test.each([
  ['a name with a line end', '1 2 /a/one\ntwo\n', `line 2: "two" ${FIND_STYLE}`],
  ['a line without a time', '1 2 /a\n1 /b\n', `line 2: "1 /b" ${FIND_STYLE}`],
  ['CRLF', '1 2 /a\r\n', 'line 1: "1 2 /a\\r" ends with a carriage return'],
  ['a time too large', '1 999999999999 /a\n', 'line 1: mtime must be a UTC date-time'],
  ['a parent directory', '1 2 ../a\n', 'line 1: path contains the part "..": "/../a"'],
  ['a reserved name', '1 2 /.tapegate-x\n', 'line 1: path contains a reserved name (.tapegate-…)'],
  ['a size over 64 bits', `${hugeSize} 2 /a\n`, `line 1: size must be a whole number of bytes, not "${hugeSize}"`],
  ['an owner over 32 bits', '1 2 644 4294967295 0 /a\n', 'line 1: uid must be a number from 0 to 4294967294'],
  ['no lines', '\n\n', 'line 1: the list is empty'],
])('a list with %s is refused by its line', async (_what, text, problem) => {
  const rows = await readPlain(text);
  expect(rows.filter((row) => row.startsWith('line'))).toEqual([expect.stringContaining(problem)]);
});

test('a name without UTF-8 is refused by its line', async () => {
  const text = Buffer.from('1 2 /a\n1 2 /\u00e9\n', 'latin1');
  expect(await readPlain(text)).toEqual(['1: /a 1', 'line 2: is not valid UTF-8: "1 2 /\\\\xe9"']);
});

test('strip removes the beginning of paths, and prefix adds one', async () => {
  const text = '1 2 /hpss/raw/a\n1 2 /hpss/rawer/b\n1 2 /hpss/raw\n';
  expect(await readPlain(text, { strip: '/hpss/raw', prefix: '/badc' })).toEqual([
    '1: /badc/a 1',
    'line 2: "/hpss/rawer/b" is not below "/hpss/raw" (--strip)',
    'line 3: "/hpss/raw" is not below "/hpss/raw" (--strip)',
  ]);
  expect(await readPlain('1 2 ./a\n', { prefix: '/badc' })).toEqual(['1: /badc/a 1']);
});

const SCHEMA =
  'Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag, StorageClass, IsMultipartUploaded, EncryptionStatus';
const listed = { key: 'to/raw/daily/data/1.csv.gz', size: 100, MD5checksum: '0'.repeat(32) };
const manifestOf = (more: object = {}) =>
  JSON.stringify({ sourceBucket: 'raw', fileFormat: 'CSV', fileSchema: SCHEMA, files: [listed], ...more }, null, 2);

const MD5 = '0123456789abcdef0123456789ABCDEF';
const objectOf = (more: Record<string, string>) => {
  const object: Record<string, string> = {
    Bucket: 'raw',
    Key: 'a',
    IsLatest: 'true',
    IsDeleteMarker: 'false',
    Size: '1000',
    LastModifiedDate: '2024-02-29T22:30:01.123Z',
    ETag: MD5,
    StorageClass: 'DEEP_ARCHIVE',
    IsMultipartUploaded: 'false',
    EncryptionStatus: 'SSE-S3',
    ...more,
  };
  return SCHEMA.split(', ')
    .map((name) => `"${object[name] ?? ''}"`)
    .join(',');
};

async function readObjects(objects: Record<string, string>[], more: Partial<InventorySettings> = {}): Promise<Read> {
  const skipped: Skipped = new Map();
  const reader = createInventoryReader(parseManifest(manifestOf()), { ...settings, ...more }, skipped);
  return await readAll(`${objects.map(objectOf).join('\n')}\n`, reader, skipped);
}

test('an S3 inventory is read: the latest versions of its objects, with decoded keys', async () => {
  const objects = [
    { Key: 'a+file%2Bwith%2C%22%C3%A9%0A' },
    { Key: 'b', IsLatest: 'false' },
    { Key: 'b', IsDeleteMarker: 'true', Size: '', ETag: '' },
    { Key: 'directory/', Size: '0' },
    { Key: 'directory/c', StorageClass: 'STANDARD' },
  ];
  expect(await readObjects(objects)).toEqual({
    rows: ['1: /a file+with,"é\n 1000', '5: /directory/c 1000'],
    skipped: { 'versions that are not the latest': 1, 'delete markers': 1, directories: 1 },
  });
  expect(await readObjects(objects, { storageClasses: ['GLACIER', 'DEEP_ARCHIVE'] })).toMatchObject({
    rows: ['1: /a file+with,"é\n 1000'],
    skipped: { 'objects of other storage classes': 1 },
  });
});

test.each<[string, Record<string, string>, string | undefined]>([
  ['in one part, encrypted by S3', {}, `md5:${MD5.toLowerCase()}`],
  ['unencrypted', { EncryptionStatus: 'NOT-SSE' }, `md5:${MD5.toLowerCase()}`],
  ['in several parts', { IsMultipartUploaded: 'true', ETag: `${MD5}-2` }, undefined],
  ['in several parts, with a tag that looks like MD5', { IsMultipartUploaded: 'true' }, undefined],
  ['encrypted with a customer key', { EncryptionStatus: 'SSE-KMS' }, undefined],
  ['without information on parts', { IsMultipartUploaded: '' }, undefined],
])('the entity tag of an object %s is used as a checksum only if it is MD5', async (_what, object, checksum) => {
  const reader = createInventoryReader(parseManifest(manifestOf()), settings, new Map());
  for await (const row of readWith(toRead(objectOf(object)), reader)) {
    expect(row).toMatchObject({ path: '/a', checksum, mtime: '2024-02-29T22:30:01.123000', stage: 'ONTAPE' });
  }
  expect.assertions(1);
});

test.each<[string, Record<string, string>, string]>([
  ['of another bucket', { Bucket: 'other' }, 'the bucket must be "raw", not "other"'],
  ['a key that is no URL', { Key: '%zz' }, 'the key "%zz" is not URL-encoded UTF-8'],
  ['a key that is no UTF-8', { Key: '%E9' }, 'the key "%E9" is not URL-encoded UTF-8'],
  ['a key that begins with a slash', { Key: '/a' }, 'path contains the part "": "//a"'],
  ['a key with a parent directory', { Key: 'a/../b' }, 'path contains the part "..": "/a/../b"'],
  ['a key with a trailing slash and bytes', { Key: 'a/' }, 'path contains the part "": "/a/"'],
  ['no size', { Size: '' }, 'size must be a whole number of bytes, not ""'],
  ['a malformed time', { LastModifiedDate: 'yesterday' }, 'LastModifiedDate must be a time, not "yesterday"'],
])('an inventory row with %s is refused by its line', async (_what, object, problem) => {
  expect((await readObjects([{ Key: 'first' }, object])).rows).toEqual(['1: /first 1000', `line 2: ${problem}`]);
});

test('an inventory row with another number of columns than its manifest is refused by its line', async () => {
  const reader = createInventoryReader(parseManifest(manifestOf()), settings, new Map());
  expect((await readAll('"raw","a"\n', reader, new Map())).rows).toEqual([
    'line 1: expected 11 fields, as in fileSchema, not 2',
  ]);
});

test.each([
  ['for ORC', { fileFormat: 'ORC' }, 'fileFormat must be "CSV", not "ORC"'],
  ['without a bucket', { sourceBucket: undefined }, 'sourceBucket must be a name, not "nothing"'],
  ['without sizes', { fileSchema: 'Bucket, Key' }, 'fileSchema has no column Size: "Bucket, Key"'],
  ['without files', { files: {} }, 'files must be a list, not "{}"'],
  [
    'with a parent directory',
    { files: [{ ...listed, key: '../a' }] },
    'files[0].key must be the key of a file, not "../a"',
  ],
  [
    'with a negative size',
    { files: [listed, { ...listed, size: -1 }] },
    'files[1].size must be a number of bytes, not "-1"',
  ],
  [
    'with a bad MD5',
    { files: [{ ...listed, MD5checksum: 'x' }] },
    'files[0].MD5checksum must be 32 digits in hex, not "x"',
  ],
])('a manifest %s is refused', (_what, more, problem) => {
  expect(() => parseManifest(manifestOf(more))).toThrow(problem);
});

test('rows keep their line numbers when they are converted to JSON lines', async () => {
  let text = '';
  const list = `\n1 2 /a\n\n\n1 2 /b\n`;
  for await (const part of toJsonLines(readWith(toRead(list), createFindReader(settings)))) text += part;
  const lines = text.split('\n').map((line) => (line === '' ? '' : JSON.parse(line).path));
  expect(lines).toEqual(['', '/a', '', '', '/b', '']);
});
