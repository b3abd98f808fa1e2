/** Whatever stands in paths and patterns, a search finds the paths that hold the pattern, and no others. */
import fc from 'fast-check';
import type pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sql } from '../../src/database/sql.js';
import { holdsText } from '../../src/operations/match.js';
import { startApp, type TestApp } from '../support/app.js';
import { addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { makeRequest, read } from '../support/rest.js';

let app: TestApp;
beforeAll(async () => {
  app = await startApp();
  await addQuota(app.ctx, 'alice', 1_000_000n);
});
afterAll(() => app.close());

/** Delimiters, what LIKE and tsquery give a meaning to, letters of each case and size, and words that begin like others. */
const piece = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.constantFrom(...'//__-.+=,:@~ ', '%', '\\', "'", '"', '*', '&', '|', '!', '(', ')', '<->'),
  },
  {
    weight: 4,
    arbitrary: fc.constantFrom(
      'a',
      'A',
      'ab',
      'abc',
      'Abc',
      '2018',
      '20180823',
      '20180823T05',
      '0',
      'x1',
      '1x',
      ':*',
      'q',
    ),
  },
  {
    weight: 2,
    arbitrary: fc.constantFrom(
      'ö',
      'Ö',
      'o\u0308',
      'ß',
      '日本',
      '日本語',
      '🧲',
      '\u200d',
      '\u00a0',
      '\u2028',
      '\x7f',
      '\x01',
      '\n',
      '\ufeff',
    ),
  },
  {
    weight: 1,
    arbitrary: fc.string({ unit: 'binary', minLength: 1, maxLength: 3 }).map((text) => text.replaceAll('\0', '')),
  },
);
const text = (maxLength: number) =>
  fc.array(piece, { minLength: 1, maxLength }).map((pieces) => pieces.join('') || 'a');
/** Also words, and paths, that are longer than any index of words takes. */
const long = fc
  .tuple(text(2), fc.constantFrom(250, 1000, 2045, 2046, 2047, 3000), text(3))
  .map(([before, length, after]) => `/${before}_${'x'.repeat(length)}_${after}`);
const paths = fc.uniqueArray(fc.oneof({ weight: 9, arbitrary: text(14) }, { weight: 1, arbitrary: long }), {
  minLength: 1,
  maxLength: 40,
});
/** Made up, or taken from inside of a path. */
const patterns = fc.array(
  fc.oneof(
    text(5).map((made) => ({ made })),
    fc.record({
      of: fc.nat(),
      from: fc.double({ min: 0, max: 1, noNaN: true }),
      characters: fc.integer({ min: 1, max: 40 }),
    }),
  ),
  { minLength: 1, maxLength: 12 },
);

type Choice = { made: string } | { of: number; from: number; characters: number };

function toPattern(choice: Choice, all: readonly string[]): string {
  if ('made' in choice) return choice.made;
  const characters = [...(all[choice.of % all.length] ?? 'a')];
  const at = Math.min(Math.floor(choice.from * characters.length), characters.length - 1);
  return characters.slice(at, at + choice.characters).join('');
}

async function find(client: pg.PoolClient, pattern: string): Promise<string[]> {
  const { rows } = await client.query<{ path: string }>(
    sql`SELECT f.path FROM tape_file f WHERE ${holdsText(pattern)}`,
  );
  return rows.map(({ path }) => path).sort();
}

/** A catalogue in which nothing but the two indexes for patterns is to be had, or no index at all. */
async function makeCatalogue(client: pg.PoolClient, hasIndexes: boolean): Promise<void> {
  await client.query(sql`CREATE TEMP TABLE tape_file (path text)`); // which goes before the other one
  if (!hasIndexes) return;
  await client.query(sql`CREATE INDEX by_words ON pg_temp.tape_file USING GIN (path_words(path))`);
  await client.query(sql`CREATE INDEX by_trigrams ON pg_temp.tape_file USING GIN (path gin_trgm_ops)`);
  await client.query(sql`SET enable_seqscan = off`);
}

