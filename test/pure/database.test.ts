/** SQL statements, database URLs, session settings, the database clock, and standbys. */
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { nameOfUrl, normalizeUrl, splitHosts } from '../../src/config/database-url.js';
import { NotFoundError, OverShareError, UnavailableError } from '../../src/core/errors.js';
import { DatabaseClock } from '../../src/db/clock.js';
import { findShortage } from '../../src/db/connections.js';
import { readEncryption } from '../../src/db/encryption.js';
import { askHosts } from '../../src/db/hosts.js';
import { inline } from '../../src/db/lists/copy.js';
import { withSettings } from '../../src/db/session-settings.js';
import { allOf, empty, join, raw, type Sql, sql } from '../../src/db/sql.js';
import { findMismatch, type Position } from '../../src/db/standby/standbys.js';
import { expectedAfterStart } from '../../src/domain/clock.js';
import { isOfStandby } from '../../src/domain/list-server.js';
import { Prisma } from '../../src/generated/prisma/client.js';

const plain = ({ text, values }: Sql) => ({ text, values });

test('a statement has the texts and values of its fragments', () => {
  const condition = (names: readonly string[] | undefined) => (names ? sql`name = ANY(${names})` : sql`true`);
  const make = (names: readonly string[] | undefined, direction: string, limit: number) =>
    sql`SELECT ${join([raw('a'), sql`${limit} + 1`])} FROM t WHERE ${condition(names)} ORDER BY a ${raw(direction)}${empty} LIMIT ${limit}`;
  expect(plain(make(['x'], 'ASC', 1))).toEqual({
    text: 'SELECT a,$1 + 1 FROM t WHERE name = ANY($2) ORDER BY a ASC LIMIT $3',
    values: [1, ['x'], 1],
  });
  expect(plain(make(undefined, 'DESC', 2))).toEqual({
    text: 'SELECT a,$1 + 1 FROM t WHERE true ORDER BY a DESC LIMIT $2',
    values: [2, 2],
  });
  expect(plain(join([sql`a = ${1}`, 2], ' OR '))).toEqual({ text: 'a = $1 OR $2', values: [1, 2] });
  expect(plain(allOf([]))).toEqual({ text: 'true', values: [] });
  expect(plain(allOf([sql`a`, sql`b = ${1}`]))).toEqual({ text: 'a AND b = $1', values: [1] });
  expect(() => join([])).toThrow(RangeError);
});

test('a statement for COPY has its values in its text, escaped', () => {
  const statement = sql`SELECT ${'a'}, ${"it's \\ $1"} WHERE ${null}::text IS NULL AND n = ${5n} AND ${true} AND p = ANY(${['b', 'c"\\,', null]})`;
  const literals = [`'a'`, ` E'it''s \\\\ $1'`, `'5'`, `'true'`, ` E'{"b","c\\\\"\\\\\\\\,",NULL}'`];
  const [a, its, five, yes, list] = literals;
  expect(inline(statement)).toBe(
    `SELECT ${a}, ${its} WHERE NULL::text IS NULL AND n = ${five} AND ${yes} AND p = ANY(${list})`,
  );
  for (const value of ['a\0b', ['\0'], new Date(), { a: 1 }, [[1]]])
    expect(() => inline(sql`SELECT ${value}`)).toThrow(TypeError);
});

