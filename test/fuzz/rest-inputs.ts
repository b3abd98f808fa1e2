/** Inputs for REST: every endpoint, what is honest and what is odd. */
import fc, { type Arbitrary } from 'fast-check';
import type { Door, HttpInput } from './input.js';
import {
  address,
  anyJson,
  authorization,
  choose,
  label,
  oddText,
  path,
  pattern,
  pick,
  QUOTA_OF_IT,
  requestId,
  timeOf,
  user,
} from './texts.js';

const API = '/tape_control/api/v1';

const quoted = (text: Arbitrary<string>): Arbitrary<string> => text.map((value) => JSON.stringify(value));
const orOdd = (value: Arbitrary<string>): Arbitrary<string> => choose([60, value], [1, anyJson], [1, pick('null')]);

const files: Arbitrary<string> = choose(
  [12, fc.array(quoted(path), { maxLength: 6 }).map((paths) => `[${paths}]`)],
  [4, fc.array(path, { maxLength: 4 }).map((paths) => JSON.stringify(paths.join('\n')))],
  [1, fc.array(anyJson, { maxLength: 3 }).map((values) => `[${values}]`)],
);

/** A field's name, and the text of its value. */
type Field = [name: string, value: string];
const field = (name: string, value: Arbitrary<string>): Arbitrary<Field> =>
  orOdd(value).map((text): Field => [name, text]);

const quota = field('quota', quoted(user));
/** As a change of a request has it: mostly that of the request. */
const quotaOfIt = field('quota', quoted(choose([9, fc.constant(QUOTA_OF_IT)], [1, user])));
const optional: Arbitrary<Field>[] = [
  field('retention', quoted(timeOf('', '', '', 'Z', '+01:00'))),
  field('label', quoted(label)),
  field('notify_on_first_file', quoted(address)),
  field('notify_on_last_file', quoted(address)),
];
const strange: Arbitrary<Field> = fc.tuple(
  choose([3, pick('__proto__', 'toString', 'constructor', 'hasOwnProperty', 'quota', 'id', 'patterns')], [1, oddText]),
  anyJson,
);

/** Some of the fields, in any order, at times twice. */
function fieldsOf(base: Arbitrary<Field>[]): Arbitrary<string> {
  return fc
    .tuple(fc.tuple(...base), fc.array(fc.oneof(...optional), { maxLength: 3 }), rarely(strange), fc.nat(3))
    .map(([first, others, odd, turn]) => {
      const fields = [...first, ...others, ...odd];
      const turned = turn === 0 ? fields.reverse() : fields;
      return `{${turned.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(',')}}`;
    });
}

const rarely = <T>(arbitrary: Arbitrary<T>): Arbitrary<T[]> =>
  choose([9, fc.constant<T[]>([])], [1, arbitrary.map((value) => [value])]);

const wish: Arbitrary<string> = choose(
  [6, fieldsOf([quota, field('patterns', quoted(pattern))])],
  [6, fieldsOf([quota, field('files', files)])],
  [1, fieldsOf([quota, field('patterns', quoted(pattern)), field('files', files)])],
  [1, fieldsOf([quota])],
  [1, fieldsOf([])],
);

