/** Searches with blocks of paths: they find the same files as a search that tests every path. */
import fc from 'fast-check';
import { afterEach, expect, test } from 'vitest';
import { sql } from '../../src/db/sql.js';
import { blockSize, updatePathBlocks } from '../../src/domain/catalogue/block-upkeep.js';
import { parseSearch } from '../../src/domain/file-search.js';
import { matchesTerms } from '../../src/domain/match.js';
import { askData, sendGraphql } from '../support/graphql.js';
import { lock } from '../support/locks.js';
import { recordStatements } from '../support/statements.js';
import { useApp } from '../support/use-app.js';
import { waitFor } from '../support/wait.js';

const app = useApp();
const query = (text: string) => app.ctx.db.pool.query(text);
const update = () => updatePathBlocks(app.ctx, new AbortController().signal);

afterEach(async () => {
  await query('DELETE FROM tape_file');
  await query('DELETE FROM path_block');
  await query('DELETE FROM path_change');
});

async function addAll(paths: readonly string[]): Promise<void> {
  await app.ctx.db.pool.query(
    sql`INSERT INTO tape_file (path, size, stage) SELECT *, 1, 'ONTAPE'::"Stage" FROM unnest(${paths}::text[])`,
  );
}

const addNumbered = (prefix: string, count: number) =>
  query(`INSERT INTO tape_file (path, size, stage)
    SELECT '${prefix}' || lpad(n::text, 6, '0'), 1, 'ONTAPE' FROM generate_series(1, ${count}) n`);

const PAGE = `query ($search: String!, $after: String, $before: String, $last: Int, $first: Int) {
  tapeFiles(search: $search, first: $first, last: $last, after: $after, before: $before) {
    edges { node { path } } pageInfo { hasNextPage endCursor startCursor }
  } }`;

interface Page {
  tapeFiles: {
    edges: { node: { path: string } }[];
    pageInfo: { hasNextPage: boolean; endCursor: string; startCursor: string };
  };
}

async function page(search: string, more: object = { first: 50 }): Promise<{ paths: string[] } & Page['tapeFiles']> {
  const { tapeFiles } = await askData<Page>(app, PAGE, { search, ...more });
  return { ...tapeFiles, paths: tapeFiles.edges.map(({ node }) => node.path) };
}

/** Returns the paths that match, found without blocks. */
async function findEach(search: string): Promise<string[]> {
  const { rows } = await app.ctx.db.pool.query<{ path: string }>(
    sql`SELECT f.path FROM tape_file f WHERE ${matchesTerms(parseSearch(search))} ORDER BY f.path`,
  );
  return rows.map(({ path }) => path);
}

/** A search that does not use the blocks takes a second statement. */
const usesBlocks = async (search: string) => (await recordStatements(() => page(search))).length === 1;

const piece = fc.constantFrom(
  ...'/_-.+ %"',
  'a',
  'B',
  'ab',
  'Abc',
  'q',
  'z',
  '1',
  '2018',
  'ö',
  'İ',
  'ß',
  '日本',
  'K',
  'é',
);
const text = (maxLength: number) => fc.array(piece, { minLength: 1, maxLength }).map((parts) => parts.join(''));
const glob = fc.tuple(text(3), fc.constantFrom('*', '?', '**/', '[a-c]'), text(3)).map((parts) => parts.join(''));
const words = fc.array(
  fc.oneof(
    text(4),
    glob,
    text(4).map((each) => `"${each}"`),
  ),
  { minLength: 1, maxLength: 3 },
);

test('a search with blocks finds exactly the files that match, also new and renamed ones', async () => {
  const before = blockSize.files;
  blockSize.files = 2;
  const samples = fc.record({
    old: fc.uniqueArray(text(12), { minLength: 1, maxLength: 30 }),
    added: fc.array(text(12), { maxLength: 5 }),
    searches: fc.array(
      words.map((each) => each.join(' ')),
      { minLength: 1, maxLength: 6 },
    ),
  });
  await fc.assert(
    fc.asyncProperty(samples, async ({ old, added, searches }) => {
      await query('DELETE FROM tape_file');
      await addAll(old.map((path) => `/${path}`));
      await update();
      const expectAll = async () => {
        for (const search of searches.filter((each) => each.trim() !== '')) {
          expect((await page(search)).paths, search).toEqual(await findEach(search));
        }
      };
      await expectAll();
      await addAll([...new Set(added)].map((path) => `/new/${path}`));
      await query(`UPDATE tape_file SET path = '/moved' || path WHERE id = (SELECT min(id) FROM tape_file)`);
      await expectAll();
    }),
    {
      numRuns: 100,
      examples: [[{ old: ['data/b', '1.fits', 'a\u212abc'], added: [], searches: ['a/b', '1.fits', '"a\u212abc"'] }]],
    },
  );
  blockSize.files = before;
});