test('options of a URL, the configuration or PGOPTIONS are set by the statement that sets the settings of a session', () => {
  const memoryOf = (config: pg.ClientConfig) => /\('work_mem', '(\w+)'/.exec(withSettings(config).setUp)?.[1];
  const url = 'postgresql://alice:s%40cret@db:5433/tapes?application_name=x';
  expect(memoryOf({})).toBe('64MB');
  expect(memoryOf({ options: '-c work_mem=5MB' })).toBe('5MB');
  expect(memoryOf({ connectionString: `${url}&options=-cwork_mem%3D6MB`, options: '--work-mem=5MB' })).toBe('6MB');
  vi.stubEnv('PGOPTIONS', '--work-mem=7MB');
  expect(memoryOf({ connectionString: url })).toBe('7MB');
  vi.unstubAllEnvs();
  const given = { options: "-e -c DateStyle=German -c a.b=it's\\ c", statement_timeout: 5000, keepAlive: true };
  const { config, setUp } = withSettings({ connectionString: url, ...given });
  expect(config).toEqual({
    ...{ user: 'alice', password: 's@cret', host: 'db', port: '5433', database: 'tapes' },
    ...{ application_name: 'x', keepAlive: true, options: '-e' },
  });
  for (const row of [
    "('DateStyle', 'ISO, MDY', NULL)",
    "('a.b', 'it''s c', NULL)",
    "('statement_timeout', '5000', NULL)",
  ])
    expect(setUp).toContain(row);
});

test('fragments of Prisma are accepted', () => {
  for (const part of [Prisma.sql`a = ${1}`, Prisma.sql`b IN (${1}, ${2})`, 3]) {
    expect(plain(sql`SELECT ${part}`)).toEqual(plain(Prisma.sql`SELECT ${part}`));
  }
});

test.each([
  [
    'postgresql://u:p,w%40@a,b:5433/tapes?sslmode=require',
    ['a', 'b:5433'].map((h) => `postgresql://u:p,w%40@${h}/tapes?sslmode=require`),
  ],
  ['postgres://a,[::1]:5433/tapes', ['postgres://a/tapes', 'postgres://[::1]:5433/tapes']],
  ['postgresql://a/tapes?options=-c%20x,y', ['postgresql://a/tapes?options=-c%20x,y']],
  ['postgresql:///tapes?host=/run/postgresql', ['postgresql:///tapes?host=/run/postgresql']],
  ['postgresql://a/ta,pes', ['postgresql://a/ta,pes']],
])('%s is split into a URL for each server', (url, urls) => {
  expect(splitHosts(url)).toEqual(urls);
});

test.each([
  ['postgresql://u:p@/db?host=/run/pg', { user: 'u', password: 'p', host: '/run/pg', database: 'db' }, '/run/pg/db'],
  ['postgresql://u:p%2B+%26@/db?host=%2Frun%2Fpg', { user: 'u', password: 'p++&', host: '/run/pg' }, '/run/pg/db'],
  ['postgresql://u@:5433/db', { user: 'u', port: '5433', database: 'db' }, '/db'],
  ['postgresql://:5433', { port: '5433', database: null }, '/'],
  ['postgres://u@', { user: 'u', database: null }, '/'],
  ['postgresql://u:p@h:1/db?sslmode=disable', { user: 'u', password: 'p', host: 'h', port: '1' }, 'h:1/db'],
])('%s is read as libpq does', (url, expected, name) => {
  const normal = normalizeUrl(url);
  expect(withSettings({ connectionString: normal }).config).toMatchObject(expected);
  expect(nameOfUrl(normal)).toBe(name);
});

test('an unknown port, host or database is left to the defaults of pg', () => {
  expect(normalizeUrl('postgresql:///db')).toBe('postgresql:///db');
  expect(normalizeUrl('postgresql://')).toBe('postgresql://');
});

test('a server without TLS needs an operator, unless this process was connected to it before: then it is away', () => {
  const url = 'postgresql://u@had-tls/db?sslmode=require';
  const error = new Error('The server does not support SSL connections');
  const message = expect.stringContaining(
    'does not support TLS, and sslmode=require requires it: enable ssl on the server',
  );
  expect(readEncryption(url).explain(error)).toMatchObject({ message });
  readEncryption(url).recordConnected();
  expect(readEncryption(url).explain(error)).toBe(error);
});

test('the name of a URL contains all servers and no secret', () => {
  expect(nameOfUrl('postgresql://u:secret@a,b:5433/tapes')).toBe('a,b:5433/tapes');
  expect(nameOfUrl('postgresql:///tapes?host=/run/postgresql')).toBe('/run/postgresql/tapes');
});

const limits = { role: 'tapes', database: 'archive', isSuperuser: false, ofServer: 97, ofRole: -1, ofDatabase: -1 };

test.each([
  [{}, undefined],
  [{ ofServer: 43 }, undefined],
  [
    { ofServer: 42 },
    'max_connections on the server allows only 42 connections, but this process needs up to 43: raise max_connections, and restart the server',
  ],
  [
    { ofServer: 42, ofRole: 20 },
    'the CONNECTION LIMIT of role "tapes" allows only 20 connections, but this process needs up to 43: run ALTER ROLE "tapes" CONNECTION LIMIT -1',
  ],
  [{ ofRole: 0, ofDatabase: 0, isSuperuser: true }, undefined],
])('the shortage of a process that needs 4 to 43 connections is reported: %o', (changes, warning) => {
  expect(findShortage({ ...limits, ...changes }, { least: 4, most: 43 })).toBe(warning);
});

test('a process without the connections that it needs while idle does not start', () => {
  expect(() => findShortage({ ...limits, ofDatabase: 3 }, { least: 4, most: 43 })).toThrow(
    'the CONNECTION LIMIT of database "archive" allows only 3 connections, but this process needs at least 4: run ALTER DATABASE "archive" CONNECTION LIMIT -1',
  );
});

test('the first answer of a server counts; a refusal counts more than a server that is away', async () => {
  const away = Object.assign(new Error('away'), { syscall: 'connect' });
  const answers: Record<string, unknown> = {
    'postgresql://a/t': away,
    'postgresql://b/t': 'here',
    'postgresql://c/t': new Error('no'),
  };
  const ask = async (url: string) => {
    const answer = answers[url];
    if (answer instanceof Error) throw answer;
    return answer;
  };
  expect(await askHosts('postgresql://a,b,c/t', ask)).toBe('here');
  await expect(askHosts('postgresql://a,c/t', ask)).rejects.toThrow('no');
  await expect(askHosts('postgresql://a/t', ask)).rejects.toThrow('away');
});

describe('the clock', () => {
  /** Time on the process' monotonic clock, in milliseconds. */
  let elapsedMs: number;

  beforeEach(() => {
    elapsedMs = 5000;
    vi.spyOn(performance, 'now').mockImplementation(() => elapsedMs);
  });
  afterEach(() => {
    vi.restoreAllMocks();
  });

  /**
   * Sets the clock from a database answer. `seconds` counts from the beginning of 2026, and `tookMs` is the duration of
   * the query.
   */
  function set(clock: DatabaseClock, seconds: number, tookMs = 0): void {
    clock.set(Date.UTC(2026, 0, 1) * 1000 + seconds * 1e6, { from: elapsedMs - tookMs, until: elapsedMs });
  }

  test('the clock continues from the time of the database, to the microsecond', () => {
    const clock = new DatabaseClock();
    set(clock, 60.000007);
    expect(clock.now()).toBe('2026-01-01T00:01:00.000007');
    elapsedMs += 1500.25;
    expect(clock.now()).toBe('2026-01-01T00:01:01.500257');
  });

  test('an answer is the time of its middle, and a slow answer does not replace a fast one', () => {
    const clock = new DatabaseClock();
    set(clock, 60, 200);
    expect(clock.now()).toBe('2026-01-01T00:01:00.100000');
    set(clock, 59, 4000); // 58 to 62
    expect(clock.now()).toBe('2026-01-01T00:01:00.100000');
    set(clock, 60.05, 20);
    expect(clock.now()).toBe('2026-01-01T00:01:00.100000');
    elapsedMs += 100;
    expect(clock.now()).toBe('2026-01-01T00:01:00.160000');
  });

  test('a slow answer counts if it contradicts the clock', () => {
    const clock = new DatabaseClock();
    set(clock, 60);
    set(clock, 80, 4000);
    expect(clock.now()).toBe('2026-01-01T00:01:22');
  });

  test('the clock stops for a small step back of the database, and follows a large one', () => {
    const clock = new DatabaseClock();
    set(clock, 60);
    expect(clock.now()).toBe('2026-01-01T00:01:00');
    set(clock, 59.5);
    expect(clock.now()).toBe('2026-01-01T00:01:00');
    set(clock, 30);
    expect(clock.now()).toBe('2026-01-01T00:00:30');
  });

  test.each([
    ['ahead', 86_400],
    ['back', -86_400],
  ])('the clock goes on as before while that of the database is set a day %s', (_side, jump) => {
    const clock = new DatabaseClock();
    set(clock, 60);
    elapsedMs += 2000;
    set(clock, 62 + jump);
    expect([clock.now(), clock.aheadSeconds]).toEqual(['2026-01-01T00:01:02', jump]);
    elapsedMs += 1000;
    expect([clock.now(), clock.serverSeconds]).toEqual([
      '2026-01-01T00:01:03',
      Date.UTC(2026, 0, 1) / 1000 + 63 + jump,
    ]);
    set(clock, 63.5);
    expect([clock.now(), clock.aheadSeconds]).toEqual(['2026-01-01T00:01:03.500000', 0]);
    set(clock, 63 + jump);
    clock.accept();
    expect([clock.now().slice(0, 10), clock.aheadSeconds]).toEqual([jump > 0 ? '2026-01-02' : '2025-12-31', 0]);
  });

  test('a clock that runs twice as fast is implausible after a minute', () => {
    const clock = new DatabaseClock();
    set(clock, 0);
    for (let second = 1; second <= 70; second++) {
      elapsedMs += 1000;
      set(clock, 2 * second);
    }
    expect(clock.aheadSeconds).toBeGreaterThan(5);
    expect(clock.now() < '2026-01-01T00:02:15').toBe(true);
  });

  test('a drift that takes hours is followed', () => {
    const clock = new DatabaseClock();
    for (let hour = 0; hour < 24; hour += 0.1) {
      set(clock, hour * 3600 * 1.001);
      elapsedMs += 360_000;
    }
    expect(clock.aheadSeconds).toBe(0);
  });
});

describe('the time after a start of the host', () => {
  const hour = 3600;
  const last = 1_000_000;

  test.each<
    [what: string, server: number, known: { ahead?: number; host: number }, expected: number | string | undefined]
  >([
    ['a short stop', 60, { host: 60 }, undefined],
    ['a server clock that went back', -hour, { host: 60 }, 0],
    ['a long stop, in which nothing is known of the clocks', 50 * hour, { host: 50 * hour }, 'unknown'],
    ['a server clock that alone is far ahead', 50 * hour, { host: 60 }, 60],
    ['a host whose own clock is behind all the time', 50 * hour, { host: -50 * hour }, 'unknown'],
    ['a jump that was known before', 50 * hour, { ahead: 49 * hour, host: 50 * hour }, hour],
    ['a jump that was known before, and is over', hour / 2, { ahead: 49 * hour, host: hour / 2 }, undefined],
  ])('%s', (_what, server, { ahead = 0, host }, expected) => {
    const found = expectedAfterStart(last + server, { last, ahead, host: last + host });
    expect(typeof found === 'number' ? found - last : found).toBe(expected);
  });
});

const primary: Position = { isStandby: false, system: 7n, timeline: 2, database: 'tapes', reached: 100n };
const standby: Position = { ...primary, isStandby: true, reached: 90n };

test.each<[string | undefined, Partial<Position>]>([
  [undefined, {}],
  ['the server is not a standby', { isStandby: false }],
  ['the server is not a standby of the primary', { system: 8n }],
  ['the URL of the standby names database other, not tapes', { database: 'other' }],
  ['the standby follows timeline 1, but the primary is on timeline 2', { timeline: 1 }],
  ['the standby follows timeline 3, but the primary is on timeline 2', { timeline: 3 }],
])('the problem of a standby is: %s', (problem, is) => {
  expect(findMismatch({ ...standby, ...is }, primary)).toBe(problem);
});

const ofPostgres = (code: string) => Object.assign(new pg.DatabaseError('x', 1, 'error'), { code });
const busy = (cause?: unknown) => new UnavailableError('busy', 'x', cause);

test.each([
  ['cancelled by replay', ofPostgres('40001'), true],
  ['deadlock with replay', ofPostgres('40P01'), true],
  ['gone', new UnavailableError('away', 'x', ofPostgres('57P01')), true],
  ['without a free connection', busy(ofPostgres('53300')), true],
  ['time limit', busy(ofPostgres('57014')), false],
  ['no free slot', busy(), false],
  ['over its share', new OverShareError('x'), false],
  ['an error of the caller', new NotFoundError('x'), false],
])('whether a failed read is repeated at the primary: %s', (_what, error, isAgain) => {
  expect(isOfStandby(error)).toBe(isAgain);
});
