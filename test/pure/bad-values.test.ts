/**
 * Values with bad types and bad paths. The contract tests R18, R70, R84 and R87 cover other bad values.
 * `gateway/bad-input.test.ts` sends one bad value for each field.
 */
import { expect, test } from 'vitest';
import { newRequest, parse } from '../../rest/v1/body.js';
import { readEncryption } from '../../src/db/encryption.js';
import { chosenFiles } from '../../src/domain/catalogue/chosen-files.js';
import { checkAddress, checkPath } from '../../src/domain/input.js';
import { findMedium } from '../../src/planner/media.js';
import { failureOf, fileErrorOf } from '../../src/tape/s3/failures.js';

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
  [['/a'], 'an array of one element'],
  [[], 'an array of 0 elements'],
])('%s is neither a string nor a path', (value, name) => {
  const read = (fields: object) => refusalOf(() => parse(newRequest, { quota: 'a', ...fields }));
  const [label, file] = [`label must be a string, not ${name}`, `files must contain strings, not ${name}`];
  expect(read({ label: value, files: ['/a', value] })).toBe(`${label}; ${file}`);
  if (!Array.isArray(value)) expect(read({ files: value })).toBe(`files must be a list of paths, not ${name}`);
});

test.each([
  ['', 'does not begin with "/": ""'],
  ['a', 'does not begin with "/": "a"'],
  ['../a', 'does not begin with "/"'],
  ['C:\\a', 'does not begin with "/"'],
  ['//', 'contains the part ""'],
  ['//a', 'contains the part ""'],
  ['/a//b', 'contains the part ""'],
  ['/a/../b', 'contains the part ".."'],
  ['/..', 'contains the part ".."'],
  ['/./a', 'contains the part "."'],
  ['/a/.', 'contains the part "."'],
  ['/a\0b', 'contains NUL or invalid Unicode'],
  ['/\ud800', 'contains NUL or invalid Unicode'],
  ['/.tapegate-purged/1/a', 'contains a reserved name (.tapegate-…)'],
  [`/${'x'.repeat(256)}`, 'contains a part longer than 255 bytes'],
  [`/${'ä'.repeat(128)}`, 'contains a part longer than 255 bytes'],
  [`/${'a/'.repeat(1024)}a`, 'is longer than 2048 bytes'],
])('the path %# is refused as one of a file and as one that chooses files', (path, says) => {
  for (const check of [() => checkPath('files', path), () => chosenFiles(path, 'files')]) {
    expect(refusalOf(check)).toContain(`files has a path that ${says}`);
  }
});

test('a path of a file does not end with a slash, and the root chooses no files', () => {
  for (const path of ['/', '/a/']) {
    expect(refusalOf(() => checkPath('files', path))).toMatch(/^files has a path that contains the part ""/);
  }
  const says = 'from must be a file or a directory, not "/"';
  expect(refusalOf(() => chosenFiles('/', 'from'))).toBe(says);
});

test.each([
  ['a\u202eb@x.org', 'must be an email address without invisible characters, not "a\ufffdb@x.org"'],
  ['a@x\u200b.org', 'must be an email address without invisible characters, not "a@x\ufffd.org"'],
  ['a@b..c', 'must not have a domain with a leading, trailing or double dot: "a@b..c"'],
  ['a@.b', 'must not have a domain with a leading, trailing or double dot: "a@.b"'],
  ['a@b.', 'must not have a domain with a leading, trailing or double dot: "a@b."'],
])('the email address %j is refused', (address, says) => {
  expect(refusalOf(() => checkAddress('email', address))).toBe(`email ${says}`);
  expect(refusalOf(() => checkAddress('email', 'a.b+c@localhost'))).toBe('accepted: "a.b+c@localhost"');
});

test.each(['constructor', '__proto__', 'toString'])('a lookup of "%s" finds nothing', (name) => {
  expect(findMedium(name)).toBe(findMedium('linear'));
  expect(readEncryption(`postgres://localhost/tapes?sslmode=${name}`).learn(new Error('no TLS'))).toBe(false);
  const failure = failureOf({ Code: name, $metadata: { httpStatusCode: 400 } }, 'GetObject');
  expect(fileErrorOf(failure).errorClass).toBe('PERMANENT');
});
