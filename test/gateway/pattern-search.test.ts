/** A search finds exactly the paths that contain the pattern, for any characters. */
import fc from 'fast-check';
import type pg from 'pg';
import { expect, test } from 'vitest';
import { sql } from '../../src/db/sql.js';
import { holdsText } from '../../src/domain/match.js';
import { addQuota } from '../support/factories.js';
import { askData } from '../support/graphql.js';
import { makeRequest, read } from '../support/rest.js';
import { useApp } from '../support/use-app.js';

const app = useApp({}, async () => {
  await addQuota(app.ctx, 'alice', 1_000_000n);
});

const words = ['a', 'A', 'ab', 'abc', 'Abc', '2018', '20180823', '20180823T05', '0', 'x1', '1x', ':*', 'q'];
const foreign = 'ö Ö o\u0308 ß 日本 日本語 🧲 \u200d \u00a0 \u2028 \x7f \x01 \n \ufeff'.split(' ');
/**
 * Delimiters, characters with a meaning in LIKE and tsquery, words with a common beginning, and letters of any case and
 * length in bytes.
 */
const piece = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...'//__-.+=,:@~ %\\\'"*&|!()', '<->') },
  { weight: 4, arbitrary: fc.constantFrom(...words) },
  { weight: 2, arbitrary: fc.constantFrom(...foreign) },
  { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 3 }).map((text) => text.replaceAll('\0', '')) },
);
const text = (maxLength: number) =>
  fc.array(piece, { minLength: 1, maxLength }).map((pieces) => pieces.join('') || 'a');
/** Paths with words that are too long for an index. */
const long = fc
  .tuple(text(2), fc.constantFrom(250, 1000, 2045, 2046, 2047, 3000), text(3))
  .map(([before, length, after]) => `/${before}_${'x'.repeat(length)}_${after}`);
const path = fc.oneof({ weight: 9, arbitrary: text(14) }, { weight: 1, arbitrary: long });
const paths = fc.uniqueArray(path, { minLength: 1, maxLength: 40 });
/** Patterns: random texts, and substrings of numbered paths. */
const part = fc.tuple(fc.nat(), fc.double({ min: 0, max: 1, noNaN: true }), fc.integer({ min: 1, max: 40 }));
const patterns = fc.array(fc.oneof(text(5), part), { minLength: 1, maxLength: 12 });

function toPattern(choice: string | [number, number, number], all: readonly string[]): string {
  if (typeof choice === 'string') return choice;
  const [of, from, length] = choice;
  const characters = [...(all[of % all.length] ?? 'a')];
  const at = Math.min(Math.floor(from * characters.length), characters.length - 1);
  return characters.slice(at, at + length).join('');
}

async function find(client: pg.PoolClient, pattern: string): Promise<string[]> {
  const { rows } = await client.query<{ path: string }>(
    sql`SELECT f.path FROM tape_file f WHERE ${holdsText(pattern)}`,
  );
  return rows.map(({ path }) => path).sort();
}

/** Creates a catalogue that has only the two pattern indexes, or no index. */
async function makeCatalogue(client: pg.PoolClient, hasIndexes: boolean): Promise<void> {
  await client.query(sql`CREATE TEMP TABLE tape_file (path text)`); // hides the real table
  if (!hasIndexes) return;
  await client.query(sql`CREATE INDEX by_words ON pg_temp.tape_file USING GIN (path_words(path))`);
  await client.query(sql`CREATE INDEX by_trigrams ON pg_temp.tape_file USING GIN (path gin_trgm_ops)`);
  await client.query(sql`SET enable_seqscan = off`);
}

async function planOf(client: pg.PoolClient, pattern: string): Promise<string> {
  const { rows } = await client.query(sql`EXPLAIN SELECT FROM tape_file f WHERE ${holdsText(pattern)}`);
  return rows.map((row) => row['QUERY PLAN']).join('\n');
}

test.each([true, false])('a pattern finds exactly the paths that include it (indexes: %s)', async (hasIndexes) => {
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
      { numRuns: 25 },
    );
    const plans = [await planOf(client, '_20180823T05'), await planOf(client, '20180823T05')];
    expect(plans.map((plan) => /by_\w+|Seq Scan/.exec(plan)?.[0])).toEqual(
      hasIndexes ? ['by_words', 'by_trigrams'] : ['Seq Scan', 'Seq Scan'],
    );
  } finally {
    client.release(true); // closes the connection, which drops the temporary table
  }
});

test('the catalogue uses its index of words alone for a pattern of words', async () => {
  const client = await app.ctx.db.pool.connect();
  try {
    await client.query(
      sql`INSERT INTO tape_file (path, size) SELECT '/words/S1A_' || n || '_' || md5(n::text) || '.zip', 1 FROM generate_series(1, 3000) n`,
    );
    await client.query(sql`ANALYZE tape_file`);
    await client.query(sql`SET enable_seqscan = off`);
    expect(await planOf(client, '/S1A_2018_')).toContain('Index Scan on tape_file_words_idx');
    expect(await planOf(client, '/S1A_2018_')).not.toMatch(/trgm|path_key|prefix/);
  } finally {
    client.release(true);
  }
});

test('lists by REST and GraphQL, an estimate and a request find the same files', async () => {
  await app.ctx.db.pool.query(sql`DELETE FROM tape_file`);
  const long = `/o/_${'x'.repeat(2040)}_2018.nc`;
  const all = ["/o'brien/it's_20180823.nc", '/o/it_20180823T05.nc', '/o/\\it_20180823%.nc', '/o/plain.nc', long];
  await app.ctx.db.pool.query(
    sql`INSERT INTO tape_file (path, size, stage) SELECT *, 1, 'ONTAPE'::"Stage" FROM unnest(${all}::text[])`,
  );
  for (const pattern of ['_', "'s_20180823", '_20180823', '/it_', '\\it_2018', '20180823%', '_2018', "/o'brien/it"]) {
    const expected = all.filter((path) => path.includes(pattern)).sort();
    const { files } = await read<{ files: { path: string }[] }>(app, `/files?match=${encodeURIComponent(pattern)}`);
    expect(files.map(({ path }) => path).sort(), pattern).toEqual(expected);
    const query = `query ($p: String!) {
      tapeFiles(match: $p, first: 10) { totalCount edges { node { path } } }
      estimateRequest(input: { quota: "alice", pattern: $p }) { estimate { fileCount } }
    }`;
    expect(await askData(app, query, { p: pattern }), pattern).toMatchObject({
      tapeFiles: { totalCount: expected.length },
      estimateRequest: { estimate: { fileCount: expected.length } },
    });
    const id = await makeRequest(app, { quota: 'alice', patterns: pattern });
    expect((await read<{ files: string[] }>(app, `/requests/${id}`)).files.toSorted(), pattern).toEqual(expected);
  }
});