test('pages of a search go through all blocks, and skip blocks without a hit', async () => {
  await addNumbered('/a/none-', 3000);
  await addNumbered('/b/hit-', 2500);
  await addNumbered('/c/none-', 3000);
  await query(
    `UPDATE tape_file SET path = replace(path, 'none', 'zq') WHERE path IN ('/a/none-001500', '/c/none-002999')`,
  );
  await update();
  expect(await usesBlocks('zq')).toBe(true);
  expect((await page('zq')).paths).toEqual(['/a/zq-001500', '/c/zq-002999']);
  expect((await page('hit none')).paths).toEqual([]);
  const found: string[] = [];
  for (let after: string | undefined, more = true; more; ) {
    const { paths, pageInfo } = await page('HIT', { first: 100, after });
    found.push(...paths);
    [after, more] = [pageInfo.endCursor, pageInfo.hasNextPage];
  }
  expect(found).toEqual(await findEach('hit'));
  const { paths, pageInfo } = await page('hit', { last: 2 });
  expect(paths).toEqual(['/b/hit-002499', '/b/hit-002500']);
  expect((await page('hit', { first: 1, before: pageInfo.startCursor })).paths).toEqual(['/b/hit-000001']);
});

test('a search whose few files are in many blocks finds them in order', async () => {
  await addNumbered('/a/one-', 40_000);
  await query(`UPDATE tape_file SET path = replace(path, 'one', 'two') WHERE path LIKE '%500'`);
  await query(`UPDATE tape_file SET path = path || '-zq' WHERE path LIKE '%777'`);
  await update();
  const search = 'two 500';
  expect((await page(search)).paths).toEqual(await findEach(search));
  expect((await page('one zq')).paths).toEqual(await findEach('one zq'));
});

test('a search does not use the blocks while many files are new', async () => {
  await addNumbered('/old/', 10);
  await update();
  await addNumbered('/new/zq-', 2000);
  expect(await usesBlocks('zq')).toBe(false);
  expect((await page('zq')).paths).toHaveLength(50);
  await update();
  expect(await usesBlocks('zq')).toBe(true);
  expect((await page('zq')).paths).toHaveLength(50);
});

test('an update reads only the blocks of changed files', async () => {
  await addNumbered('/a/', 3000);
  await update();
  const lows = async () => (await query('SELECT low FROM path_block ORDER BY low')).rows.map(({ low }) => low);
  expect(await lows()).toEqual(['', '/a/001001']);
  await query(`UPDATE path_block SET grams = grams || '{kept}' WHERE low = ''`);
  await addNumbered('/b/', 1500);
  await update();
  expect(await lows()).toEqual(['', '/a/001001', '/a/002001', '/b/000001']);
  expect((await query(`SELECT FROM path_block WHERE 'kept' = ANY(grams)`)).rowCount).toBe(1);
  expect((await query('SELECT FROM path_change')).rowCount).toBe(0);
});

test('blocks of another order of paths are not used, and are built again', async () => {
  await addNumbered('/a/zq-', 10);
  await update();
  await query(`UPDATE path_block SET low = '/z', grams = '{order other}' WHERE low = ''`);
  expect((await page('zq')).paths).toHaveLength(10);
  await update();
  expect((await query('SELECT low FROM path_block')).rows).toEqual([{ low: '' }]);
});

test('an estimate from blocks is near the number of files, and exact if they are in few blocks', async () => {
  await addNumbered('/a/one-', 30_000);
  await query(`UPDATE tape_file SET path = path || '-zq' WHERE path IN ('/a/one-001500', '/a/one-020000')`);
  await update();
  const count = async (search: string) =>
    await askData(
      app,
      'query ($search: String!) { tapeFiles(search: $search, count: ESTIMATED) { totalCount isCountEstimated } }',
      {
        search,
      },
    );
  expect(await count('zq')).toEqual({ tapeFiles: { totalCount: 2, isCountEstimated: false } });
  const many = (await count('one')) as { tapeFiles: { totalCount: number; isCountEstimated: boolean } };
  expect(many.tapeFiles.isCountEstimated).toBe(true);
  expect(Math.abs(many.tapeFiles.totalCount - 30_000)).toBeLessThan(5000);
});

test('a search whose client goes away is cancelled in the database', async () => {
  await addNumbered('/a/zq-', 10);
  await update();
  const unlock = await lock(app, 'LOCK TABLE tape_file');
  try {
    const waiting = async () =>
      (await query(`SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%tape_file f%'`))
        .rowCount;
    const abort = new AbortController();
    const answer = sendGraphql(app, { query: PAGE, variables: { search: 'zq', first: 10 } }, { signal: abort.signal });
    answer.catch(() => {});
    await waitFor('the search to wait', async () => (await waiting()) === 1);
    abort.abort();
    await waitFor('the search to be cancelled', async () => (await waiting()) === 0);
  } finally {
    await unlock();
  }
});
