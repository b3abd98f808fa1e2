/** Inputs for REST, for imports, and for raw connections. */
import { gzipSync } from 'node:zlib';
import fc, { type Arbitrary } from 'fast-check';
import { archive, volumes } from './archive.js';
import type { HttpInput, ImportInput, RawInput } from './inputs.js';
import {
  address,
  among,
  anyJson,
  asHeader,
  authorization,
  choose,
  filePath,
  type Headers,
  label,
  oddNumber,
  oddText,
  operatorsMostly,
  pattern,
  pick,
  QUOTA_OF_REQUEST,
  rarely,
  requestId,
  timeOf,
  user,
} from './values.js';

const API = '/tape_control/api/v1';
export const cut = rarely(pick<'body' | 'sent'>('body', 'sent'), 50);
const quoted = (text: Arbitrary<string>): Arbitrary<string> => text.map((value) => JSON.stringify(value));

/** Name of a field, and JSON text of its value. Sometimes the value has a wrong type. */
type Field = [name: string, value: string];
const field = (name: string, value: Arbitrary<string>): Arbitrary<Field> =>
  fc.tuple(fc.constant(name), choose([60, value], [1, anyJson], [1, ['null']]));

const files: Arbitrary<string> = choose(
  [12, fc.array(quoted(filePath), { maxLength: 6 }).map((paths) => `[${paths}]`)],
  [4, quoted(fc.array(filePath, { maxLength: 4 }).map((paths) => paths.join('\n')))],
  [1, fc.array(anyJson, { maxLength: 3 }).map((values) => `[${values}]`)],
);
const quota = field('quota', quoted(user));
const patterns = field('patterns', quoted(pattern));
const optional = [
  field('retention', quoted(timeOf('', '', '', 'Z', '+01:00'))),
  field('label', quoted(label)),
  field('notify_on_first_file', quoted(address)),
  field('notify_on_last_file', quoted(address)),
];
const unknownField: Arbitrary<Field> = fc.tuple(
  choose([3, '__proto__ | toString | constructor | hasOwnProperty | quota | id | patterns'], [1, oddText]),
  anyJson,
);

/** Returns JSON objects with these fields and some optional fields in any order, sometimes with repeated fields. */
const fieldsOf = (...base: Arbitrary<Field>[]): Arbitrary<string> =>
  fc
    .tuple(fc.tuple(...base), fc.array(fc.oneof(...optional), { maxLength: 3 }), rarely(unknownField, 9), fc.nat(3))
    .map(([first, others, odd, turn]) => {
      const fields = [...first, ...others, ...(odd ? [odd] : [])];
      if (turn === 0) fields.reverse();
      return `{${fields.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(',')}}`;
    });

const newRequest: Arbitrary<string> = choose(
  [6, fieldsOf(quota, patterns)],
  [6, fieldsOf(quota, field('files', files))],
  [1, fieldsOf(quota, patterns, field('files', files))],
  [1, fieldsOf(quota)],
  [1, fieldsOf()],
);

/**
 * Returns request bodies. Most bodies contain an object in an array.
 * In other bodies, the array, the object or the encoding is wrong.
 */
const bodyOf = (object: Arbitrary<string>): Arbitrary<string | Uint8Array> =>
  choose<string | Uint8Array>(
    [60, object.map((text) => `[${text}]`)],
    [10, object],
    [1, fc.tuple(object, pick('[[', '[1,', '', '\uFEFF[', ' \n[')).map(([text, open]) => `${open}${text}]`)],
    [1, fc.tuple(object, fc.nat(200)).map(([text, at]) => text.slice(0, at))],
    [1, fc.tuple(object, fc.nat(200), oddText).map(([text, at, odd]) => text.slice(0, at) + odd + text.slice(at))],
    [
      1,
      fc
        .tuple(object, pick<BufferEncoding>('utf16le', 'latin1'))
        .map(([text, as]) => Uint8Array.from(Buffer.from(text, as))),
    ],
    [1, fc.uint8Array({ maxLength: 60 })],
    [1, anyJson],
  );

