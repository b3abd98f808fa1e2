/**
 * GraphQL, each beside the least that could give the same answer, in one run: 16 clients in another process, turns of SECONDS (3) in
 * alternating order, ROUNDS (9) of them, medians, on a catalogue of COUNT (10,000,000) files. ONLY=request measures one of them.
 *
 *   npm run compile && node dist/bench/graphql.js
 */
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import pg from 'pg';
import { startGateway } from '../src/app.js';
import type { Context } from '../src/context.js';
import { setQuota } from '../src/operations/quotas/quotas.js';
import { createRequest } from '../src/operations/requests/create.js';
import { inTurns, tellFigure, WARM_ROUNDS } from './figures.js';
import { withBench } from './kit.js';
import { startLoad } from './load.js';
import { plainYoga } from './plain-yoga.js';

const CLIENTS = 16;
const FILES = 25;
const PAGE = 50;
const count = Number(process.env.COUNT ?? 10_000_000);
const seconds = Number(process.env.SECONDS ?? 3);
const rounds = Number(process.env.ROUNDS ?? 9);
const only = process.env.ONLY;

const REQUEST = `query ($id: Int!) { request(id: $id) {
  requestId label state pattern requestDate retention filesTotal filesOnDisk bytesTotal quota { user size }
  holds(first: ${FILES}) { edges { node { state size file { path size stage } } } }
} }`;
const TAPE_FILES = `query ($after: String) { tapeFiles(first: ${PAGE}, after: $after) {
  edges { cursor node { path size stage } } pageInfo { hasNextPage endCursor }
} }`;

interface Pair {
  work: string;
  beside: string;
  bound: number;
  reference: RequestListener;
  body: string;
  /** What both answer with has to hold. */
  holds: string;
}

async function compare(url: string, { work, beside, bound, reference, body, holds }: Pair): Promise<void> {
  const server = createServer(reference);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const other = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const load = startLoad();
  const headers = { 'Content-Type': 'application/json' };
  /** Processor time of this process for an answer, in milliseconds: other users of the machine change it less than the rate. */
  const costs: Record<string, number[]> = { [url]: [], [other]: [] };
  const at = (base: string) => async () => {
    const before = process.cpuUsage();
    const what = { url: `${base}/graphql`, method: 'POST', headers, bodies: [body], clients: CLIENTS, seconds, holds };
    const { perSecond } = await load.run(what);
    const { user, system } = process.cpuUsage(before);
    costs[base]?.push((user + system) / 1000 / (perSecond * seconds));
    return perSecond;
  };
  const each = (all: readonly number[] = [], places = 0) => all.map((value) => value.toFixed(places)).join(' ');
  try {
    const ways = { ours: at(url), reference: at(other) };
    await inTurns(ways, WARM_ROUNDS);
    const rates = await inTurns(ways, rounds);
    console.log(`Tapegate ${each(rates.ours.all)}, ${beside} ${each(rates.reference.all)}`);
    console.log(`ms of this process for each: Tapegate ${each(costs[url], 2)}, ${beside} ${each(costs[other], 2)}`);
    tellFigure({ work, ours: rates.ours.median, reference: rates.reference.median, beside, unit: '/s', bound });
  } finally {
    load.close();
    server.closeAllConnections();
    server.close();
  }
}

async function benchRequest(ctx: Context, url: string): Promise<void> {
  const files = Array.from({ length: FILES }, (_, n) => pathOf(n));
  const id = await createRequest(ctx, { quota: 'alice', files });
  await ctx.db.pool.query('ANALYZE request, hold, quota');
  const pool = new pg.Pool({ ...ctx.db.config, max: 20 });
  await compare(url, {
    work: `GraphQL request, ${FILES} files`,
    beside: 'plain Yoga and pg',
    bound: 0.6,
    reference: plainYoga(pool),
    body: JSON.stringify({ query: REQUEST, variables: { id } }),
    holds: pathOf(FILES - 1),
  });
  await pool.end();
}

async function benchPages(ctx: Context, url: string): Promise<void> {
  const pool = new pg.Pool({ ...ctx.db.config, max: 20 }); // as many connections as a gateway has
  for (const depth of [0, 0.5, 0.99]) {
    const place = Math.floor((count * depth) / PAGE) * PAGE;
    const after = Buffer.from(`GPC:S:${pathOf(place)}`).toString('base64');
    await compare(url, {
      work: `tapeFiles(first: ${PAGE}) after ${place.toLocaleString('en-US')} of ${count.toLocaleString('en-US')}`,
      beside: 'plain Yoga and pg',
      bound: 0.6,
      reference: plainYoga(pool),
      body: JSON.stringify({ query: TAPE_FILES, variables: { after } }),
      holds: pathOf(place + PAGE),
    });
  }
  await pool.end();
}

/** In the order of their numbers. */
function pathOf(n: number): string {
  return `/bench/${String(n).padStart(9, '0')}.nc`;
}

await withBench(
  async (ctx) => {
    const gateway = await startGateway(ctx);
    await setQuota(ctx, { user: 'alice', size: 10n ** 15n });
    await ctx.db.pool.query({
      text: `SET statement_timeout = 0; INSERT INTO tape_file (path, size, stage)
        SELECT '/bench/' || lpad(n::text, 9, '0') || '.nc', 1000, 'ONTAPE' FROM generate_series(0, ${count}) n; ANALYZE tape_file`,
    });
    if (only === undefined || only === 'request') await benchRequest(ctx, gateway.url);
    if (only === undefined || only === 'pages') await benchPages(ctx, gateway.url);
    await gateway.close();
  },
  { PORT: '0', TAPEGATE_RATE_LIMIT: '100000000' },
);
