/**
 * Searches of each shape that find ten files, or none, in a catalogue of FILES (1,000,000) paths, beside the best SQL for each, asked by a
 * bare server: CLIENTS (4) in another process, turns of SECONDS (3) in alternating order, ROUNDS (3) of them, medians. How long one
 * answer takes where nobody else asks is told as well. SHAPES=orbit,absent measures some. BENCH_KEEP names a folder whose catalogue
 * is filled once, and used again.
 *
 *   npm run compile && FILES=10000000 node dist/bench/search.js
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

/** One statement, planned for its pattern, and its JSON as the driver's rows and JSON.stringify make it. */
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
