/**
 * The catalogue as one table beside the same partitioned by hash, with the indexes that `tape_file` has: what an import, look-ups by path and
 * by id, pages, searches, the planner's reads, changes of stages, and holds with their foreign key do in a second, and what it takes on disk.
 * The indexes are made when nearly all files are there, and what is imported then meets them. FILES (1,000,000), PARTS (16), LAYOUTS
 * (by_path,by_id), ROUNDS (5). For each file it takes some 4 kB below BENCH_DIR, of all layouts together.
 *
 *   npm run compile && FILES=10000000 node dist/bench/partition.js
 */
import pg from 'pg';
import type { Context } from '../src/context.js';
import { raw, type Sql, sql } from '../src/database/sql.js';
import { messageOf } from '../src/errors.js';
import { holdsText } from '../src/operations/match.js';
import { inTurns, tellFigure } from './figures.js';
import { seconds, withBench } from './kit.js';

const files = Number(process.env.FILES ?? 1_000_000);
const parts = Number(process.env.PARTS ?? 16);
const rounds = Number(process.env.ROUNDS ?? 5);
const layouts = (process.env.LAYOUTS ?? 'by_path,by_id').split(',');
const keys = { by_path: 'path', by_id: 'id' } as const;
const VOLUME_FILES = 10_000;
const PAGE = 50;

/** Where a layout is: `plain`, `by_path`, `by_id`. */
const tableOf = (layout: string) => raw(`trial.${layout}`);

/** Paths of a satellite's products, of 100 characters, in no order; columns as an import gives them. */
const rowsOf = (from: number, to: number) => sql`
  SELECT n AS id, '/neodc/sentinel1/data/IW/L1_SLC/' || to_char(at, 'YYYY/MM/DD') || '/S1A_IW_SLC__1SDV_' || to_char(at, 'YYYYMMDD"T"HH24MISS')
      || '_' || lpad((n % 60000)::text, 6, '0') || '_' || upper(left(md5(n::text), 6)) || '_' || upper(substr(md5(n::text), 7, 4)) || '.zip' AS path,
    1000000 + n % 1000000 AS size, 'ONTAPE'::"Stage" AS stage, n / ${VOLUME_FILES} + 1 AS volume, n % ${VOLUME_FILES} AS position
  FROM (SELECT n, timestamp '2014-10-03' + (hashint8(n)::bigint + 2147483648) % 300000000 * interval '1 second' AS at
    FROM generate_series(${from}::bigint, ${to}::bigint) n) g`;

async function makeTable(pool: pg.Pool, layout: string): Promise<void> {
  const key = keys[layout as keyof typeof keys];
  const partitioned = key ? raw(`PARTITION BY HASH (${key})`) : raw('');
  await pool.query(
    sql`CREATE TABLE ${tableOf(layout)} (LIKE tape_file INCLUDING DEFAULTS INCLUDING CONSTRAINTS) ${partitioned}`,
  );
  for (let part = 0; key && part < parts; part++) {
    const own = raw(`trial.${layout}_${part}`);
    const bounds = raw(`WITH (MODULUS ${parts}, REMAINDER ${part})`);
    await pool.query(sql`CREATE TABLE ${own} PARTITION OF ${tableOf(layout)} FOR VALUES ${bounds}`);
  }
}

/** All indexes of `tape_file`; what must be unique is an index of its key only where the layout has it in the partition's key. */
async function makeIndexes(pool: pg.Pool, layout: string): Promise<void> {
  const key = keys[layout as keyof typeof keys];
  const { rows } = await pool.query<{ definition: string }>(
    sql`SELECT pg_get_indexdef(indexrelid) AS definition FROM pg_index WHERE indrelid = 'tape_file'::regclass ORDER BY indexrelid`,
  );
  for (const { definition } of rows) {
    const index = definition.replace(/INDEX \S+ ON \S+/, `INDEX ON trial.${layout}`);
    const isImpossible = key && index.startsWith('CREATE UNIQUE') && !index.endsWith(`(${key})`);
    if (isImpossible) await tellRefusal(pool, layout, index);
    await pool.query(raw(isImpossible ? index.replace('UNIQUE ', '') : index));
  }
}

async function tellRefusal(pool: pg.Pool, layout: string, index: string): Promise<void> {
  const refusal = await pool.query(raw(index)).then(() => 'taken', messageOf);
  console.log(`${layout}: ${index}: ${refusal}`);
}

/** Rows of a turn of the import, which come when the indexes are there, and of a step before that. */
const TURN = 100_000;
const STEP = 500_000;
/** Turns of the import, unless that is more than a fifth of all files. */
const TURNS = 4;

