/**
 * Values of every kind, honest and odd. What only a running server knows, such as the id of a request, is a mark that is
 * filled in when it is sent: see known.ts. So what a seed gives never depends on what was answered before.
 */
import fc, { type Arbitrary } from 'fast-check';
import { archive, users, volumes } from './archive.js';

/** One of several, as often as its weight says. */
export function choose<T>(...choices: readonly (readonly [weight: number, arbitrary: Arbitrary<T>])[]): Arbitrary<T> {
  return fc.oneof(...choices.map(([weight, arbitrary]) => ({ weight, arbitrary })));
}

export const pick = <T>(...values: T[]): Arbitrary<T> => fc.constantFrom(...values);

export const oddText: Arbitrary<string> = choose(
  [
    3,
    pick(
      ...[
        '',
        ' ',
        '\0',
        'a\0b',
        '\ud800',
        'a\udc00b',
        '\u{1F600}',
        'e\u0301',
        '\u202eabc',
        '\u2028',
        'a\r\nb',
        '\uFEFF',
      ],
      ...["'; DROP TABLE request; --", '%', '%%', '_', '\\', '"', '{x}', '__proto__', 'constructor', 'null', 'NaN'],
      ...['-0', '\u0663', '../../etc/passwd', 'x'.repeat(255), 'x'.repeat(2001), '\u00e9'.repeat(1100), '\u001b[2J'],
    ),
  ],
  [2, fc.string({ unit: 'grapheme', maxLength: 30 })],
  [1, fc.string({ unit: 'binary', maxLength: 30 })],
);

const mark = (kind: string): Arbitrary<string> => fc.nat(999).map((n) => `~${kind}${n}~`);
/** Of a request that was made in this run; alone between quotes it becomes a number. */
export const requestMark = mark('i');
export const cursorMark = mark('c');
export const eventMark = mark('e');
export const nodeMark = mark('n');
/** Of a restore disk, where it is. */
export const diskMark = mark('m');

/** Of whom the fuzz has tokens; the mark of each is its place here. The last one is revoked before anything is sent. */
export const tokens = [
  { name: 'operator', role: 'OPERATOR' },
  { name: 'second operator', role: 'OPERATOR' },
  { name: 'viewer', role: 'VIEWER' },
  { name: 'short', role: 'USER' },
  { name: 'service', role: 'SERVICE', quotas: ['enough', 'tight'] },
  { name: 'enough', role: 'USER', isReadOnly: true },
  { name: 'ample', role: 'USER' },
] as const;

const shown = (value: string): Record<string, string> => ({ Authorization: value });
/** What is no token, is nobody's, or is another's. */
const FALSE = [
  ...[
    'Basic YTpi',
    'Bearer x',
    'Bearer',
    'Digest x=y',
    '',
    'Basic',
    'Basic =',
    'Basic eA==',
    `Bearer ${'x'.repeat(9000)}`,
  ],
  ...[
    'Bearer tapegate_',
    `Bearer tapegate_${'A'.repeat(43)}`,
    'Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbXBsZSJ9.',
    'bearer ~k0~',
  ],
  ...['Bearer  ~k0~ ', 'Bearer ~k0~x', 'Basic ~k0~', 'Bearer ~b0~', 'Basic ~w0~', 'Basic ~w3~'],
];
const byToken = (kind: string): Arbitrary<Record<string, string>> =>
  fc.nat(tokens.length - 1).map((n) => shown(`${kind}${n}~`));
const someToken = choose(
  [5, byToken('Bearer ~k')],
  [4, byToken('Basic ~b')],
  [1, mark('s').map((made) => shown(`Bearer ${made}`))],
);

/** Mostly nobody's, whose way is the open one; an operator's, since much is for operators; and the others'. */
export const authorization: Arbitrary<Record<string, string>> = choose<Record<string, string>>(
  [58, fc.constant({})],
  [22, pick(shown('Bearer ~k0~'), shown('Basic ~b1~'))],
  [16, someToken],
  [4, pick(...FALSE).map(shown)],
);

/** For what hardly anybody else may do. */
export const operatorsMostly: Arbitrary<Record<string, string>> = choose<Record<string, string>>(
  [3, pick(shown('Bearer ~k0~'), shown('Basic ~b1~'))],
  [1, authorization],
);

