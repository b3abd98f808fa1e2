/** File lists that PostgreSQL writes as JSON: their exact output and their cost. */
import { expect, test } from 'vitest';
import { timeFromDatabase } from '../../src/core/time.js';
import { readTextList } from '../../src/db/lists/text-lists.js';
import { type Sql, sql } from '../../src/db/sql.js';
import { startBeside } from '../support/app.js';
import { ask } from '../support/graphql.js';
import { get, read } from '../support/rest.js';
import { recordStatements } from '../support/statements.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const app = useApp();

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

const removeFiles = () => app.ctx.db.pool.query(sql`DELETE FROM tape_file`);

const byBytes = (a: Row, b: Row) => Buffer.compare(Buffer.from(a.path), Buffer.from(b.path));

function listOf(rows: readonly Row[]): string {
  const files = rows.toSorted(byBytes).map(({ path, spot, stage, verified, size }) => ({
    path,
    'spot-name': spot,
    stage: LETTERS[stage],
    verified: verified === null ? null : timeFromDatabase(verified),
    size,
  }));
  const text = JSON.stringify([{ count: rows.length, files }], (_key, value) =>
    typeof value === 'bigint' ? String(value) : value,
  );
  return text.replace(/"size":"(\d+)"/g, '"size":$1');
}

test('a list has the bytes of JSON.stringify, whatever its files are called', async () => {
  const characters = [
    ...'"\\/\b\f\n\r\t\x01\x1f\x7f\x80\x9f\u00a0\u2028\u2029\ufeff\ufffd\uffff\ue000<>&\'%_é',
    '🧲',
    '\u{10ffff}',
  ];
  const stages = Object.keys(LETTERS) as Row['stage'][];
  const sizes = [0n, 1n, 2n ** 53n, 2n ** 53n + 1n, 2n ** 63n - 1n];
  const fractions = ['', '.5', '.000001', '.999999', '.12', '.1', '.0001'];
  const buildRow = (n: number): Row => {
    const at = <T>(values: readonly T[]) => values[n % values.length] as T;
    return {
      path: `${at(characters)}/${n}${at(characters)}`,
      spot: n % 3 === 0 ? null : `${at(characters)}${n % 3 === 1 ? '' : 'spot'}`,
      stage: at(stages),
      verified: n % 4 === 0 ? null : `${at(['0001', '1969', '2026', '9999'])}-02-28 23:59:59${at(fractions)}`,
      size: at(sizes),
    };
  };
  // lists of more than 2000 rows are read by another query
  for (const count of [characters.length * 5, 2100]) {
    const rows = Array.from({ length: count }, (_, n) => buildRow(n));
    await removeFiles();
    await insert(rows);
    expect((await get(app, '/files?spot-name=true')).text).toBe(listOf(rows));
  }
  await removeFiles();
});

test('a short list takes one statement with its count, a count of GraphQL one, and a page of a search two', async () => {
  await insert(['/few/a', '/few/b'].map((path) => ({ path, spot: null, stage: 'ONTAPE', verified: null, size: 1n })));
  const textsOf = async (work: () => Promise<unknown>) => (await recordStatements(work)).map(({ text }) => text);
  for (const path of ['/files?match=/few/', '/files?match=/none/', '/requests'])
    expect(await textsOf(() => read(app, path))).toHaveLength(1);
  const query = (fields: string) => ask(app, `{ tapeFiles(match: "/few/") { ${fields} } }`);
  expect(await textsOf(() => query('totalCount'))).toHaveLength(1);
  // the first statement finds out which blocks of paths to read
  expect(await textsOf(() => query('edges { node { path } }'))).toHaveLength(2);
  await removeFiles();
});

test('the timeout of a short statement does not remain on its connection', async () => {
  await read(app, '/files?match=/none/');
  const clients = await Promise.all(Array.from({ length: 20 }, () => app.ctx.db.pool.connect()));
  const bounds = await Promise.all(
    clients.map((client) => client.query(sql`SELECT current_setting('statement_timeout') AS bound`)),
  );
  for (const client of clients) client.release();
  expect(new Set(bounds.map(({ rows }) => rows[0].bound))).toEqual(new Set(['5min']));
});

test('a list of more than 200,000 rows is complete and in order', async () => {
  const count = 200_001;
  const list = {
    rows: sql`generate_series(${count}::int, 1, -1) AS f (id) WHERE f.id > 0`,
    columns: sql`f.id`,
    item: sql`f.id::text`,
    order: sql`f.id`,
    again: { key: sql`f.id`, rows: (keys: Sql) => sql`unnest(${keys}) AS f (id)` },
  };
  const read = await readTextList({ db: app.ctx.db }, list, async (total, pages) => {
    let text = '';
    for await (const page of pages) text += Buffer.concat(page);
    return { total, text };
  });
  const text = Array.from({ length: count }, (_, n) => n + 1).join(',');
  expect([read.total, read.text === text]).toEqual([BigInt(count), true]);
});

test('a list whose connection ends in the middle fails, and its connection is replaced', async () => {
  const { db } = app.ctx;
  const list = {
    rows: sql`generate_series(1, ${300_000}::int) AS f (id) WHERE f.id > 0`,
    columns: sql`f.id`,
    item: sql`f.id::text || repeat(' ', 100)`,
    order: sql`f.id`,
  };
  const copying = sql`SELECT pg_terminate_backend(pid) AS ended FROM pg_stat_activity
    WHERE datname = current_database() AND state = 'active' AND query LIKE 'COPY %'`;
  for (const end of ['by the server', 'by the reader']) {
    let pages = 0;
    const reading = readTextList({ db }, list, async (_count, parts) => {
      for await (const _ of parts) {
        if (pages++ > 0) continue;
        if (end === 'by the reader') throw new Error('the reader has left');
        expect((await db.pool.query(copying)).rows).toEqual([{ ended: true }]);
      }
    });
    await expect(reading).rejects.toThrow(
      end === 'by the reader' ? 'the reader has left' : 'the database does not answer',
    );
    await waitFor('the server to end the list', async () => (await db.pool.query(copying)).rowCount === 0);
    expect(db.streamPool.totalCount).toBe(db.streamPool.idleCount);
  }
});

test('a list that takes its database too long fails', async () => {
  const slow = await startBeside(app, { database: { statementMs: 500 } });
  const list = {
    rows: sql`generate_series(1, 3000) AS f (id) WHERE f.id > 0`,
    columns: sql`f.id`,
    item: sql`f.id::text || CASE f.id WHEN 2500 THEN pg_sleep(60)::text ELSE '' END`,
    order: sql`f.id`,
  };
  const reading = readTextList({ db: slow.ctx.db }, list, async (_count, parts) => {
    for await (const _ of parts);
  });
  await expect(reading).rejects.toThrow('the database is too busy');
  await slow.close();
});
