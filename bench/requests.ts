/**
 * Single requests, each beside the least that could give the same answer, in one run: 16 clients in another process, turns of SECONDS (3) in
 * alternating order, ROUNDS (5) of them, medians. ONLY=rest measures one of them.
 *
 *   npm run build && node dist/bench/requests.js
 */
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import pg from 'pg';
import { startGateway } from '../src/app.js';
import { setQuota } from '../src/operations/quotas/quotas.js';
import { createRequest } from '../src/operations/requests/create.js';
import { inTurns, tellFigure } from './figures.js';
import { withBench } from './kit.js';
import { type Load, startLoad } from './load.js';

const CLIENTS = 16;
const FILES = 25;
const seconds = Number(process.env.SECONDS ?? 3);
const rounds = Number(process.env.ROUNDS ?? 5);
const only = process.env.ONLY;

interface Pair {
  /** Answers in the gateway's place. */
  reference: RequestListener;
  /** What the reference is. */
  beside: string;
  work: string;
  bound: number;
  /** What is asked for, below the address of either. */
  path: string;
  load: Partial<Load>;
}

async function compare(url: string, { reference, beside, work, bound, path, load: what }: Pair): Promise<void> {
  const server = createServer(reference);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const other = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const load = startLoad();
  const at = (base: string) => async () =>
    (await load.run({ ...what, url: `${base}${path}`, clients: CLIENTS, seconds })).perSecond;
  try {
    const ways = { ours: at(url), reference: at(other) };
    await inTurns(ways, 1); // to be warm
    const rates = await inTurns(ways, rounds);
    const each = (all: readonly number[]) => all.map((rate) => rate.toFixed(0)).join(' ');
    console.log(`Tapegate ${each(rates.ours.all)}, ${beside} ${each(rates.reference.all)}`);
    tellFigure({ work, ours: rates.ours.median, reference: rates.reference.median, beside, unit: '/s', bound });
  } finally {
    load.close();
    server.closeAllConnections();
    server.close();
  }
}

/** The request with its paths, by one statement that is prepared by name, and no word more. */
const ONE_REQUEST = {
  name: 'request',
  text: `SELECT r.id, q."user" AS quota, r.retention, r.request_date, r.pattern AS request_patterns, r.notify_on_first_file,
      r.notify_on_last_file, r.label, p.paths
    FROM request r JOIN quota q ON q.id = r.quota_id CROSS JOIN LATERAL (
      SELECT string_agg(to_json(l.path)::text, ',' ORDER BY l.ordinal) AS paths FROM (
        SELECT f.path, h.ordinal FROM hold h JOIN tape_file f ON f.id = h.file_id WHERE h.request_id = r.id
        UNION ALL SELECT a.path, a.ordinal FROM awaited_path a WHERE a.request_id = r.id
      ) l
    ) p WHERE r.id = $1`,
};

function bareRequest(pool: pg.Pool): RequestListener {
  return async (req, res) => {
    const { rows } = await pool.query({ ...ONE_REQUEST, values: [Number(req.url?.split('/').at(-1))] });
    const { paths, ...fields } = rows[0];
    const body = Buffer.from(`[${JSON.stringify(fields).slice(0, -1)},"files":[${paths}]}]`);
    res.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': body.length }).end(body);
  };
}

await withBench(
  async (ctx) => {
    const gateway = await startGateway(ctx);
    const pool = new pg.Pool({ ...ctx.db.config, max: 20 }); // as many connections as a gateway has
    await ctx.db.pool.query(
      `INSERT INTO tape_file (path, size, stage) SELECT '/bench/' || n, 1000, 'ONTAPE' FROM generate_series(0, 99999) n`,
    );
    for (let n = 0; n < CLIENTS; n++) await setQuota(ctx, { user: `user${n}`, size: 10n ** 15n });
    const files = Array.from({ length: FILES }, (_, n) => `/bench/${n}`);
    const id = await createRequest(ctx, { quota: 'user0', files });
    await ctx.db.pool.query('ANALYZE');
    if (only === undefined || only === 'rest') {
      await compare(gateway.url, {
        work: `GET /requests/{id}, ${FILES} files`,
        reference: bareRequest(pool),
        beside: 'bare node:http and pg',
        bound: 0.5,
        path: `/tape_control/api/v1/requests/${id}`,
        load: { holds: `/bench/${FILES - 1}` },
      });
    }
    await pool.end();
    await gateway.close();
  },
  { PORT: '0' },
);
