/**
 * Generators of usual and odd values. A value that only a running server knows, such as a request id, is written as a
 * mark.
 * The mark is replaced when the input is sent (see known.ts). The inputs of a seed thus do not depend on earlier
 * responses.
 */
import fc, { type Arbitrary } from 'fast-check';
import { archive, users, volumes } from './archive.js';

type Choice<T> = Arbitrary<T> | (string & T) | readonly T[];

/** Returns one of several values by weight. A string choice is passed to `among`, a list to `pick`. */
export function choose<T>(...choices: readonly (readonly [weight: number, choice: Choice<T>])[]): Arbitrary<T> {
  const toArbitrary = (choice: Choice<T>) => {
    if (typeof choice === 'string') return among(choice) as Arbitrary<T>;
    return choice instanceof fc.Arbitrary ? choice : pick(...(choice as readonly T[]));
  };
  return fc.oneof(...choices.map(([weight, choice]) => ({ weight, arbitrary: toArbitrary(choice) })));
}

export const pick = <T>(...values: T[]): Arbitrary<T> => fc.constantFrom(...values);

/** Returns one of the texts between ` | `. */
export const among = (texts: string): Arbitrary<string> => pick(...texts.split(' | '));

/** Returns a value in one of `weight` + 1 draws, otherwise undefined. */
export const rarely = <T>(value: Arbitrary<T>, weight = 20): Arbitrary<T | undefined> =>
  choose<T | undefined>([weight, fc.constant(undefined)], [1, value]);

const ODD_TEXTS =
  '\0 | a\0b | \ud800 | a\udc00b | \u{1F600} | e\u0301 | \u202eabc | \u2028 | a\r\nb | \uFEFF | \u001b[2J | \u0663';
export const oddText: Arbitrary<string> = choose(
  [1, ODD_TEXTS],
  [
    1,
    `% | %% | _ | \\ | " | {x} | __proto__ | constructor | null | NaN | -0 | ../../etc/passwd | '; DROP TABLE request; --`,
  ],
  [1, pick('', ' ', 'x'.repeat(255), 'x'.repeat(2001), '\u00e9'.repeat(1100))],
  [2, fc.string({ unit: 'grapheme', maxLength: 30 })],
  [1, fc.string({ unit: 'binary', maxLength: 30 })],
);

const mark = (kind: string): Arbitrary<string> => fc.nat(999).map((n) => `~${kind}${n}~`);
/** Mark of a request id. A mark alone between quotes becomes a number. */
export const requestMark = mark('i');
export const cursorMark = mark('c');
export const eventMark = mark('e');
export const nodeMark = mark('n');
export const diskMark = mark('m');
/** Mark of the quota of the request with the same number. `#` stands for the number. */
export const QUOTA_OF_REQUEST = '~q#~';

/**
 * Clients with tokens. A token's mark contains the client's index. The last token is revoked before the first input.
 */
export const tokens = [
  { name: 'operator', role: 'OPERATOR' },
  { name: 'second operator', role: 'OPERATOR' },
  { name: 'viewer', role: 'VIEWER' },
  { name: 'short', role: 'USER' },
  { name: 'service', role: 'SERVICE', quotas: ['enough', 'tight'] },
  { name: 'enough', role: 'USER', isReadOnly: true },
  { name: 'ample', role: 'USER' },
] as const;

export type Headers = Record<string, string>;
export const asHeader = (name: string, value: Arbitrary<string>): Arbitrary<Headers> =>
  value.map((text) => ({ [name]: text }));
/** Authorization headers with missing, unknown and misused tokens. */
const WRONG =
  `Basic YTpi | Bearer x | Bearer | Digest x=y | Basic | Basic = | Basic eA== | Bearer tapegate_ | bearer ~k0~ | Bearer  ~k0~  |
  Bearer ~k0~x | Basic ~k0~ | Bearer ~b0~ | Basic ~w0~ | Basic ~w3~ | Bearer tapegate_${'A'.repeat(43)} | Bearer ${'x'.repeat(9000)} |
  Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbXBsZSJ9.`.replaceAll(/\n +/g, ' ');
const anyToken = fc.nat(tokens.length - 1);

/** Authorization headers: mostly none, often an operator's token, sometimes another token. */
export const authorization: Arbitrary<Headers> = choose<Headers>(
  [58, fc.constant({})],
  [22, asHeader('Authorization', pick('Bearer ~k0~', 'Basic ~b1~'))],
  [
    8,
    asHeader(
      'Authorization',
      anyToken.map((n) => `Bearer ~k${n}~`),
    ),
  ],
  [
    6,
    asHeader(
      'Authorization',
      anyToken.map((n) => `Basic ~b${n}~`),
    ),
  ],
  [
    2,
    asHeader(
      'Authorization',
      mark('s').map((made) => `Bearer ${made}`),
    ),
  ],
  [4, asHeader('Authorization', choose([20, WRONG], [1, ['']]))],
);

