/** Lists of files as the database writes them: their bytes, their counts, and what they cost. */
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Sql, sql } from '../../src/database/sql.js';
import { readTextList } from '../../src/database/text-lists.js';
import { timeFromDatabase } from '../../src/time.js';
import { startApp, type TestApp } from '../support/app.js';
import { ask } from '../support/graphql.js';
import { get, read } from '../support/rest.js';
import { recordStatements } from '../support/statements.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
});
afterAll(() => app.close());

const LETTERS = { UNVERIFIED: 'U', ONDISK: 'D', ONTAPE: 'T', RESTORING: 'A', RESTORED: 'R' };

interface Row {
  path: string;
  spot: string | null;
  stage: keyof typeof LETTERS;
  verified: string | null;
  size: bigint;
}

async function insert(rows: readonly Row[]): Promise<void> {
  await app.ctx.db.pool.query(
    sql`INSERT INTO tape_file (path, spot_name, stage, verified, size)
        SELECT * FROM unnest(${rows.map(({ path }) => path)}::text[], ${rows.map(({ spot }) => spot)}::text[],
          ${rows.map(({ stage }) => stage)}::"Stage"[], ${rows.map(({ verified }) => verified)}::timestamp[],
          ${rows.map(({ size }) => String(size))}::bigint[])`,
  );
}

const forget = () => app.ctx.db.pool.query(sql`DELETE FROM tape_file`);

const byBytes = (a: Row, b: Row) => Buffer.compare(Buffer.from(a.path), Buffer.from(b.path));

/** As JSON.stringify writes it. */
function listOf(rows: readonly Row[]): string {
  const files = rows.toSorted(byBytes).map(({ path, spot, stage, verified, size }) => ({
    path,
    'spot-name': spot,
    stage: LETTERS[stage],
    verified: verified === null ? null : timeFromDatabase(verified),
    size,
  }));
  return JSON.stringify([{ count: rows.length, files }]);
}

/** Any text that PostgreSQL keeps, with more of what one JSON or another escapes. */
const character = fc.oneof(
  fc.constantFrom(
    ...'"\\/\b\f\n\r\t\x01\x1f\x7f\x80\x9f\u00a0\u2028\u2029\ufeff\ufffd\uffff\ue000<>&\'%_',
    '🧲',
    '\u{10ffff}',
  ),
  fc.string({ unit: 'binary', minLength: 1, maxLength: 1 }),
);
const text = fc.string({ unit: character, maxLength: 40 }).map((each) => each.replaceAll('\0', '\x02'));
const time = fc
  .tuple(
    fc.integer({ min: 1, max: 9999 }),
    fc.constantFrom('', '.5', '.000001', '.999999', '.12', '.100000', '.000100'),
  )
  .map(([year, fraction]) => `${String(year).padStart(4, '0')}-02-28 23:59:59${fraction.replace(/0+$/, '')}`);
const row: fc.Arbitrary<Row> = fc.record({
  path: text,
  spot: fc.option(text),
  stage: fc.constantFrom('UNVERIFIED', 'ONDISK', 'ONTAPE', 'RESTORING', 'RESTORED'),
  verified: fc.option(time),
  size: fc.oneof(fc.constantFrom(0n, 2n ** 53n, 2n ** 53n + 1n, 2n ** 63n - 1n), fc.bigInt(0n, 2n ** 63n - 1n)),
});

test('whatever is in the catalogue, a list has the bytes of JSON.stringify, be it short or long', async () => {
  const lists = fc.uniqueArray(row, { minLength: 1, maxLength: 60, selector: ({ path }) => path });
  await fc.assert(
    fc.asyncProperty(lists, fc.boolean(), async (rows, isLong) => {
      // more than are short, of the same kinds
      const all = isLong
        ? Array.from(
            { length: 2100 },
            (_, n) => ({ ...rows[n % rows.length], path: `${rows[n % rows.length]?.path}${n}~` }) as Row,
          )
        : rows;
      await forget();
      await insert(all);
      expect((await get(app, '/files?spot-name=true')).text).toBe(listOf(all));
    }),
    { numRuns: 6 },
  );
  await forget();
});

