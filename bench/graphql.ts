/**
 * Compares GraphQL queries with a plain server of Yoga, Pothos and pg, on a catalogue of COUNT (default 10,000,000)
 * files. Sixteen clients in another process load the servers in turns of SECONDS (default 3) seconds. Each server has
 * ROUNDS (default 9) turns, in alternating order. Medians are compared. ONLY=request or ONLY=pages measures one query.
 *
 * Usage: npm run compile && node dist/bench/graphql.js
 */

import type { Context } from '../src/domain/context.js';
import { setQuota } from '../src/domain/quotas/quotas.js';
import { createRequest } from '../src/domain/requests/create.js';
import { startGateway } from '../src/main/app.js';
import { compare } from './beside.js';
import { withBench } from './kit.js';
import { withPlainYoga } from './plain-yoga.js';

const CLIENTS = 16;
const FILES = 25;
const PAGE = 50;
const count = Number(process.env.COUNT ?? 10_000_000);
const seconds = Number(process.env.SECONDS ?? 3);
const rounds = Number(process.env.ROUNDS ?? 9);
const only = process.env.ONLY;

const REQUEST = `query ($id: Int!) { request(requestId: $id) {
  requestId label state pattern createdAt retention filesTotal filesOnDisk bytesTotal quota { user size }
  files(first: ${FILES}) { edges { node { state size file { path size stage } } } }
} }`;
const TAPE_FILES = `query ($after: String!) { tapeFiles(first: ${PAGE}, after: $after) {
  edges { cursor node { path size stage } } pageInfo { hasNextPage endCursor }
} }`;

const turns = { clients: CLIENTS, seconds, rounds };
const asked = {
  beside: 'plain Yoga, Pothos and pg',
  bound: 0.6,
  path: '/graphql',
};
const post = { method: 'POST', headers: { 'Content-Type': 'application/json' } };

async function benchRequest(ctx: Context, url: string, reference: string): Promise<void> {
  const files = Array.from({ length: FILES }, (_, n) => pathOf(n));
  const id = await createRequest(ctx, { quota: 'alice', files });
  await ctx.db.pool.query('ANALYZE request, request_file, quota');
  const bodies = [JSON.stringify({ query: REQUEST, variables: { id } })];
  const load = { ...post, bodies, holds: pathOf(FILES - 1) };
  await compare(url, { ...asked, work: `GraphQL request, ${FILES} files`, reference, load }, turns);
}

async function benchPages(url: string, reference: string): Promise<void> {
  for (const depth of [0, 0.5, 0.99]) {
    const place = Math.floor((count * depth) / PAGE) * PAGE;
    const after = Buffer.from(`GPC:S:${pathOf(place)}`).toString('base64');
    const work = `tapeFiles(first: ${PAGE}) after ${place.toLocaleString('en-US')} of ${count.toLocaleString('en-US')}`;
    const load = {
      ...post,
      bodies: [JSON.stringify({ query: TAPE_FILES, variables: { after } })],
      holds: pathOf(place + PAGE),
    };
    await compare(url, { ...asked, work, reference, load }, turns);
  }
}

/** Returns the path of file `n`. Paths sort in the order of their numbers. */
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
    // the pool has as many connections as a gateway's pool
    await withPlainYoga({ ...ctx.db.config, max: 20 }, async (reference) => {
      if (only === undefined || only === 'request') await benchRequest(ctx, gateway.url, reference);
      if (only === undefined || only === 'pages') await benchPages(gateway.url, reference);
    });
    await gateway.close();
  },
  { PORT: '0', TAPEGATE_RATE_LIMIT: '100000000' },
);
