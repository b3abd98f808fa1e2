/** Bad values, each where it is decided; gateway/bad-input.test.ts sends a bad value in each field. */
import { expect, test } from 'vitest';
import { newRequest, parse } from '../../rest/body.js';
import { chosenFiles } from '../../src/operations/catalogue/chosen-files.js';
import { checkAddress, checkPath, checkPattern, checkText, checkTime } from '../../src/operations/input.js';

const refusalOf = (check: () => unknown): string => {
  try {
    return `accepted: ${JSON.stringify(check())}`;
  } catch (error) {
    return (error as Error).message;
  }
};

test.each<[unknown, string]>([
  [5, 'a number'],
  [12345678901234567890n, 'a number'],
  [true, 'a boolean'],
  [{}, 'an object'],
  [['/a'], 'an array of one'],
  [[], 'an array of 0'],
])('%s is neither a string nor a path', (value, name) => {
  const read = (fields: object) => refusalOf(() => parse(newRequest, { quota: 'a', ...fields }));
  const [label, file] = [`label must be a string, not ${name}`, `files must hold strings, not ${name}`];
  expect(read({ label: value, files: ['/a', value] })).toBe(`${label}; ${file}`);
  if (!Array.isArray(value)) expect(read({ files: value })).toBe(`files must be a list of paths, not ${name}`);
});

test.each([
  ['a\0b', /^label must not hold the character NUL: "a\\u0000b"$/],
  ['a\ud800b', /^label must be valid Unicode: "/],
  ['\udc00', /^label must be valid Unicode: "/],
  ['a\nb', /^label must not hold control characters: "a\\nb"$/],
  ['a\u001b[2J', /^label must not hold control characters: "/],
  ['x'.repeat(2001), /^label must have at most 2000 characters, not 2001$/],
])('the text %# is refused', (text, says) => {
  expect(refusalOf(() => checkText('label', text))).toMatch(says);
});

test.each([
  ['a\0b', /^pattern must not hold the character NUL: "a\\u0000b"$/],
  ['\udc00', /^pattern must be valid Unicode: "/],
  ['x'.repeat(2049), /^pattern must have at most 2048 bytes, not 2049$/],
  ['ä'.repeat(1025), /^pattern must have at most 2048 bytes, not 2050$/],
])('the pattern %# is refused', (text, says) => {
  expect(refusalOf(() => checkPattern('pattern', text))).toMatch(says);
});

test.each([
  ...'2027-02-29 2027-02-30T00:00:00 2027-13-01 2027-01-01T24:00:00 2027-01-01T00:00:60 0000-01-01'.split(' '),
  ...'2027-01-01T00:00:00+0100 2027-01-01T00:00:00.1234567 99999-01-01 tomorrow infinity a\0b \ud800'.split(' '),
  ...["2027-01-01'; DROP TABLE request; --", '2027-01-01T00:00:00Z', '2027-01-01T00:00:00+01:00'],
])('%j is no time', (time) => {
  expect(refusalOf(() => checkTime('retention', time))).toMatch(
    /^retention must be a date YYYY-MM-DD or a UTC date-time YYYY-MM-DDTHH:MM:SS\[\.ffffff\] without a zone, not "/,
  );
});

test.each([
  ...['a@example.org\r\nBcc: b@example.org', 'a@example.org\nb@example.org', 'a@example.org,b@example.org'],
  ...[
    'a@example.org;b@example.org',
    'A <a@example.org>',
    '<a@example.org>',
    'a b@example.org',
    'a',
    'a@',
    '@a',
    'a@b@c',
  ],
  ...[`${'a'.repeat(250)}@example.org`, '"a\r\nDATA"@example.org', 'a\0@b', 'a\ud800@b'],
])('the email address %# is refused', (address) => {
  expect(refusalOf(() => checkAddress('email', address))).toMatch(/^email must be an e-mail address, not "/);
});

test.each([
  ['', 'does not begin with "/": ""'],
  ['a', 'does not begin with "/": "a"'],
  ['../a', 'does not begin with "/"'],
  ['C:\\a', 'does not begin with "/"'],
  ['//', 'has the part ""'],
  ['//a', 'has the part ""'],
  ['/a//b', 'has the part ""'],
  ['/a/../b', 'has the part ".."'],
  ['/..', 'has the part ".."'],
  ['/./a', 'has the part "."'],
  ['/a/.', 'has the part "."'],
  ['/a\0b', 'is taken by no disk'],
  ['/\ud800', 'is taken by no disk'],
  ['/.tapegate-forgotten/1/a', 'has a name that Tapegate keeps for itself'],
  [`/${'x'.repeat(256)}`, 'has a part longer than 255 bytes'],
  [`/${'ä'.repeat(128)}`, 'has a part longer than 255 bytes'],
  [`/${'a/'.repeat(1024)}a`, 'is longer than 2048 bytes'],
])('the path %# is refused as one of a file and as one that chooses files', (path, says) => {
  for (const check of [() => checkPath('files', path), () => chosenFiles(path, 'files')]) {
    expect(refusalOf(check)).toContain(`files has a path that ${says}`);
  }
});

test('a path of a file does not end with a slash, and the root chooses no files', () => {
  for (const path of ['/', '/a/']) {
    expect(refusalOf(() => checkPath('files', path))).toMatch(/^files has a path that has the part ""/);
  }
  const says = 'from must be a file or a folder, and not all there is: "/"';
  expect(refusalOf(() => chosenFiles('/', 'from'))).toBe(says);
});
