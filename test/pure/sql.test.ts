/** SQL statements that are composed of fragments. */
import { expect, test } from 'vitest';
import { allOf, empty, join, raw, type Sql, sql } from '../../src/database/sql.js';
import { Prisma } from '../../src/generated/prisma/client.js';

const plain = ({ text, values }: Sql) => ({ text, values });

test('a statement has the texts and values of its fragments, also when it is built again', () => {
  const condition = (names: readonly string[] | undefined) => (names ? sql`name = ANY(${names})` : sql`true`);
  const make = (names: readonly string[] | undefined, direction: string, limit: number) =>
    sql`SELECT ${join([raw('a'), sql`${limit} + 1`])} FROM t WHERE ${condition(names)} ORDER BY a ${raw(direction)}${empty} LIMIT ${limit}`;
  for (const limit of [1, 2]) {
    for (const direction of ['ASC', 'DESC']) {
      expect(plain(make(['x'], direction, limit))).toEqual({
        text: `SELECT a,$1 + 1 FROM t WHERE name = ANY($2) ORDER BY a ${direction} LIMIT $3`,
        values: [limit, ['x'], limit],
      });
      expect(plain(make(undefined, direction, limit))).toEqual({
        text: `SELECT a,$1 + 1 FROM t WHERE true ORDER BY a ${direction} LIMIT $2`,
        values: [limit, limit],
      });
    }
  }
});

test('lists of different lengths, separators and parts are different statements', () => {
  const of = (count: number) => Array.from({ length: count }, (_, n) => n);
  for (const _ of [1, 2]) {
    expect(plain(join(of(2)))).toEqual({ text: '$1,$2', values: [0, 1] });
    expect(plain(join(of(3)))).toEqual({ text: '$1,$2,$3', values: [0, 1, 2] });
    expect(plain(join(of(2), ' OR '))).toEqual({ text: '$1 OR $2', values: [0, 1] });
    expect(plain(join([sql`a = ${1}`, 2], ' OR '))).toEqual({ text: 'a = $1 OR $2', values: [1, 2] });
    expect(plain(join([2, sql`a = ${1}`], ' OR '))).toEqual({ text: '$1 OR a = $2', values: [2, 1] });
    expect(plain(raw(' OR '))).toEqual({ text: ' OR ', values: [] });
    expect(plain(sql`${1}${raw(',')}${2}`)).toEqual({ text: '$1,$2', values: [1, 2] });
    expect(plain(allOf([]))).toEqual({ text: 'true', values: [] });
    expect(plain(allOf([sql`a`, sql`b = ${1}`]))).toEqual({ text: 'a AND b = $1', values: [1] });
  }
  expect(() => join([])).toThrow(RangeError);
});

test('more statements than are cached are right', () => {
  const names = Array.from({ length: 10_000 }, (_, n) => `c${n}`);
  const made = names.map((name, n) => plain(sql`SELECT ${raw(name)} WHERE a = ${n}`));
  expect(made).toEqual(names.map((name, n) => ({ text: `SELECT ${name} WHERE a = $1`, values: [n] })));
});

test('fragments of Prisma are accepted', () => {
  for (const part of [Prisma.sql`a = ${1}`, Prisma.sql`b IN (${1}, ${2})`, 3]) {
    expect(plain(sql`SELECT ${part}`)).toEqual(plain(Prisma.sql`SELECT ${part}`));
  }
});
