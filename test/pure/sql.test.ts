/** Statements are put together of fragments, and have the text of the fragments that they are made of, however often that is. */
import { expect, test } from 'vitest';
import { allOf, empty, join, raw, type Sql, sql } from '../../src/database/sql.js';
import { Prisma } from '../../src/generated/prisma/client.js';

const told = ({ text, values }: Sql) => ({ text, values });

test('a statement has the texts of its fragments, and their values in order, each time it is made', () => {
  const condition = (names: readonly string[] | undefined) => (names ? sql`name = ANY(${names})` : sql`true`);
  const make = (names: readonly string[] | undefined, direction: string, limit: number) =>
    sql`SELECT ${join([raw('a'), sql`${limit} + 1`])} FROM t WHERE ${condition(names)} ORDER BY a ${raw(direction)}${empty} LIMIT ${limit}`;
  for (const limit of [1, 2]) {
    for (const direction of ['ASC', 'DESC']) {
      expect(told(make(['x'], direction, limit))).toEqual({
        text: `SELECT a,$1 + 1 FROM t WHERE name = ANY($2) ORDER BY a ${direction} LIMIT $3`,
        values: [limit, ['x'], limit],
      });
      expect(told(make(undefined, direction, limit))).toEqual({
        text: `SELECT a,$1 + 1 FROM t WHERE true ORDER BY a ${direction} LIMIT $2`,
        values: [limit, limit],
      });
    }
  }
});

test('lists of other lengths, separators and parts are other statements', () => {
  const of = (count: number) => Array.from({ length: count }, (_, n) => n);
  for (const _ of [1, 2]) {
    expect(told(join(of(2)))).toEqual({ text: '$1,$2', values: [0, 1] });
    expect(told(join(of(3)))).toEqual({ text: '$1,$2,$3', values: [0, 1, 2] });
    expect(told(join(of(2), ' OR '))).toEqual({ text: '$1 OR $2', values: [0, 1] });
    expect(told(join([sql`a = ${1}`, 2], ' OR '))).toEqual({ text: 'a = $1 OR $2', values: [1, 2] });
    expect(told(join([2, sql`a = ${1}`], ' OR '))).toEqual({ text: '$1 OR a = $2', values: [2, 1] });
    expect(told(raw(' OR '))).toEqual({ text: ' OR ', values: [] });
    expect(told(sql`${1}${raw(',')}${2}`)).toEqual({ text: '$1,$2', values: [1, 2] });
    expect(told(allOf([]))).toEqual({ text: 'true', values: [] });
    expect(told(allOf([sql`a`, sql`b = ${1}`]))).toEqual({ text: 'a AND b = $1', values: [1] });
  }
  expect(() => join([])).toThrow(RangeError);
});

test('beyond the forms that are remembered statements are as right', () => {
  const names = Array.from({ length: 10_000 }, (_, n) => `c${n}`);
  const made = names.map((name, n) => told(sql`SELECT ${raw(name)} WHERE a = ${n}`));
  expect(made).toEqual(names.map((name, n) => ({ text: `SELECT ${name} WHERE a = $1`, values: [n] })));
});

test('a fragment that was made elsewhere is taken for what it is', () => {
  for (const part of [Prisma.sql`a = ${1}`, Prisma.sql`b IN (${1}, ${2})`, 3]) {
    expect(told(sql`SELECT ${part}`)).toEqual(told(Prisma.sql`SELECT ${part}`));
  }
});
