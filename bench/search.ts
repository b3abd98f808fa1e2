/**
 * Compares searches of each shape with the best SQL statement for that shape, which a bare server runs. The catalogue
 * contains FILES (default 1,000,000) paths, and each search finds ten files or none. CLIENTS (default 4) clients in
 * another process load the servers in turns of SECONDS (default 3) seconds. Each server has ROUNDS (default 3) turns,
 * in alternating order. Medians are compared. The benchmark also prints the latency of a single client.
 * SHAPES=orbit,absent chooses shapes. BENCH_KEEP names a directory that keeps the filled catalogue for later runs.
 *
 * Usage: npm run compile && FILES=10000000 node dist/bench/search.js
 */
import type { RequestListener } from 'node:http';
import pg from 'pg';
import { startGateway } from '../src/main/app.js';
import { compare } from './beside.js';
import { chooseSearches, type Search, withCatalogue } from './catalogue.js';

const count = Number(process.env.FILES ?? 1_000_000);
const shapes = process.env.SHAPES?.split(',');
const turns = {
  clients: Number(process.env.CLIENTS ?? 4),
  seconds: Number(process.env.SECONDS ?? 3),
  rounds: Number(process.env.ROUNDS ?? 3),
};

/**
 * Returns a listener that runs one statement per request and answers with JSON.stringify of the rows.
 * PostgreSQL plans the statement for the pattern, because the statement has no name.
 */
function bareSearch(pool: pg.Pool, { match, words }: Search): RequestListener {
  const like = `%${match.replace(/[\\%_]/g, '\\$&')}%`;
  const query =
    words === undefined
      ? { text: 'SELECT path, size, verified FROM tape_file WHERE path LIKE $1 ORDER BY path', values: [like] }
      : {
          text: `SELECT path, size, verified FROM tape_file
            WHERE path_words(path) @@ $2::tsquery AND path || '' LIKE $1 ORDER BY path`,
          values: [like, words],
        };
  return async (_req, res) => {
    const { rows } = await pool.query<{ path: string; size: bigint; verified: string }>(query);
    const files = rows.map(({ path, size, verified }) => ({ path, stage: 'T', verified, size: Number(size) }));
    const body = Buffer.from(JSON.stringify([{ count: files.length, files }]));
    res.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': body.length }).end(body);
  };
}

async function medianOfOne(url: string): Promise<string> {
  const times: number[] = [];
  for (let n = 0; n < 5; n++) {
    const start = performance.now();
    await (await fetch(url)).text();
    times.push(performance.now() - start);
  }
  return `${(times.sort((a, b) => a - b)[2] ?? Number.NaN).toFixed(1)} ms`;
}

await withCatalogue(count, async (ctx) => {
  const gateway = await startGateway(ctx);
  const pool = new pg.Pool({ ...ctx.db.config, max: 20 }); // as many connections as a gateway has
  for (const search of await chooseSearches(ctx, count)) {
    if (shapes && !shapes.includes(search.shape)) continue;
    const path = `/tape_control/api/v1/files?match=${encodeURIComponent(search.match)}`;
    console.log(`${search.match}: ${await medianOfOne(gateway.url + path)} alone`);
    const pair = {
      work: `GET /files, ${search.hits} hits of ${count.toLocaleString('en-US')}, ${search.shape}`,
      reference: bareSearch(pool, search),
      beside: 'bare node:http and pg',
      bound: 0.4,
      path,
      load: { holds: `"count":${search.hits},` },
    };
    await compare(gateway.url, pair, turns);
  }
  await pool.end();
  await gateway.close();
});