const ODD_NUMBERS = [
  ...['0', '-1', '1', '2147483647', '2147483648', '-2147483649', '9007199254740993', '9223372036854775807'],
  ...['9223372036854775808', '-9223372036854775809', '1e3', '1.5', '-0', '1e400', '123456789012345678901234567890'],
];

/** The text of a number, of any size. */
export const oddNumber: Arbitrary<string> = choose([3, pick(...ODD_NUMBERS)], [1, fc.bigInt().map(String)]);

export const requestId: Arbitrary<string> = choose(
  [40, requestMark],
  [1, oddNumber],
  [1, pick('01', '0x1', '+1', '1 ', '')],
);

/** Whose the request is that an input names: put in where its number is known. */
export const QUOTA_OF_IT = '~q#~';

export const user: Arbitrary<string> = choose(
  [30, pick(...users.map((each) => each.user))],
  [1, pick('nobody', 'Ample', 'ample ')],
  [1, oddText],
);

/** Of which the catalogue knows some, and imports add others. */
export const path: Arbitrary<string> = choose(
  [60, pick(...archive.map((file) => file.path))],
  [18, fc.nat(59).map((n) => `/import/p${n}`)],
  [6, fc.nat(9).map((n) => `/never/${n}`)],
  [
    1,
    pick('/', '//a', '/a/../b', '/a/.', 'a', '/.tapegate-x', `/${'d'.repeat(256)}`, `/${'d/'.repeat(1200)}x`, '/a\nb'),
  ],
  [2, oddText],
);

/** Of few files mostly, so that requests can be many. */
export const pattern: Arbitrary<string> = choose(
  [60, fc.nat(299).map((n) => `f${String(n).padStart(3, '0')}`)],
  [20, pick('/f00', '/f12', '/f23', 'y3/', '%2F', 'é', '\\back', '_%_', '/import/p1', '\u{1F600}')],
  [6, pick('/', '/data/ocean', '', 'nothing has this')],
  [3, oddText],
);

export const address: Arbitrary<string> = choose(
  [40, pick('', 'a@example.org', 'b.c+d@example.org')],
  [
    1,
    pick(
      'a',
      'a@',
      '@a',
      'a@b@c',
      'A <a@example.org>',
      'a@example.org\r\nBcc: b@example.org',
      'a@b,c@d',
      'é@example.org',
    ),
  ],
  [2, oddText],
);

const pad = (n: number): string => String(n).padStart(2, '0');
const plainTime = fc
  .tuple(
    fc.integer({ min: 2027, max: 2040 }),
    fc.integer({ min: 1, max: 12 }),
    fc.integer({ min: 1, max: 28 }),
    fc.nat(23),
  )
  .map(([year, month, day, hour]) => ({ date: `${year}-${pad(month)}-${pad(day)}`, time: `T${pad(hour)}:00:00` }));

/** @param zone what a time may end with beside its digits */
export function timeOf(...zones: string[]): Arbitrary<string> {
  return choose(
    [40, plainTime.map(({ date }) => date)],
    [
      30,
      fc
        .tuple(plainTime, pick('', '.5', '.000001'), pick(...zones))
        .map(([t, part, zone]) => t.date + t.time + part + zone),
    ],
    [6, pick('2020-01-01', '1999-12-31T23:59:59', '0001-01-01', '9999-12-31T23:59:59.999999')],
    [
      1,
      pick(
        '2027-02-29',
        '2027-13-01',
        '2027-01-01T24:00:00',
        '99999-01-01',
        'tomorrow',
        'infinity',
        '2027-01-01T00:00:00Z',
        '',
      ),
    ],
    [1, oddText],
  );
}

export const label: Arbitrary<string> = choose([4, pick('a label', '', 'é \u{1F600}', "it's 100%")], [1, oddText]);

/** What can be taken out of service, and what cannot. */
export const thing: Arbitrary<string> = choose(
  [16, pick(...volumes, 'drive-1', 'drive-2', 'memory', 'directory', ...users.map((each) => each.user))],
  [1, oddText],
);

/** The text of a JSON value of any kind. */
export const anyJson: Arbitrary<string> = choose(
  [3, fc.jsonValue({ maxDepth: 3 }).map((value) => JSON.stringify(value))],
  [2, oddNumber],
  [1, oddText.map((text) => JSON.stringify(text))],
  [1, pick('[[[[]]]]', `${'['.repeat(500)}${']'.repeat(500)}`, '{"__proto__":{"a":1}}', 'true', 'null', '{}', '""')],
);