test('a list of few files is one statement with its count, and so are a count and a page of GraphQL', async () => {
  await insert(['/few/a', '/few/b'].map((path) => ({ path, spot: null, stage: 'ONTAPE', verified: null, size: 1n })));
  const textsOf = async (work: () => Promise<unknown>) => (await recordStatements(work)).map(({ text }) => text);
  expect(await textsOf(() => read(app, '/files?match=/few/'))).toHaveLength(1);
  expect(await textsOf(() => read(app, '/files?match=/none/'))).toHaveLength(1);
  expect(await textsOf(() => read(app, '/requests'))).toHaveLength(1);
  expect(await textsOf(() => ask(app, '{ tapeFiles(match: "/few/") { totalCount } }'))).toHaveLength(1);
  expect(await textsOf(() => ask(app, '{ tapeFiles(match: "/few/") { edges { node { path } } } }'))).toHaveLength(1);
  await forget();
});

test('the bound of a short statement is gone with it', async () => {
  await read(app, '/files?match=/none/');
  const clients = await Promise.all(Array.from({ length: 20 }, () => app.ctx.db.pool.connect()));
  const bounds = await Promise.all(
    clients.map((client) => client.query(sql`SELECT current_setting('statement_timeout') AS bound`)),
  );
  for (const client of clients) client.release();
  expect(new Set(bounds.map(({ rows }) => rows[0].bound))).toEqual(new Set(['5min']));
});

test('a long list has its count and all of its rows in order, and a reader may leave in its middle', async () => {
  const rows = Array.from({ length: 2400 }, (_, n) => `/long/${String((n * 7) % 2400).padStart(4, '0')}`);
  await insert(rows.map((path) => ({ path, spot: null, stage: 'ONTAPE', verified: null, size: 1n })));
  const list = {
    rows: sql`tape_file f WHERE f.path LIKE '/long/%'`,
    columns: sql`f.path`,
    item: sql`f.path`,
    order: sql`f.path`,
  };
  const whole = await readTextList({ db: app.ctx.db }, list, async (count, pages) => {
    let text = '';
    for await (const page of pages) text += Buffer.concat(page);
    return { count, text };
  });
  expect(whole).toEqual({ count: 2400n, text: rows.toSorted().join(',') });
  const left = readTextList({ db: app.ctx.db }, list, async (_count, pages) => {
    for await (const page of pages) throw new Error(`left after ${page[0]?.subarray(0, 10)}`);
  });
  await expect(left).rejects.toThrow('left after /long/0000');
  const { totalCount, idleCount, waitingCount } = app.ctx.db.streamPool;
  expect([idleCount, waitingCount]).toEqual([totalCount, 0]);
  await forget();
});

test.each([
  [200_000, 2],
  [200_001, 4],
])('of a list of %i rows all are told in order, which are looked for %i times in all', async (count, times) => {
  const list = {
    rows: sql`generate_series(${count}::int, 1, -1) AS f (id) WHERE f.id > 0`,
    columns: sql`f.id`,
    item: sql`f.id::text`,
    order: sql`f.id`,
    again: { key: sql`f.id`, rows: (keys: Sql) => sql`unnest(${keys}) AS f (id)` },
  };
  let told: string[] = [];
  const statements = await recordStatements(() =>
    readTextList({ db: app.ctx.db }, list, async (total, pages) => {
      expect(total).toBe(BigInt(count));
      let text = '';
      for await (const page of pages) text += Buffer.concat(page);
      told = text.split(',');
    }),
  );
  expect(told).toEqual(Array.from({ length: count }, (_, n) => String(n + 1)));
  expect(statements.filter(({ text }) => text.includes('generate_series'))).toHaveLength(times);
});

test('a list that fails in its middle says what has failed, and leaves its connection whole', async () => {
  const paths = Array.from({ length: 4100 }, (_, n) => `/fails/${String(n).padStart(4, '0')}`);
  await insert(paths.map((path) => ({ path, spot: null, stage: 'ONTAPE', verified: null, size: 1n })));
  const list = {
    rows: sql`tape_file f WHERE f.path LIKE '/fails/%'`,
    columns: sql`f.path`,
    item: sql`(1 / (right(f.path, 4)::int - 4050))::text`,
    order: sql`f.path`,
  };
  const pages: number[] = [];
  const failed = readTextList({ db: app.ctx.db }, list, async (_count, texts) => {
    for await (const page of texts) pages.push(Buffer.concat(page).toString().split(',').length);
  });
  await expect(failed).rejects.toThrow('division by zero');
  expect(pages.length).toBeGreaterThan(0);
  const { totalCount, idleCount } = app.ctx.db.streamPool;
  expect(idleCount).toBe(totalCount);
  await forget();
});