/** What is around the object, and what is done to the text of it. */
function bodyOf(object: Arbitrary<string>): Arbitrary<string | Uint8Array> {
  return choose<string | Uint8Array>(
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
}

const TYPES = [
  'application/json',
  'application/json; charset=utf-8',
  'text/plain',
  'application/x-www-form-urlencoded',
  '',
];
/** Headers that mean something to some part of the way, with values that may not. */
const header: Arbitrary<[string, string]> = choose<[string, string]>(
  [6, pick(...TYPES).map((type): [string, string] => ['Content-Type', type])],
  [
    3,
    pick('application/json', '*/*', 'text/html', 'application/json;q=0', '', 'a'.repeat(500)).map(
      (type): [string, string] => ['Accept', type],
    ),
  ],
  [
    2,
    pick('gzip', 'br', 'zstd', 'gzip;q=0.5, *', '*;q=0', 'x;;q', ',').map((value): [string, string] => [
      'Accept-Encoding',
      value,
    ]),
  ],
  [1, pick('gzip', 'identity', 'br, gzip', 'x').map((type): [string, string] => ['Content-Encoding', type])],
  [1, pick('100-continue', 'something').map((value): [string, string] => ['Expect', value])],
  [1, pick('bytes=0-1', 'x').map((value): [string, string] => ['Range', value])],
  [1, pick('"x"', '*').map((value): [string, string] => ['If-None-Match', value])],
  [1, pick('PUT', 'DELETE').map((value): [string, string] => ['X-HTTP-Method-Override', value])],
  [1, pick('a=b; c', '=').map((value): [string, string] => ['Cookie', value])],
);
export const headers: Arbitrary<Record<string, string>> = fc.array(header, { maxLength: 2 }).map(Object.fromEntries);

/** A part of a URL: encoded as it should be, twice, in part, or with what means nothing. */
export function encoded(text: Arbitrary<string>): Arbitrary<string> {
  return choose(
    [12, text.map((value) => encodeURIComponent(value.toWellFormed()))],
    [1, text.map((value) => encodeURIComponent(encodeURIComponent(value.toWellFormed())))],
    [1, text.map((value) => value.replace(/[^!-~]|[?#]/gu, ''))],
    [
      1,
      fc
        .tuple(text, pick('%', '%zz', '%ff', '%00', '%c3%28', '%2F', '%2e%2e', '+', '%u0041'))
        .map(([value, odd]) => encodeURIComponent(value.toWellFormed()) + odd),
    ],
  );
}

const query: Arbitrary<string> = fc
  .array(
    choose(
      [4, encoded(pattern).map((value) => `match=${value}`)],
      [3, encoded(choose([4, pick('UDTAR', 'T', 'ur', 'DD', '')], [1, oddText])).map((value) => `stages=${value}`)],
      [2, encoded(choose([4, pick('true', 'false')], [1, oddText])).map((value) => `spot-name=${value}`)],
      [1, fc.tuple(encoded(oddText), encoded(oddText)).map(([name, value]) => `${name}=${value}`)],
      [1, pick('', '=', '&', 'match', 'match[]=a', 'match[a]=b', 'stages=%E2%84%AA')],
    ),
    { maxLength: 3 },
  )
  .map((parts) => (parts.length === 0 ? '' : `?${parts.join('&')}`));

/** Where nothing is, or something in other words. */
const elsewhere: Arbitrary<string> = choose(
  [
    4,
    pick(
      `${API}`,
      `${API}/`,
      `${API}/requests/`,
      `${API}//requests`,
      `${API}/Requests`,
      `${API}/files/1`,
      `${API}/quota`,
    ),
  ],
  [
    2,
    pick(
      '/',
      '/health/live',
      '/health/ready',
      '/metrics',
      '/openapi',
      '/openapi.json',
      '/TAPE_CONTROL/API/V1/requests',
      '/%2e%2e/x',
      '//',
      '/graphql/x',
      '/graphql/schema.graphql',
    ),
  ],
  [2, encoded(oddText).map((text) => `${API}/${text}`)],
  [1, encoded(oddText).map((text) => `/${text}`)],
);

type Target = [method: string, target: string, body: string | Uint8Array | undefined, door: Door];

const target: Arbitrary<Target> = choose<Target>(
  [8, query.map((q): Target => ['GET', `${API}/files${q}`, undefined, 'rest'])],
  [6, fc.constant<Target>(['GET', `${API}/requests`, undefined, 'rest'])],
  [12, encoded(requestId).map((id): Target => ['GET', `${API}/requests/${id}`, undefined, 'rest'])],
  [8, encoded(user).map((name): Target => ['GET', `${API}/quota/${name}`, undefined, 'rest'])],
  [26, bodyOf(wish).map((body): Target => ['POST', `${API}/requests`, body, 'rest'])],
  [
    22,
    fc
      .tuple(fc.nat(999), choose([12, fc.constant(undefined)], [1, encoded(requestId)]), bodyOf(fieldsOf([quotaOfIt])))
      .map(([n, odd, body]): Target => {
        const named = typeof body === 'string' ? body.replaceAll(QUOTA_OF_IT, `~q${n}~`) : body;
        return ['PUT', `${API}/requests/${odd ?? `~i${n}~`}`, named, 'rest'];
      }),
  ],
  [4, fc.tuple(elsewhere, query).map(([at, q]): Target => ['GET', at + q, undefined, 'any'])],
);

const ODD_METHODS = ['HEAD', 'DELETE', 'PATCH', 'OPTIONS', 'PUT', 'POST', 'GET', 'TRACE', 'PROPFIND', 'REPORT'];

export const restInput: Arbitrary<HttpInput> = fc
  .tuple(
    target,
    choose([19, fc.constant(undefined)], [1, pick(...ODD_METHODS)]),
    fc.tuple(headers, authorization).map(([given, shown]) => ({ ...given, ...shown })),
    choose<'body' | 'sent' | undefined>([60, fc.constant(undefined)], [1, pick('body', 'sent')]),
  )
  .map(([[method, at, body, door], odd, given, cut]) => ({
    kind: 'http',
    door,
    method: odd ?? method,
    target: at,
    headers: given,
    body,
    cut,
  }));
