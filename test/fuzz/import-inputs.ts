/** Files for `import`: CSV and JSON Lines, plain and gzipped, whole and broken, of few files so that the catalogue stays small. */
import { gzipSync } from 'node:zlib';
import fc, { type Arbitrary } from 'fast-check';
import { archive, volumes } from './archive.js';
import type { HttpInput, ImportInput } from './input.js';
import { anyJson, choose, oddNumber, oddText, operatorsMostly, pick, timeOf } from './texts.js';

/** What is taken is one of so many names, and what is not is refused: so the database has a bound. */
const path = choose(
  [60, fc.nat(59).map((n) => `/import/p${n}`)],
  [30, pick(...archive.map((file) => file.path))],
  [1, pick('', 'a', '/a/../b', '//', '/a\0b', `/${'p'.repeat(300)}`, '/import/p\ud800')],
);

const values: Record<string, Arbitrary<string>> = {
  path,
  size: choose([60, fc.nat(4000).map(String)], [1, oddNumber]),
  stage: choose([60, pick('U', 'D', 'T', 'T', 'T', 'A', 'R', 't', '')], [1, oddText]),
  verified: choose([30, pick('')], [3, timeOf('', 'Z')]),
  spot_name: choose([40, pick('', 'spot-1', 'spöt')], [1, pick('\n', 'x'.repeat(256))]),
  volume: choose([60, pick(...volumes, 'V00099', 'völume 1', '')], [1, pick('\0', 'x'.repeat(256), '\u001b')]),
  position: choose([60, fc.nat(70).map(String)], [1, oddNumber], [1, pick('')]),
  checksum: choose(
    [
      40,
      pick(
        '',
        `sha256:${'0'.repeat(64)}`,
        'adler32:00000001',
        `md5:${'A'.repeat(32)}`,
        ...archive.slice(0, 9).map((file) => `sha256:${file.sha256}`),
      ),
    ],
    [1, oddText],
  ),
  mode: choose([40, pick('0640', '644', '', '7777')], [1, oddText]),
  mtime: choose([40, pick('', '0', '1700000000', '2026-01-01T00:00:00', '-1')], [1, oddText], [1, oddNumber]),
  uid: choose([40, pick('', '0', '1000', '4294967294')], [1, oddNumber]),
  gid: choose([40, pick('', '0', '1000', '4294967294')], [1, oddText]),
};
const NAMES = Object.keys(values);

type Row = Record<string, string>;
const row: Arbitrary<Row> = fc.record(values);

/** As they stand in the archive, so that much of what was changed is put right again. */
const restored: Arbitrary<Row> = pick(...archive).map((file) => ({
  ...Object.fromEntries(NAMES.map((name) => [name, ''])),
  path: file.path,
  size: String(file.bytes.length),
  stage: 'T',
  volume: file.volume,
  position: String(file.position),
  checksum: `sha256:${file.sha256}`,
}));

const columns: Arbitrary<string[]> = choose(
  [8, fc.subarray(NAMES.slice(2)).map((some) => ['path', 'size', ...some])],
  [2, fc.shuffledSubarray(NAMES)],
  [1, fc.array(choose([3, pick(...NAMES)], [1, oddText]), { maxLength: 4 })],
);

const quote = (text: string, always: boolean): string =>
  always || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;

/** Of a column that may have any name. */
const cellOf = (row: Row, name: string): string => (Object.hasOwn(row, name) ? (row[name] ?? '') : '');

const csv: Arbitrary<string> = fc
  .tuple(
    columns,
    fc.array(choose([3, row], [2, restored]), { maxLength: 5 }),
    pick(',', ',', ',', ';', '\t'),
    pick('\n', '\n', '\r\n', '\r'),
    fc.nat(5),
  )
  .map(([names, rows, separator, end, form]) => {
    const lines = rows.map((each) => names.map((name) => quote(cellOf(each, name), form === 0)).join(separator));
    if (form === 1) lines.push('');
    if (form === 2) lines.push(`"open${separator}`);
    return [names.join(separator), ...lines].join(end) + (form === 3 ? '' : end);
  });

const jsonLine: Arbitrary<string> = choose(
  [
    6,
    fc
      .tuple(columns, choose([1, row], [1, restored]))
      .map(([names, each]) => JSON.stringify(Object.fromEntries(names.map((name) => [name, cellOf(each, name)])))),
  ],
  [
    1,
    fc
      .tuple(path, oddNumber, anyJson)
      .map(([at, size, odd]) => `{"path":${JSON.stringify(at)},"size":${size},"spot_name":${odd}}`),
  ],
  [
    1,
    pick(
      '',
      '{',
      '[]',
      '{"path":"/import/p1","path":"/import/p2","size":1}',
      '{"__proto__":1,"path":"/import/p3","size":1}',
    ),
  ],
);
const json = fc.array(jsonLine, { minLength: 1, maxLength: 5 }).map((lines) => lines.join('\n'));

const text: Arbitrary<string> = choose([5, csv], [3, json], [1, oddText]);

const bytes: Arbitrary<Uint8Array> = choose<Uint8Array>(
  [8, text.map((value) => Buffer.from(value))],
  [2, text.map((value) => Buffer.from(`\uFEFF${value}`))],
  [2, text.map((value) => gzipSync(value, { level: 1 }))],
  [1, fc.tuple(text, fc.nat(80)).map(([value, at]) => gzipSync(value, { level: 1 }).subarray(0, at))],
  [1, text.map((value) => Buffer.from(value, 'utf16le'))],
  [1, fc.tuple(text, fc.uint8Array({ maxLength: 20 })).map(([value, odd]) => Buffer.concat([Buffer.from(value), odd]))],
);

export const importInput: Arbitrary<ImportInput> = fc
  .tuple(bytes, pick(1, 7, 64, 65_536))
  .map(([content, chunkBytes]) => ({ kind: 'import', bytes: Uint8Array.from(content), chunkBytes }));

/** A header of it, honest mostly. */
const header = choose<Record<string, string>>(
  [8, fc.constant({})],
  [2, pick('gzip', 'identity', 'GZIP').map((value) => ({ 'Content-Encoding': value }))],
  [
    1,
    pick('text/csv', 'application/json', 'multipart/form-data; boundary=x').map((value) => ({ 'Content-Type': value })),
  ],
  [1, fc.constant({ Expect: '100-continue' })],
  [1, pick('br', 'x', 'gzip, gzip', '').map((value) => ({ 'Content-Encoding': value }))],
);

/** The same files sent to the gateway, mostly one after the other: it takes no second one at a time. */
export const importRequest: Arbitrary<HttpInput> = fc
  .record({
    body: bytes,
    header,
    shown: operatorsMostly,
    method: choose([20, pick('PUT')], [1, pick('POST', 'GET', 'DELETE', 'HEAD')]),
    target: choose([20, pick('/import')], [1, pick('/import?x=1', '/import/', '/import/x', '/import?', '/IMPORT')]),
    chunkBytes: choose<number | undefined>([3, fc.constant(undefined)], [1, pick(16, 64, 65_536)]),
    cut: choose<'body' | 'sent' | undefined>([20, fc.constant(undefined)], [1, pick('body', 'sent')]),
    inTurn: choose([12, fc.constant(true)], [1, fc.constant(false)]),
  })
  .map(({ body, header, shown, target, ...others }) => ({
    kind: 'http',
    door: /^\/import(\?|$)/.test(target) ? 'upload' : 'any',
    target,
    headers: { ...header, ...shown },
    body: Uint8Array.from(body),
    ...others,
  }));