async function planOf(client: pg.PoolClient, pattern: string): Promise<string> {
  const { rows } = await client.query(sql`EXPLAIN SELECT FROM tape_file f WHERE ${holdsText(pattern)}`);
  return rows.map((row) => row['QUERY PLAN']).join('\n');
}

test.each([
  ['by the indexes', true],
  ['path by path', false],
])('a path is found by a pattern exactly where it includes it, %s', async (_how, hasIndexes) => {
  const client = await app.ctx.db.pool.connect();
  try {
    await makeCatalogue(client, hasIndexes);
    await fc.assert(
      fc.asyncProperty(paths, patterns, async (all, choices) => {
        await client.query(sql`TRUNCATE tape_file`);
        await client.query(sql`INSERT INTO tape_file (path) SELECT unnest(${all}::text[])`);
        for (const choice of choices) {
          const pattern = toPattern(choice, all);
          const expected = all.filter((path) => path.includes(pattern)).sort();
          expect(await find(client, pattern), JSON.stringify(pattern)).toEqual(expected);
        }
      }),
      { numRuns: 40 },
    );
    const plans = [await planOf(client, '_20180823T05'), await planOf(client, '20180823T05')];
    expect(plans.map((plan) => /by_\w+|Seq Scan/.exec(plan)?.[0])).toEqual(
      hasIndexes ? ['by_words', 'by_trigrams'] : ['Seq Scan', 'Seq Scan'],
    );
  } finally {
    client.release(true); // with its table
  }
});

test('the catalogue has the index of words that is asked for, and no other one knows the path then', async () => {
  const client = await app.ctx.db.pool.connect();
  try {
    await client.query(
      sql`INSERT INTO tape_file (path, size) SELECT '/words/S1A_' || n || '_' || md5(n::text) || '.zip', 1 FROM generate_series(1, 3000) n`,
    );
    await client.query(sql`ANALYZE tape_file`);
    await client.query(sql`SET enable_seqscan = off`); // three thousand paths are soon read
    expect(await planOf(client, '/S1A_2018_')).toContain('Index Scan on tape_file_words_idx');
    expect(await planOf(client, '/S1A_2018_')).not.toMatch(/trgm|path_key|prefix/);
  } finally {
    client.release(true);
  }
});

test('lists of REST and GraphQL, an estimate and a request by a pattern find the same', async () => {
  await app.ctx.db.pool.query(sql`DELETE FROM tape_file`);
  const all = [
    "/o'brien/it's_20180823.nc",
    '/o/it_20180823T05.nc',
    '/o/\\it_20180823%.nc',
    `/o/_${'x'.repeat(2040)}_2018.nc`,
  ];
  await app.ctx.db.pool.query(
    sql`INSERT INTO tape_file (path, size, stage) SELECT *, 1, 'ONTAPE'::"Stage" FROM unnest(${all}::text[])`,
  );
  for (const pattern of ["'s_20180823", '_20180823', '/it_', '\\it_2018', '20180823%', '_2018', "/o'brien/it"]) {
    const expected = all.filter((path) => path.includes(pattern)).sort();
    const { files } = await read<{ files: { path: string }[] }>(app, `/files?match=${encodeURIComponent(pattern)}`);
    expect(files.map(({ path }) => path).sort(), pattern).toEqual(expected);
    const query = `query ($p: String!) {
      tapeFiles(match: $p, first: 10) { totalCount edges { node { path } } }
      estimateRequest(input: { quota: "alice", pattern: $p }) { ... on Estimate { files } }
    }`;
    expect(await askData(app, query, { p: pattern }), pattern).toMatchObject({
      tapeFiles: { totalCount: expected.length },
      estimateRequest: { files: expected.length },
    });
    const id = await makeRequest(app, { quota: 'alice', patterns: pattern });
    expect((await read<{ files: string[] }>(app, `/requests/${id}`)).files.toSorted(), pattern).toEqual(expected);
  }
});
