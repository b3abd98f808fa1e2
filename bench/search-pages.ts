/**
 * Measures what a user who types a search waits for: the first page of 50 files in each order, the next page, and an
 * estimated total count. Each search runs ROUNDS (default 5) times through GraphQL, alternating with PostgreSQL's own
 * plan for the same page. Prints the medians in milliseconds. The catalogue contains FILES (default 1,000,000) paths.
 * BENCH_KEEP names a directory that keeps the filled catalogue for later runs.
 *
 * Usage: npm run compile && FILES=10000000 node dist/bench/search-pages.js
 */

import { raw, sql } from '../src/db/sql.js';
import { createToken } from '../src/domain/access/tokens.js';
import { updatePathBlocks } from '../src/domain/catalogue/block-upkeep.js';
import type { Context } from '../src/domain/context.js';
import { parseSearch } from '../src/domain/file-search.js';
import { matchesTerms } from '../src/domain/match.js';
import { startGateway } from '../src/main/app.js';
import { withCatalogue } from './catalogue.js';
import { median } from './kit.js';

const count = Number(process.env.FILES ?? 1_000_000);
const rounds = Number(process.env.ROUNDS ?? 5);
const PAGE = 50;

const searches = [
  'zyx',
  'qz',
  'zq',
  'a',
  's3',
  's3a',
  's3b',
  'ol_1_efr',
  'sy_2_v10 s3b',
  's1a 2017',
  'sl_2 00000',
  '2016 sl_1_rbt s2a',
  's1a s3b',
  'msil1c qz',
  '*.zip',
  '*20160101t*',
  '/neodc/s3b/**/*_nr_009.zip',
  '"SVL_O"',
  '"svl_o"',
  'absent',
  'nr_009',
];

const QUERY = `query ($search: String!, $after: String, $orderBy: TapeFileOrder) {
  tapeFiles(search: $search, first: ${PAGE}, after: $after, orderBy: $orderBy) {
    edges { node { path size stage } } pageInfo { hasNextPage endCursor }
  } }`;
const COUNT =
  'query ($search: String!) { tapeFiles(search: $search, count: ESTIMATED) { totalCount isCountEstimated } }';

interface Answer {
  data?: { tapeFiles?: { edges?: unknown[]; pageInfo?: { endCursor: string | null }; totalCount?: number } | null };
  errors?: unknown[];
}

async function ask(url: string, token: string, query: string, variables: object): Promise<Answer> {
  const response = await fetch(`${url}/graphql`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${token}` },
    body: JSON.stringify({ query, variables }),
  });
  return (await response.json()) as Answer;
}

async function time<T>(work: () => Promise<T>): Promise<[ms: number, result: T]> {
  const start = performance.now();
  const result = await work();
  return [performance.now() - start, result];
}

async function medianOf(work: () => Promise<unknown>): Promise<string> {
  const times: number[] = [];
  for (let n = 0; n < rounds; n++) times.push((await time(work))[0]);
  return median(times).toFixed(1).padStart(8);
}

/** Lets PostgreSQL choose how to find the first page. */
const plain = ({ db }: Context, search: string) =>
  db.pool.query(
    sql`SELECT f.path, f.size, f.stage FROM tape_file f WHERE ${matchesTerms(parseSearch(search))} ORDER BY f.path LIMIT ${raw(String(PAGE))}`,
  );

await withCatalogue(count, async (ctx) => {
  const [built] = await time(() => updatePathBlocks(ctx, new AbortController().signal));
  console.log(`${(built / 1000).toFixed(1)} s to update the blocks of paths`);
  const gateway = await startGateway(ctx);
  const { secret } = await createToken(ctx, { name: 'bench', role: 'VIEWER' }).catch(() => ({ secret: '' }));
  console.log('   first    next    SIZE desc   count   plain SQL   hits on page, total, search');
  for (const search of searches) {
    const page = (more: object = {}) => ask(gateway.url, secret, QUERY, { search, ...more });
    const answer = await page();
    const after = answer.data?.tapeFiles?.pageInfo?.endCursor;
    const total = await ask(gateway.url, secret, COUNT, { search });
    const columns = [
      await medianOf(() => page()),
      after ? await medianOf(() => page({ after })) : '-'.padStart(8),
      await medianOf(() => page({ orderBy: { field: 'SIZE', direction: 'DESC' } })),
      await medianOf(() => ask(gateway.url, secret, COUNT, { search })),
      await medianOf(() => plain(ctx, search)),
    ];
    const hits = answer.data?.tapeFiles?.edges?.length ?? JSON.stringify(answer.errors);
    console.log(`${columns.join(' ')}   ${hits} ${total.data?.tapeFiles?.totalCount} ${search}`);
  }
  await gateway.close();
});
