/**
 * Generates catalogues of any size with paths like those of satellite archives: 123 characters, dates, orbits and hex
 * digits. At every size, each search of `chooseSearches` finds ten files or none.
 */

import { raw, sql } from '../src/db/sql.js';
import type { Context } from '../src/domain/context.js';
import { withBench } from './kit.js';

/** Number of consecutive files with the same product, minute and orbit. */
const GRANULES = 10;
const STEP = 250_000;
/** Suffixes for searches of rare text. Each suffix is in ten paths, and in no other part of a path. */
const RARE = ['-zyx', '-qz', '-100%'];

/** Returns a query for the paths and sizes of the files from number `first` to `last`. */
export const pathsOf = (first: number, last: number, count: number) => sql`
  SELECT '/neodc/' || m.mission || '/data/' || m.product || to_char(t, '/YYYY/MM/DD/') || upper(m.mission) || '_' || m.product || '__'
      || to_char(t + (n % ${GRANULES}) * interval '6 s', 'YYYYMMDD"T"HH24MISS') || to_char(t + interval '3 h', '_YYYYMMDD"T"HH24MISS_')
      || lpad((n / ${GRANULES})::text, 7, '0') || '_' || substr(md5((n / ${GRANULES})::text), 1, 10) || '_SVL_O_NR_00'
      || (n % ${GRANULES}) || coalesce((${RARE}::text[])[CASE WHEN n % ${count / 10}::int < 3 THEN n % ${count / 10}::int + 1 END], '') || '.zip' AS path,
    1000000 + n AS size
  FROM generate_series(${first}::int, ${last}::int) n,
    LATERAL (SELECT timestamp '2016-01-01' + n / ${GRANULES} * interval '1 min' AS t) clock,
    LATERAL (SELECT ('{s1a,s2a,s2b,s3a,s3b}'::text[])[1 + n / ${GRANULES} % 5] AS mission,
      ('{SL_1_RBT,OL_1_EFR,SR_2_LAN,IW_GRDH,MSIL1C,SL_2_LST,SY_2_V10}'::text[])[1 + n / ${GRANULES} % 7] AS product) m`;

/**
 * Fills an empty catalogue in steps, then creates its GIN indexes, which is ten times as fast as filling indexed
 * tables.
 * The connection has no statement timeout, because an index of ten million paths takes minutes.
 */
export async function fillCatalogue({ db }: Context, count: number): Promise<void> {
  const client = new db.Client({ ...db.config, statement_timeout: false });
  await client.connect();
  try {
    const { rows } = await client.query<{ name: string; definition: string }>(
      `SELECT indexname AS name, indexdef AS definition FROM pg_indexes WHERE tablename = 'tape_file' AND indexdef LIKE '% USING gin %'`,
    );
    await client.query(`SET maintenance_work_mem = '512MB'`);
    for (const { name } of rows) await client.query(sql`DROP INDEX ${raw(name)}`);
    for (let first = 0; first < count; first += STEP) {
      const last = Math.min(first + STEP, count) - 1;
      await client.query(
        sql`INSERT INTO tape_file (path, size, stage, verified)
            SELECT path, size, 'ONTAPE', timestamp '2026-01-02 03:04:05' FROM (${pathsOf(first, last, count)}) p ORDER BY path`,
      );
    }
    for (const { definition } of rows) await client.query(definition);
    await client.query('VACUUM (ANALYZE) tape_file');
  } finally {
    await client.end();
  }
}

export interface Search {
  /** Name of the search's shape, for people. */
  shape: string;
  match: string;
  hits: number;
  /**
   * Search words as a tsquery, if the word index is the best index; undefined for the trigram index or a sequential
   * scan.
   */
  words?: string;
}

/**
 * Returns a search of each shape for a catalogue of `count` files. Most searches find files near the catalogue's
 * middle.
 */
export async function chooseSearches({ db }: Context, count: number): Promise<Search[]> {
  const middle = Math.floor(count / 2 / GRANULES) * GRANULES;
  const { rows } = await db.pool.query<{ path: string }>(pathsOf(middle, middle, count));
  const path = rows[0]?.path ?? '';
  const [directory = '', name = ''] = [path.slice(0, path.lastIndexOf('/')), path.slice(path.lastIndexOf('/') + 1)];
  const parts = /^(.*__)(\d{8}T\d{4})\d\d_\d{8}T\d{6}_(\d{7})_([0-9a-f]{10})_/.exec(name);
  const [, product = '', minute = '', orbit = '', hex = ''] = parts ?? [];
  const day = directory.slice(-10).split('/');
  return [
    { shape: 'product', match: `${product.slice(4)}${minute}`, words: `'${minute}':*`, hits: 10 },
    {
      shape: 'directory and name',
      match: `${directory.slice(-11)}/${product}${minute}`,
      words: `${day.map((each) => `'${each}'`).join(' & ')} & '${minute}':*`,
      hits: 10,
    },
    { shape: 'orbit', match: `_${orbit}_`, words: `'${orbit}'`, hits: 10 },
    { shape: 'hex digits', match: hex.slice(1, 9), hits: 10 },
    { shape: 'three letters', match: 'zyx', hits: 10 },
    { shape: 'two letters', match: 'qz', hits: 10 },
    { shape: 'percent sign', match: '%', hits: 10 },
    { shape: 'absent', match: `${product}20991231T2359`, words: `'20991231T2359':*`, hits: 0 },
  ];
}

/**
 * Runs `work` on a catalogue of `count` files. The directory BENCH_KEEP may contain the catalogue from an earlier run.
 * A new catalogue is filled before `work` runs.
 */
export async function withCatalogue(count: number, work: (ctx: Context) => Promise<void>): Promise<void> {
  const fill = async (ctx: Context) => {
    const { rows } = await ctx.db.pool.query<{ files: bigint }>('SELECT count(*) AS files FROM tape_file');
    if (Number(rows[0]?.files) === 0) await fillCatalogue(ctx, count);
    else if (Number(rows[0]?.files) !== count) throw new Error(`BENCH_KEEP has ${rows[0]?.files} files, not ${count}`);
    await work(ctx);
  };
  const { BENCH_KEEP } = process.env;
  await withBench(fill, { PORT: '0', ...(BENCH_KEEP && { DATA_DIR: BENCH_KEEP }) });
}