const JSON_OR_NOT =
  'application/json | application/json; charset=utf-8 | text/plain | application/x-www-form-urlencoded';
const header: Arbitrary<Headers> = choose<Headers>(
  [6, asHeader('Content-Type', choose([4, JSON_OR_NOT], [1, ['']]))],
  [3, asHeader('Accept', pick('application/json', '*/*', 'text/html', 'application/json;q=0', '', 'a'.repeat(500)))],
  [2, asHeader('Accept-Encoding', among('gzip | br | zstd | gzip;q=0.5, * | *;q=0 | x;;q | ,'))],
  [1, asHeader('Content-Encoding', among('gzip | identity | br, gzip | x'))],
  [1, asHeader('Expect', among('100-continue | something'))],
  [1, asHeader('Range', among('bytes=0-1 | x'))],
  [1, asHeader('If-None-Match', among('"x" | *'))],
  [1, asHeader('X-HTTP-Method-Override', among('PUT | DELETE'))],
  [1, asHeader('Cookie', among('a=b; c | ='))],
);

/** Returns parts of URLs that are percent-encoded once, twice, in part, or wrongly. */
const encoded = (text: Arbitrary<string>): Arbitrary<string> => {
  const once = text.map((value) => encodeURIComponent(value.toWellFormed()));
  return choose(
    [12, once],
    [1, once.map(encodeURIComponent)],
    [1, text.map((value) => value.replace(/[^!-~]|[?#]/gu, ''))],
    [
      1,
      fc.tuple(once, among('% | %zz | %ff | %00 | %c3%28 | %2F | %2e%2e | + | %u0041')).map((parts) => parts.join('')),
    ],
  );
};

const parameter: Arbitrary<string> = choose(
  [4, encoded(pattern).map((value) => `match=${value}`)],
  [3, encoded(choose([4, ['UDTAR', 'T', 'ur', 'DD', '']], [1, oddText])).map((value) => `stages=${value}`)],
  [2, encoded(choose([4, ['true', 'false']], [1, oddText])).map((value) => `spot-name=${value}`)],
  [1, fc.tuple(encoded(oddText), encoded(oddText)).map(([name, value]) => `${name}=${value}`)],
  [1, ['', '=', '&', 'match', 'match[]=a', 'match[a]=b', 'stages=%E2%84%AA']],
);
const search = fc.array(parameter, { maxLength: 3 }).map((parts) => (parts.length === 0 ? '' : `?${parts.join('&')}`));

const ELSEWHERE =
  `/ | // | /health/live | /health/ready | /metrics | /openapi.json | /TAPE_CONTROL/API/V1/requests | /%2e%2e/x |
 /graphql/x | /graphql/schema.graphql`.replaceAll('\n', '');
const elsewhere: Arbitrary<string> = choose(
  [4, pick('', '/', '/requests/', '//requests', '/Requests', '/files/1', '/quota').map((below) => API + below)],
  [2, ELSEWHERE],
  [2, encoded(oddText).map((text) => `${API}/${text}`)],
  [1, encoded(oddText).map((text) => `/${text}`)],
);

type Target = Pick<HttpInput, 'api' | 'method' | 'target' | 'body'>;
const get = (path: Arbitrary<string>): Arbitrary<Target> =>
  path.map((target) => ({ api: 'rest', method: 'GET', target: API + target }));

const target: Arbitrary<Target> = choose<Target>(
  [8, get(search.map((query) => `/files${query}`))],
  [6, get(fc.constant('/requests'))],
  [12, get(encoded(requestId).map((id) => `/requests/${id}`))],
  [8, get(encoded(user).map((name) => `/quota/${name}`))],
  [26, bodyOf(newRequest).map((body): Target => ({ api: 'rest', method: 'POST', target: `${API}/requests`, body }))],
  [
    22,
    fc
      .record({
        n: fc.nat(999),
        odd: rarely(encoded(requestId), 12),
        body: bodyOf(fieldsOf(field('quota', quoted(choose([9, fc.constant(QUOTA_OF_REQUEST)], [1, user]))))),
      })
      .map(({ n, odd, body }): Target => {
        const filled = typeof body === 'string' ? body.replaceAll(QUOTA_OF_REQUEST, `~q${n}~`) : body;
        return { api: 'rest', method: 'PUT', target: `${API}/requests/${odd ?? `~i${n}~`}`, body: filled };
      }),
  ],
  [4, fc.tuple(elsewhere, search).map((parts): Target => ({ api: 'any', method: 'GET', target: parts.join('') }))],
);

export const restInput: Arbitrary<HttpInput> = fc
  .record({
    to: target,
    method: rarely(among('HEAD | DELETE | PATCH | OPTIONS | PUT | POST | GET | TRACE | PROPFIND | REPORT')),
    headers: fc.tuple(fc.array(header, { maxLength: 2 }), authorization),
    cut,
  })
  .map(({ to, method = to.method, headers, cut }) => ({
    kind: 'http',
    ...to,
    method,
    headers: Object.assign({}, ...headers.flat()),
    cut,
  }));

const latinOdd = oddText.map((value) => Buffer.from(value).toString('latin1'));

const LINES = [
  'Accept: */* | Content-Type: application/json | Accept: text/event-stream',
  'Content-Length: 2 | Content-Length: 99 | Content-Length: -1 | Content-Length: 2, 2 | Content-Length: 1e1',
  'Transfer-Encoding: chunked | Transfer-Encoding: gzip, chunked | Transfer-Encoding: x | Transfer-Encoding:\tchunked',
  'Connection: keep-alive | Connection: upgrade | Upgrade: websocket | Upgrade: h2c | Expect: 100-continue | Expect: x | TE: trailers',
  ` folded | NoColon | : empty | A B: c | Accept\0: x | X: \u0001 | X: \u00ff | X: ${'y'.repeat(20_000)} | ${'X-A: b'.repeat(50)}`,
  'Last-Event-ID: x | Last-Event-ID: 1 | X-GraphQL-Event-Stream-Token: x | Forwarded: for=x | Origin: http://127.0.0.1',
];
const line: Arbitrary<string> = choose(
  ...LINES.map((texts, index) => [[4, 2, 2, 2, 2, 1][index] ?? 1, among(texts)] as const),
  [
    1,
    fc.tuple(among('Accept | Content-Type | Content-Encoding | Cookie | X'), latinOdd).map((parts) => parts.join(': ')),
  ],
);

const rawRequest: Arbitrary<string[]> = fc
  .record({
    method: choose(
      [6, 'GET | POST | PUT | HEAD'],
      [1, ['get', 'GETT', '', 'CONNECT', 'PRI', 'M-SEARCH']],
      [1, latinOdd],
    ),
    target: choose(
      [5, `${API}/requests | ${API}/files?match=f001 | /graphql | /graphql/stream | /`],
      [
        2,
        `* | http://[ | http://127.0.0.1${API}/requests | HTTP://x:y@z/graphql?query={ | localhost:80 | /a b | //a// | /?`,
      ],
      [2, latinOdd.map((text) => `/${text}`)],
    ),
    version: choose([9, ['HTTP/1.1']], [1, ['HTTP/1.0', 'HTTP/2.0', 'HTTP/9', 'http/1.1', '']]),
    host: choose(
      [12, 'Host: 127.0.0.1 | Host: localhost'],
      [1, 'Host: | Host: a b | Host: [::1 | host: x\r\nHost: y | X: 1'],
    ),
    lines: fc.array(line, { maxLength: 4 }),
    body: choose(
      [1, ['']],
      [
        4,
        '{} | [{"quota":"ample","patterns":"f001"}] | 2\r\n{}\r\n0\r\n\r\n | zz\r\n | 2\r\n{}\r\n | fffffffffffffffff\r\n',
      ],
      [1, `1;${'x'.repeat(300)}\r\na\r\n0\r\n\r\n | 0\r\nTrailer: x\r\n\r\n | {"query":"{__typename}"}`],
      [1, ['GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n']],
      [1, latinOdd],
    ),
    split: fc.nat(3),
  })
  .map(({ method, target, version, host, lines, body, split }) => {
    const head = `${[`${method} ${target} ${version}`, host, ...lines].join('\r\n')}\r\n\r\n`;
    return split === 0 ? [head.slice(0, 20), head.slice(20), body] : [head + body];
  });

export const rawInput: Arbitrary<RawInput> = choose<string[]>(
  [8, rawRequest],
  [2, fc.tuple(rawRequest, rawRequest).map((requests) => [requests.flat().join('')])],
  [1, fc.tuple(rawRequest, fc.nat(60)).map(([parts, at]) => [parts.join('').slice(0, at)])],
  [1, fc.array(latinOdd, { minLength: 1, maxLength: 2 })],
  [1, pick(['\u0016\u0003\u0001\u0002'], ['\r\n\r\n'], ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'])],
).map((parts) => ({ kind: 'raw', parts }));

/** Paths of import rows. The few names keep the database small, and invalid paths are rejected. */
const importPath = choose(
  [60, fc.nat(59).map((n) => `/import/p${n}`)],
  [30, pick(...archive.map((file) => file.path))],
  [1, ['', 'a', '/a/../b', '//', '/a\0b', `/${'p'.repeat(300)}`, '/import/p\ud800']],
);
const checksums = archive.slice(0, 9).map((file) => `sha256:${file.sha256}`);
const columns: Record<string, Arbitrary<string>> = {
  path: importPath,
  size: choose([60, fc.nat(4000).map(String)], [1, oddNumber]),
  stage: choose([60, ['U', 'D', 'T', 'T', 'T', 'A', 'R', 't', '']], [1, oddText]),
  verified: choose([30, ['']], [3, timeOf('', 'Z')]),
  spot_name: choose([40, ['', 'spot-1', 'spöt']], [1, pick('\n', 'x'.repeat(256))]),
  volume: choose([60, [...volumes, 'V00099', 'völume 1', '']], [1, pick('\0', 'x'.repeat(256), '\u001b')]),
  position: choose([60, fc.nat(70).map(String)], [1, oddNumber], [1, ['']]),
  checksum: choose(
    [40, ['', `sha256:${'0'.repeat(64)}`, 'adler32:00000001', `md5:${'A'.repeat(32)}`, ...checksums]],
    [1, oddText],
  ),
  mode: choose([40, ['0640', '644', '', '7777']], [1, oddText]),
  mtime: choose([40, ['', '0', '1700000000', '2026-01-01T00:00:00', '-1']], [1, oddText], [1, oddNumber]),
  uid: choose([40, ['', '0', '1000', '4294967294']], [1, oddNumber]),
  gid: choose([40, ['', '0', '1000', '4294967294']], [1, oddText]),
};
const NAMES = Object.keys(columns);

/** Rows with new values, or with the archive's values, which undo most earlier changes. */
const row: Arbitrary<Record<string, string>> = choose<Record<string, string>>(
  [3, fc.record(columns)],
  [
    2,
    pick(...archive).map(({ path, bytes, volume, position, sha256 }) => {
      const archived = { path, size: String(bytes.length), stage: 'T', volume, position: String(position) };
      return { ...archived, checksum: `sha256:${sha256}` };
    }),
  ],
);
const importHeader: Arbitrary<string[]> = choose(
  [8, fc.subarray(NAMES.slice(2)).map((some) => ['path', 'size', ...some])],
  [2, fc.shuffledSubarray(NAMES)],
  [1, fc.array(choose([3, [...NAMES]], [1, oddText]), { maxLength: 4 })],
);
const cellOf = (of: Record<string, string>, name: string): string => (Object.hasOwn(of, name) ? (of[name] ?? '') : '');
const quote = (text: string, always: boolean): string =>
  always || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;

const csv: Arbitrary<string> = fc
  .record({
    names: importHeader,
    rows: fc.array(row, { maxLength: 5 }),
    separator: pick(',', ',', ',', ';', '\t'),
    end: pick('\n', '\n', '\r\n', '\r'),
    form: fc.nat(5),
  })
  .map(({ names, rows, separator, end, form }) => {
    const lines = rows.map((each) => names.map((name) => quote(cellOf(each, name), form === 0)).join(separator));
    if (form === 1) lines.push('');
    if (form === 2) lines.push(`"open${separator}`);
    return [names.join(separator), ...lines].join(end) + (form === 3 ? '' : end);
  });

const ODD_LINES =
  '{ | [] | {"path":"/import/p1","path":"/import/p2","size":1} | {"__proto__":1,"path":"/import/p3","size":1}';
const jsonLine: Arbitrary<string> = choose(
  [
    6,
    fc
      .tuple(importHeader, row)
      .map(([names, each]) => JSON.stringify(Object.fromEntries(names.map((name) => [name, cellOf(each, name)])))),
  ],
  [
    1,
    fc
      .tuple(quoted(importPath), oddNumber, anyJson)
      .map(([at, size, odd]) => `{"path":${at},"size":${size},"spot_name":${odd}}`),
  ],
  [1, choose([4, ODD_LINES], [1, ['']])],
);
const jsonLines = fc.array(jsonLine, { minLength: 1, maxLength: 5 }).map((lines) => lines.join('\n'));
const importText: Arbitrary<string> = choose([5, csv], [3, jsonLines], [1, oddText]);
const zipped = importText.map((text) => gzipSync(text, { level: 1 }));

const importBytes: Arbitrary<Uint8Array> = choose<Uint8Array>(
  [8, importText.map((text) => Buffer.from(text))],
  [2, importText.map((text) => Buffer.from(`\uFEFF${text}`))],
  [2, zipped],
  [1, fc.tuple(zipped, fc.nat(80)).map(([bytes, at]) => bytes.subarray(0, at))],
  [1, importText.map((text) => Buffer.from(text, 'utf16le'))],
  [
    1,
    fc
      .tuple(importText, fc.uint8Array({ maxLength: 20 }))
      .map(([text, odd]) => Buffer.concat([Buffer.from(text), odd])),
  ],
).map((bytes) => Uint8Array.from(bytes));

export const importInput: Arbitrary<ImportInput> = fc
  .tuple(importBytes, pick(1, 7, 64, 65_536))
  .map(([bytes, chunkBytes]) => ({ kind: 'import', bytes, chunkBytes }));

/** Imports over HTTP. Most imports wait for each other, because the gateway accepts one import at a time. */
export const importRequest: Arbitrary<HttpInput> = fc
  .record({
    body: importBytes,
    header: choose<Headers>(
      [8, fc.constant({})],
      [2, asHeader('Content-Encoding', among('gzip | identity | GZIP'))],
      [1, asHeader('Content-Type', among('text/csv | application/json | multipart/form-data; boundary=x'))],
      [1, fc.constant({ Expect: '100-continue' })],
      [1, asHeader('Content-Encoding', pick('br', 'x', 'gzip, gzip', ''))],
    ),
    shown: operatorsMostly,
    method: choose([20, ['PUT']], [1, 'POST | GET | DELETE | HEAD']),
    target: choose([20, ['/import']], [1, '/import?x=1 | /import/ | /import/x | /import? | /IMPORT']),
    chunkBytes: rarely(pick(16, 64, 65_536), 3),
    cut,
    inTurn: choose([12, fc.constant(true)], [1, fc.constant(false)]),
  })
  .map(({ header, shown, target, ...others }) => ({
    ...{ kind: 'http', api: /^\/import(\?|$)/.test(target) ? 'upload' : 'any' },
    ...{ target, headers: { ...header, ...shown }, ...others },
  }));