/** Fills all layouts, makes their indexes, and imports what is left, in turns. */
async function importAll(pool: pg.Pool): Promise<void> {
  const all = ['plain', ...layouts];
  const turn = Math.min(TURN, Math.ceil(files / 20));
  const filled = files - TURNS * turn;
  for (let from = 0; from < filled; from += STEP) await addAll(pool, all, { from, to: Math.min(from + STEP, filled) });
  const made = new Map<string, number>();
  for (const layout of all) made.set(layout, await seconds(() => makeIndexes(pool, layout)));
  for (const layout of all) await pool.query(sql`VACUUM (ANALYZE) ${tableOf(layout)}`);
  for (const layout of layouts) tell(layout, 'all indexes made anew', 's', (each) => made.get(each) ?? 0, true);

  const taken = new Map<string, number>();
  for (let number = 0; number < TURNS; number++) {
    const from = filled + number * turn;
    const took = await addAll(pool, number % 2 ? all.toReversed() : all, { from, to: from + turn });
    for (const [layout, time] of took) taken.set(layout, (taken.get(layout) ?? 0) + time);
  }
  for (const layout of all) await pool.query(sql`VACUUM (ANALYZE) ${tableOf(layout)}`);
  for (const layout of layouts)
    tell(layout, 'import, rows', 'rows/s', (each) => (TURNS * turn) / (taken.get(each) ?? 0));
}

/** @returns seconds that each layout took */
async function addAll(
  pool: pg.Pool,
  all: readonly string[],
  { from, to }: { from: number; to: number },
): Promise<Map<string, number>> {
  const taken = new Map<string, number>();
  await pool.query(sql`CREATE TABLE trial.incoming AS ${rowsOf(from, to - 1)}`);
  for (const layout of all) {
    const add = sql`INSERT INTO ${tableOf(layout)} (id, path, size, stage, volume_id, "position")
      SELECT i.* FROM trial.incoming i ORDER BY i.path`;
    taken.set(layout, await seconds(() => pool.query(add)));
  }
  await pool.query(sql`DROP TABLE trial.incoming`);
  return taken;
}

function tell(layout: string, work: string, unit: string, valueFor: (layout: string) => number, isCost = false): void {
  const [ours, reference] = [valueFor(layout), valueFor('plain')];
  tellFigure({ work: `${layout}, ${parts} parts: ${work}`, ours, reference, beside: 'one table', unit, isCost });
}

interface Question {
  work: string;
  /** How often in a turn. */
  times: number;
  ask(table: Sql, n: number): Sql;
  /** Prepared by name, as look-ups by keys are. */
  isNamed?: boolean;
}

/** Some file, another one for each n. */
const someFile = (n: number) => (n * 7_919) % files;

function questionsOf(paths: readonly string[], day: string): Question[] {
  const path = (n: number) => paths[n % paths.length] ?? '';
  const many = (n: number, count: number) => Array.from({ length: count }, (_, i) => someFile(n * count + i));
  // biome-ignore format: a table
  return [
    { work: 'one file by its path', times: 500, isNamed: true, ask: (f, n) => sql`SELECT * FROM ${f} f WHERE f.path = ${path(n)}` },
    { work: 'one file by its id', times: 500, isNamed: true, ask: (f, n) => sql`SELECT * FROM ${f} f WHERE f.id = ${someFile(n)}::bigint` },
    { work: '25 files of a request, by their ids', times: 100, isNamed: true, ask: (f, n) => sql`SELECT h.id, f.path FROM unnest(${many(n, 25)}::bigint[]) h (id) JOIN ${f} f ON f.id = h.id` },
    { work: '1,000 files of a new request, by their paths', times: 5, ask: (f) => sql`SELECT l.path, f.id FROM unnest(${paths}::text[]) l (path) JOIN ${f} f ON f.path = l.path` },
    { work: 'the same, path by path', times: 5, ask: (f) => sql`SELECT l.path, g.id FROM unnest(${paths}::text[]) l (path) CROSS JOIN LATERAL (SELECT f.id FROM ${f} f WHERE f.path = l.path OFFSET 0) g` },
    { work: `page of ${PAGE} by path`, times: 50, ask: (f, n) => sql`SELECT f.id FROM ${f} f WHERE f.path > ${path(n)} ORDER BY f.path LIMIT ${PAGE}` },
    { work: 'search by a time, few hits', times: 10, ask: (f, n) => sql`SELECT f.path FROM ${f} f WHERE ${holdsText(path(n).slice(60, 75))}` },
    { work: 'search by hex digits, few hits', times: 5, ask: (f, n) => sql`SELECT f.path FROM ${f} f WHERE ${holdsText(path(n).slice(-12, -6))}` },
    { work: 'search by a day, with its count', times: 2, ask: (f) => sql`SELECT count(*) FROM ${f} f WHERE ${holdsText(day)}` },
    { work: 'search by two letters, all paths read', times: 1, ask: (f) => sql`SELECT count(*) FROM ${f} f WHERE ${holdsText('qz')}` },
    { work: 'a volume, as the planner reads it', times: 2, ask: (f, n) => sql`SELECT f.id, f.size FROM ${f} f WHERE f.volume_id = ${(n % Math.ceil(files / VOLUME_FILES)) + 1}::int ORDER BY f.position, f.id` },
    { work: '1,000 files change their stage', times: 2, ask: (f, n) => sql`UPDATE ${f} f SET stage = CASE f.stage WHEN 'ONTAPE' THEN 'RESTORING'::"Stage" ELSE 'ONTAPE' END FROM unnest(${many(n, 1000)}::bigint[]) m (id) WHERE f.id = m.id` },
  ];
}

