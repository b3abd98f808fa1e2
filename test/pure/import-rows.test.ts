/** Catalogue rows in CSV and JSON Lines: how an import reads rows and reports bad rows. */
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { RowError } from '../../src/domain/import/import-lines.js';
import { type CatalogueRow, readRows } from '../../src/domain/import/import-rows.js';

const toInput = (input: string | Uint8Array) => Readable.from([Buffer.from(input)]);

/** Reads an input. Throws the error of a bad row. */
async function readAll(input: string | Uint8Array | Readable): Promise<CatalogueRow[]> {
  const rows: CatalogueRow[] = [];
  for await (const row of readRows(input instanceof Readable ? input : toInput(input))) {
    if (row instanceof RowError) throw row;
    rows.push(row);
  }
  return rows;
}

async function readFaults(input: string | Uint8Array | Readable): Promise<string[]> {
  const faults: string[] = [];
  for await (const row of readRows(input instanceof Readable ? input : toInput(input)))
    if (row instanceof RowError) faults.push(row.message);
  return faults;
}

const pathsOf = (rows: CatalogueRow[]) => rows.map(({ path }) => path);

describe('good rows', () => {
  const [one, two] = ['/a/1 comma, "quote" and\r\nline\nbreak', '/a/2 данные ﬁ 😀\t'];
  const csv = `\uFEFFpath,size\r\n\r\n"${one.replaceAll('"', '""')}",10\r\n\r\n${two},0\r\n`;

  test('bytes may come one by one', async () => {
    const bytes = gzipSync(csv);
    const input = Readable.from(Array.from(bytes, (_, n) => bytes.subarray(n, n + 1)));
    expect(await readAll(input)).toMatchObject([
      { line: 3, path: one, size: 10n },
      { line: 7, path: two, size: 0n },
    ]);
  });

  test('several gzip streams in a row are one file', async () => {
    const input = Buffer.concat([gzipSync('path,size\n/members/1,1\n'), gzipSync('/members/2,2\n')]);
    expect(pathsOf(await readAll(input))).toEqual(['/members/1', '/members/2']);
  });

  test('columns come in any order, an empty value is null, and a missing column is undefined', async () => {
    const missing = { stage: null, verified: undefined, volume: undefined, position: undefined, checksum: undefined };
    expect(await readAll('size,spot_name,path\n5,,/a\n"6",s,"/b"')).toMatchObject([
      { ...missing, path: '/a', size: 5n, spotName: null },
      { ...missing, path: '/b', size: 6n, spotName: 's' },
    ]);
    expect(await readAll('{"size":"7","spot_name":"","path":"/c"}')).toMatchObject([
      { ...missing, path: '/c', size: 7n, spotName: null },
    ]);
  });

  test('sizes and positions beyond 2^53 are exact in both formats', async () => {
    const big = [9007199254740993n, 9223372036854775807n];
    const rows = [
      ...(await readAll(`path,size,position\n/a,${big[0]},${big[1]}`)),
      ...(await readAll(`{"path":"/b","size":"${big[0]}","position":"${big[1]}"}`)),
    ];
    expect(rows.map(({ size, position }) => [size, position])).toEqual([big, big]);
  });

  test('times keep their microseconds', async () => {
    const rows = await readAll(
      'path,size,verified\n/a,1,2026-02-28T23:59:59.999999\n/b,1,2026-02-28T23:59:59.1\n/c,1,2024-02-29',
    );
    expect(rows.map(({ verified }) => verified)).toEqual([
      '2026-02-28T23:59:59.999999',
      '2026-02-28T23:59:59.100000',
      '2024-02-29T00:00:00',
    ]);
  });

  test('line ends may be mixed, and a Unicode line separator in JSON ends no line', async () => {
    expect(pathsOf(await readAll('path,size\r\n/a,1\n/b,2\r\n\n\r\n/c,3'))).toEqual(['/a', '/b', '/c']);
    expect(pathsOf(await readAll('{"path":"/\u2028\u2029\u0085","size":1}\n{"path":"/z","size":1}'))).toEqual([
      '/\u2028\u2029\u0085',
      '/z',
    ]);
  });
});