export const operatorsMostly: Arbitrary<Headers> = choose<Headers>(
  [3, asHeader('Authorization', pick('Bearer ~k0~', 'Basic ~b1~'))],
  [1, authorization],
);

const ODD_NUMBERS =
  `0 | -1 | 1 | 2147483647 | 2147483648 | -2147483649 | 9007199254740993 | 9223372036854775807 | 9223372036854775808 |
 -9223372036854775809 | 1e3 | 1.5 | -0 | 1e400 | 123456789012345678901234567890`.replaceAll('\n', '');
export const oddNumber: Arbitrary<string> = choose([3, ODD_NUMBERS], [1, fc.bigInt().map(String)]);

export const requestId: Arbitrary<string> = choose(
  [40, requestMark],
  [1, oddNumber],
  [1, ['01', '0x1', '+1', '1 ', '']],
);

const userNames = users.map(({ user: name }) => name);
export const user: Arbitrary<string> = choose([30, [...userNames]], [1, ['nobody', 'Ample', 'ample ']], [1, oddText]);

/** Paths of files in the catalogue, of imported files, and of files that never exist, and bad paths. */
export const filePath: Arbitrary<string> = choose(
  [60, pick(...archive.map((file) => file.path))],
  [18, fc.nat(59).map((n) => `/import/p${n}`)],
  [6, fc.nat(9).map((n) => `/never/${n}`)],
  [1, ['/', '//a', '/a/../b', '/a/.', 'a', '/.tapegate-x', `/${'d'.repeat(256)}`, `/${'d/'.repeat(1200)}x`, '/a\nb']],
  [2, oddText],
);

/** Patterns that mostly match few files, so that quotas allow many requests. */
export const pattern: Arbitrary<string> = choose(
  [60, fc.nat(299).map((n) => `f${String(n).padStart(3, '0')}`)],
  [20, '/f00 | /f12 | /f23 | y3/ | %2F | é | \\back | _%_ | /import/p1 | \u{1F600}'],
  [6, ['/', '/data/ocean', '', 'nothing contains this']],
  [3, oddText],
);

const ODD_ADDRESSES =
  'a | a@ | @a | a@b@c | A <a@example.org> | a@example.org\r\nBcc: b@example.org | a@b,c@d | é@example.org';
export const address: Arbitrary<string> = choose(
  [40, ['', 'a@example.org', 'b.c+d@example.org']],
  [1, ODD_ADDRESSES],
  [2, oddText],
);

const date = fc
  .date({ min: new Date('2027-01-01'), max: new Date('2040-12-31'), noInvalidDate: true })
  .map((time) => time.toISOString().slice(0, 10));

/** @param zones suffixes of times */
export function timeOf(...zones: string[]): Arbitrary<string> {
  const ODD =
    '2027-02-29 | 2027-13-01 | 2027-01-01T24:00:00 | 99999-01-01 | tomorrow | infinity | 2027-01-01T00:00:00Z';
  return choose(
    [40, date],
    [
      30,
      fc
        .tuple(date, fc.integer({ min: 10, max: 23 }), pick('', '.5', '.000001'), pick(...zones))
        .map(([day, hour, part, zone]) => `${day}T${hour}:00:00${part}${zone}`),
    ],
    [6, '2020-01-01 | 1999-12-31T23:59:59 | 0001-01-01 | 9999-12-31T23:59:59.999999'],
    [1, ODD],
    [1, oddText],
  );
}

export const label: Arbitrary<string> = choose([4, ['a label', '', 'é \u{1F600}', "it's 100%"]], [1, oddText]);

/** Names of objects that can be suspended. */
export const thing: Arbitrary<string> = choose(
  [16, [...volumes, 'drive-1', 'drive-2', 'memory', 'directory', ...userNames]],
  [1, oddText],
);

/** JSON texts of arbitrary values. */
export const anyJson: Arbitrary<string> = choose(
  [3, fc.jsonValue({ maxDepth: 3 }).map((value) => JSON.stringify(value))],
  [2, oddNumber],
  [1, oddText.map((text) => JSON.stringify(text))],
  [1, ['[[[[]]]]', `${'['.repeat(500)}${']'.repeat(500)}`, '{"__proto__":{"a":1}}', 'true', 'null', '{}', '""']],
);