/** One connection, as whoever waits for an answer has one. */
async function askAll(pool: pg.Pool): Promise<void> {
  const { rows } = await pool.query<{ path: string }>(
    sql`SELECT path FROM trial.plain WHERE id = ANY(${Array.from({ length: 1000 }, (_, n) => someFile(n))}::bigint[])`,
  );
  const paths = rows.map(({ path }) => path);
  const client = await pool.connect();
  try {
    for (const { work, times, ask, isNamed } of questionsOf(paths, paths[0]?.slice(60, 68) ?? '')) {
      // all are asked for the same, which is in memory from the first turn on
      const way = (layout: string) => async () => {
        const took = await seconds(async () => {
          for (let n = 0; n < times; n++) {
            const { text, values } = ask(tableOf(layout), n);
            await client.query({ text, values, ...(isNamed && { name: `${layout} ${work}` }) });
          }
        });
        return times / took;
      };
      const ways = Object.fromEntries(['plain', ...layouts].map((layout) => [layout, way(layout)]));
      await inTurns(ways, 1); // to be warm
      const rates = await inTurns(ways, rounds);
      for (const layout of layouts) tell(layout, work, '/s', (each) => rates[each]?.median ?? 0);
    }
  } finally {
    client.release();
  }
}

/** A table of holds that refers to files, as far as the layout can be referred to. */
async function tryHolds(pool: pg.Pool): Promise<void> {
  const taken = new Map<string, number>();
  const count = Math.min(files, TURN);
  for (const layout of ['plain', ...layouts]) {
    const holds = raw(`trial.hold_${layout}`);
    await pool.query(sql`CREATE TABLE ${holds} (request_id int, file_id bigint, PRIMARY KEY (request_id, file_id))`);
    const refer = sql`ALTER TABLE ${holds} ADD FOREIGN KEY (file_id) REFERENCES ${tableOf(layout)} (id)`;
    const refusal = await pool.query(refer).then(() => undefined, messageOf);
    if (refusal) console.log(`${layout}: a hold refers to its file by id: ${refusal}`);
    if (refusal) continue;
    const add = sql`INSERT INTO ${holds} SELECT 1, id FROM generate_series(0, ${count - 1}) id`;
    taken.set(layout, await seconds(() => pool.query(add)));
  }
  for (const layout of layouts.filter((each) => taken.has(each)))
    tell(layout, 'holds with their foreign key', 'rows/s', (each) => count / (taken.get(each) ?? 0));
}

async function tellSizes(pool: pg.Pool): Promise<void> {
  const { rows } = await pool.query<{ layout: string; megabytes: number }>(
    sql`SELECT r.layout, (SELECT sum(pg_total_relation_size(c.oid)) / 1e6 FROM pg_class c
            WHERE c.relnamespace = 'trial'::regnamespace AND c.relkind = 'r' AND c.relname ~ ('^' || r.layout || '(_\\d+)?$'))::float8 AS megabytes
        FROM unnest(${['plain', ...layouts]}::text[]) r (layout)`,
  );
  const sizeOf = (layout: string) => rows.find((row) => row.layout === layout)?.megabytes ?? 0;
  for (const layout of layouts) tell(layout, 'on disk, with its indexes', 'MB', sizeOf, true);
}

async function compare({ db }: Context): Promise<void> {
  // the program's own pool ends what takes five minutes
  const pool = new pg.Pool({ ...db.config, statement_timeout: false, options: '-c maintenance_work_mem=1GB' });
  try {
    await pool.query(sql`CREATE SCHEMA trial`);
    for (const layout of ['plain', ...layouts]) await makeTable(pool, layout);
    await importAll(pool);
    await tellSizes(pool);
    await askAll(pool);
    await tryHolds(pool);
  } finally {
    await pool.end();
  }
}

await withBench(compare);