const HEADER = 'path,size,stage,verified,spot_name,volume,position,checksum';
const TIME = 'verified must be a UTC date-time YYYY-MM-DDTHH:MM:SS[.ffffff] without a zone, not';
const CHECKSUM = 'checksum must be sha256:…, adler32:… or md5:… in hex, not';
const COLUMNS =
  'path,size,stage,verified,spot_name,volume,library,position,checksum,copy_volume,copy_position,mode,mtime,uid,gid';

describe('bad rows', () => {
  test.each([
    [',1,T,,,,,', 'path must be given, not ""'],
    ['a/b,1,T,,,,,', 'path does not begin with "/": "a/b"'],
    ['/a/../b,1,T,,,,,', 'path contains the part "..": "/a/../b"'],
    ['/a,,T,,,,,', 'size must be a whole number of bytes, not ""'],
    ['/a,-1,T,,,,,', 'size must be a whole number of bytes, not "-1"'],
    ['/a,1e3,T,,,,,', 'size must be a whole number of bytes, not "1e3"'],
    ['/a,0x10,T,,,,,', 'size must be a whole number of bytes, not "0x10"'],
    ['/a,9223372036854775808,T,,,,,', 'size must be a whole number of bytes, not "9223372036854775808"'],
    ['/a,1,X,,,,,', 'stage must be one of the letters U, D, T, A, R, not "X"'],
    ['/a,1,T,2026-02-30,,,,', `${TIME} "2026-02-30"`],
    ['/a,1,T,2026-01-02T03:04:05Z,,,,', `${TIME} "2026-01-02T03:04:05Z"`],
    ['/a,1,T,2026-01-02T03:04:05.1234567,,,,', `${TIME} "2026-01-02T03:04:05.1234567"`],
    ['/a,1,T,,"a\nb",,,', 'spot_name must be a name of at most 255 characters, not "a\\nb"'],
    [
      `/a,1,T,,,${'v'.repeat(256)},,`,
      `volume must be a name of at most 255 characters, not "${'v'.repeat(99)}…" (256 characters)`,
    ],
    ['/a,1,T,,,V1,-1,', 'position must be a whole number, not "-1"'],
    [
      '/a,1,T,,,,,md5:0a',
      'checksum must be md5: followed by 32 hex digits, including leading zeros (found 2 digits), not "md5:0a"',
    ],
    [
      '/a,1,T,,,,,adler32:1A2B3C4',
      'checksum must be adler32: followed by 8 hex digits, including leading zeros (found 7 digits), not "adler32:1A2B3C4"',
    ],
    [
      '/a,1,T,,,,,sha256:',
      `checksum must be sha256: followed by 64 hex digits, including leading zeros (found 0 digits), not "sha256:"`,
    ],
    ['/a,1,T,,,,,adler32:1a2b3c4g', `${CHECKSUM} "adler32:1a2b3c4g"`],
    ['/a,1,T,,,,,crc32:0a0b0c0d', `${CHECKSUM} "crc32:0a0b0c0d"`],
    ['/a,1', 'expected 8 fields, as in the first line, not 2'],
    ['/a,1,T,,,,,,', 'expected 8 fields, as in the first line, not 9'],
    [
      '/a"b,1,T,,,,,',
      'a field that contains a double quote must be enclosed in double quotes, and each double quote in it must be doubled',
    ],
    ['"/a"b,1,T,,,,,', 'expected a comma after a quoted field, not "b"'],
    ['"/never closed,1,T,,,,,', 'this row contains a quoted field without a closing quote'],
  ])('the CSV row %j is reported with its line', async (row, problem) => {
    const good = '/good,1,T,2026-01-02,spot,V1,1,';
    expect(await readFaults([HEADER, good, row, good].join('\n'))).toEqual([`line 3: ${problem}`]);
  });

  test('faults of mode, time and owner are reported by line', async () => {
    const rows = ['0o640,,,', '100644,,,', ',yesterday,,', ',999999999999,,', ',,4294967295,', ',,,staff'];
    const text = ['path,size,mode,mtime,uid,gid', ...rows.map((row) => `/bad,1,${row}`)].join('\n');
    const time = 'mtime must be a UTC date-time YYYY-MM-DDTHH:MM:SS[.ffffff], or seconds since 1970, not';
    expect(await readFaults(text)).toEqual([
      'line 2: mode must be up to four octal digits such as 0640, not "0o640"',
      'line 3: mode must be up to four octal digits such as 0640, not "100644"',
      `line 4: ${time} "yesterday"`,
      `line 5: ${time} "999999999999"`,
      'line 6: uid must be a number from 0 to 4294967294, not "4294967295"',
      'line 7: gid must be a number from 0 to 4294967294, not "staff"',
    ]);
  });

  test('faults of a second copy are reported by line', async () => {
    const rows = ['2,V1,1,V1,2', '3,V1,1,V2,x', '4,V1,1,,2', '5,V1,1,V\u00072,2', '6,,,V2,2'];
    const text = ['path,size,volume,position,copy_volume,copy_position', ...rows.map((row) => `/bad,${row}`)].join(
      '\n',
    );
    expect(await readFaults(text)).toEqual([
      'line 2: copy_volume must be different from the file\'s volume, not "V1"',
      'line 3: copy_position must be a whole number, not "x"',
      'line 4: copy_position must be empty if the row has no copy_volume, not "2"',
      'line 5: copy_volume must be a name of at most 255 characters, not "V\\u00072"',
      'line 6: copy_volume must be empty if the row has no volume, not "V2"',
    ]);
  });

  test.each([
    ['{"path":"/a","size":1', /^line 2: not JSON: .+/],
    ['["/a",1]', 'must be a JSON object, not "[\\"/a\\",1]"'],
    ['null', 'must be a JSON object, not "null"'],
    ['{"size":1}', 'path must be given, not ""'],
    ['{"path":"/a"}', 'size must be a whole number of bytes, not ""'],
    ['{"path":"/a","size":1.5}', 'size must be a whole number of bytes, not "1.5"'],
    [
      '{"path":"/a","size":9007199254740993}',
      'size must be a quoted string, because JSON numbers beyond 2^53 are rounded',
    ],
    ['{"path":"/a","size":1e300}', 'size must be a quoted string, because JSON numbers beyond 2^53 are rounded'],
    ['{"path":"/a","size":true}', 'size must be text or a number, not "true"'],
    ['{"path":"/a","size":1,"mode":416}', /^line 2: mode must be text/],
    ['{"path":["/a"],"size":1}', 'path must be text or a number, not "[\\"/a\\"]"'],
    ['{"path":"/a","size":1,"Stage":"T"}', `there is no column "Stage"; the columns are ${COLUMNS}`],
    ['{"path":"/\\ud800","size":1}', 'path contains NUL or invalid Unicode: "/\\ud800"'],
    [
      '{"path":"/a","size":1,"spot_name":"\\ud800"}',
      'spot_name must be a name of at most 255 characters, not "\\ud800"',
    ],
  ])('the JSON row %j is reported with its line', async (row, problem) => {
    const good = '{"path":"/good","size":1}';
    const expected = typeof problem === 'string' ? `line 2: ${problem}` : expect.stringMatching(problem);
    expect(await readFaults([good, row, good].join('\n'))).toEqual([expected]);
  });

  test.each([
    ['', `the file is empty; its first line must name the columns: ${COLUMNS}`],
    ['\n\r\n \n', `the file is empty; its first line must name the columns: ${COLUMNS}`],
    ['\uFEFF', `the file is empty; its first line must name the columns: ${COLUMNS}`],
    ['path,size,colour\n/a,1,red', `there is no column "colour"; the columns are ${COLUMNS}`],
    ['Path,size\n/a,1', `there is no column "Path"; the columns are ${COLUMNS}`],
    ['path,stage\n/a,T', 'the column size is missing'],
    ['path,size,path\n/a,1,/b', 'the column path is given twice'],
    [
      '[{"path":"/a","size":1}]',
      /^line 1: the input must not be a JSON array; write each row as an object on its own line/,
    ],
    ['[\n{"path":"/a","size":1}\n]', /^line 1: the input must not be a JSON array; /],
    [`[${'{"path":"/a","size":1},'.repeat(50_000)}]`, /^line 1: the input must not be a JSON array; /],
    ['path,"size\n/a,1', 'this row contains a quoted field without a closing quote'],
  ])('the file %j is reported by its first line', async (text, problem) => {
    const expected = typeof problem === 'string' ? `line 1: ${problem}` : expect.stringMatching(problem);
    expect(await readFaults(text)).toEqual([expected]);
    expect(await readFaults(gzipSync(text))).toEqual([expected]);
  });

  test('a file in UTF-16 is reported as such', async () => {
    const text = Buffer.from('\uFEFFpath,size\r\n/a,1\r\n', 'utf16le');
    const fault = 'line 1: is UTF-16, not UTF-8: convert it with iconv -f UTF-16 -t UTF-8';
    expect([await readFaults(text), await readFaults(text.swap16())]).toEqual([[fault], [fault]]);
  });

  test('the line is the physical one on which the row begins', async () => {
    expect(await readFaults('\n\nsize,stage\n1,T')).toEqual(['line 3: the column path is missing']);
    const lines = ['path,size', '"/a\r\nb\nc",1', '', '', '"/d\n', '",2', '"/e\r\n\r\n",x', '/f,y'];
    expect(await readFaults(`\uFEFF${lines.join('\r\n')}`)).toEqual([
      'line 10: size must be a whole number of bytes, not "x"',
      'line 13: size must be a whole number of bytes, not "y"',
    ]);
  });

  test.each([
    ['path,size\n/good,1\n/latin/\u0001,1\n/good,1', 3],
    ['{"path":"/good","size":1}\n{"path":"/latin/\u0001","size":1}', 2],
  ])('bytes that are not UTF-8 in %j are reported with their line', async (text, line) => {
    const bytes = Buffer.from(text);
    bytes[bytes.indexOf(1)] = 0xe9; // é in Latin-1
    expect(await readFaults(bytes)).toEqual([expect.stringContaining(`line ${line}: is not valid UTF-8: `)]);
  });

  test('a character that is cut off at the end of the file is reported', async () => {
    const bytes = Buffer.from('path,size,spot_name\n/a,1,é');
    expect(await readFaults(bytes.subarray(0, -1))).toEqual(['line 2: is not valid UTF-8: "/a,1,\\\\xc3"']);
  });

  test('gzipped data that are cut off, or have a wrong checksum, are reported', async () => {
    const zipped = gzipSync('path,size\n/a,1\n');
    const head = /^line \d+: the gzip data is damaged here: /;
    const expectDamage = async (bytes: Uint8Array, why: string) =>
      expect((await readFaults(bytes)).map((fault) => fault.replace(head, ''))).toEqual([why]);
    await expectDamage(zipped.subarray(0, -10), 'unexpected end of file');
    zipped.writeUInt32LE(zipped.readUInt32LE(zipped.length - 8) ^ 1, zipped.length - 8);
    await expectDamage(zipped, 'incorrect data check');
  });

  test('a file without line ends is refused before it fills the memory', async () => {
    const endless = function* () {
      const chunk = Buffer.alloc(64 * 1024, 'x');
      for (;;) yield chunk;
    };
    expect(await readFaults(Readable.from(endless()))).toEqual(['line 1: the line is longer than 1048576 bytes']);
  });
});
